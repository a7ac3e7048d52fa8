"""Commands for recordings and papers: record, replay and paper."""

from pathlib import Path
from typing import Annotated, get_args

import typer

from raysweep.cli import panels
from raysweep.cli.options import (
    FORMATS,
    LogLevel,
    Quiet,
    Verbose,
    check_all_of,
    check_local,
    check_new,
    check_one_of,
    check_verbosity,
    parse_path,
    parse_where,
    run_folder,
)
from raysweep.cli.output import print_json
from raysweep.output import counted, print_table

app = typer.Typer()


@app.command(rich_help_panel=panels.PAPERS)
def record(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Folder or URI of a run, finished or not.")
    ],
    to: Annotated[
        Path,
        typer.Argument(parser=parse_path, metavar="FILE", help="A .csv or .parquet file to write."),
    ],
) -> None:
    """Write a run's configurations, rungs and operating points as a recording for replay."""
    from raysweep.replay import recording_files
    from raysweep.results import reader

    file = check_new("FILE", to)
    results = reader.load(run_folder("RUN", run))
    num_trials = recording_files.write(results, file)
    typer.echo(f"{to}: {counted(num_trials, 'trial')}")


@app.command(rich_help_panel=panels.PAPERS)
def paper(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="Folders or URIs of runs, recordings or published scores (.csv, .parquet), or by_k.csv from evaluate.",
        ),
    ],
    to: Annotated[
        Path,
        typer.Option(
            parser=parse_path,
            metavar="FOLDER",
            help="Output folder; existing layouts are overwritten.",
        ),
    ],
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="Use only configurations with this value of a parameter, model or dataset; repeatable.",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="dev or test; if not given, test if all points of a layout have scores on test, else dev."
        ),
    ] = None,
    z_test: Annotated[
        str | None,
        typer.Option(
            metavar="ROW",
            help="Also run two-proportion z-tests of P against this row, such as reference.",
        ),
    ] = None,
) -> None:
    """Write results in the layouts used in papers, as Markdown, LaTeX, CSV and figures.

    The layouts show P and S by loss, margin and model; by examples per rung; for the best trial of each loss by rung;
    and by k, from the output of evaluate. If the data for a layout is missing, the layout is omitted, and a note gives
    the reason.
    """
    from raysweep.paper.write import write_layouts
    from raysweep.results.types import ScoredSplit
    from raysweep.storage.folder import Folder
    from raysweep.storage.location import is_uri

    all_splits: tuple[ScoredSplit, ...] = get_args(ScoredSplit)
    chosen_split = None if split is None else check_one_of("--split", split, all_splits)
    places: list[Folder | Path] = []
    for source in sources:
        is_run = is_uri(source) or Path(source).is_dir()
        places.append(run_folder("RUN", source) if is_run else Path(source))
    output_folder = check_local("--to", to)
    conditions = parse_where(where or [])
    written = write_layouts(places, output_folder, conditions, chosen_split, z_test)
    for name, files in written.files.items():
        suffixes = ", ".join(file.suffix for file in files)
        typer.echo(f"{name}: {suffixes}")
    for name, reason in written.left_out.items():
        typer.echo(f"note: {name} is left out: {reason}")
    typer.echo(f"layouts: {to}")


@app.command(rich_help_panel=panels.PAPERS)
def replay(  # noqa: PLR0913 (the options of a command)
    recording: Annotated[
        str,
        typer.Argument(
            metavar="RECORDING", help="Recording (.csv, .parquet), or the folder or URI of a run."
        ),
    ],
    sampler: Annotated[
        str,
        typer.Option(
            help="mfgp, tpe, gp, nsga2, random or package:Class; separate several with commas."
        ),
    ] = "mfgp",
    policy: Annotated[
        str,
        typer.Option(help="growth, pareto, asha, median or none; separate several with commas."),
    ] = "growth",
    proposals: Annotated[
        str, typer.Option(help="What the sampler maximizes: front, area, combined, parego or both.")
    ] = "front",
    reduction_factor: Annotated[
        int, typer.Option(min=2, help="Reduction factor of pareto and asha.")
    ] = 2,
    workers: Annotated[int, typer.Option(min=1, help="Simulated workers.")] = 1,
    seeds: Annotated[
        int,
        typer.Option(min=1, help="Number of simulated searches per setting; medians are shown."),
    ] = 20,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE", help="Use only rows with this value in the column; repeatable."
        ),
    ] = None,
    format: Annotated[str, typer.Option(help="Output format: table or json.")] = "table",
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_level: LogLevel = None,
) -> None:
    """Simulate searches on a recorded sweep, in seconds and without training, and show hypervolume against budget.

    Each proposal is replaced with the nearest recorded configuration that has not been used yet. The sampler receives
    the replacement.
    """
    from raysweep.config.sweep import Aim, Policy
    from raysweep.replay.compare import CompareSettings, compare_searches
    from raysweep.storage.location import is_uri
    from raysweep.terminal import working

    verbosity = check_verbosity(quiet, verbose, log_level)
    all_policies: tuple[Policy, ...] = get_args(Policy)
    all_aims: tuple[Aim, ...] = get_args(Aim)
    check_one_of("--format", format, FORMATS)
    settings = CompareSettings(
        samplers=sampler.split(","),
        policies=check_all_of("--policy", policy, all_policies),
        proposals=check_one_of("--proposals", proposals, all_aims),
        reduction_factor=reduction_factor,
        num_workers=workers,
        num_seeds=seeds,
    )
    with working(verbosity) as (display, _):
        source = run_folder("RECORDING", recording) if is_uri(recording) else Path(recording)
        comparison = compare_searches(source, parse_where(where or []), settings, display)
    if format == "json":
        print_json(comparison.figures)
    else:
        typer.echo(comparison.title)
        print_table(comparison.table)
