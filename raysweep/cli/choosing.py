"""The commands ``show`` and ``compare``, which select from stored runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from raysweep.cli.options import given_path, here, one_of, run_folder
from raysweep.cli.tables import print_widest
from raysweep.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import rich.table

    from raysweep.report.side_by_side import Side, SideBySide
    from raysweep.report.tables import TextTable
    from raysweep.results.types import Results, ScoredSplit
    from raysweep.storage.folder import Folder

FORMATS = ("table", "json")

Run = Annotated[str, typer.Argument(metavar="RUN", help="Folder or URI of a run, finished or not.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(show)
    app.command()(compare)


def show(  # noqa: PLR0913 (the options of a command)
    run: Run,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Show only points that meet this condition, such as 'polarity >= 0.85', 'kind = concat', 'loss != "
            "triplet' or, with the name of a guard, 'sts-dev >= 0.8'; repeatable. Scores are those on dev, in "
            "[0, 1].",
        ),
    ] = None,
    best: Annotated[
        str | None,
        typer.Option(
            metavar="SCORE",
            help="Show the best point by polarity, similarity, retention, accuracy or objective; see --top.",
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="Show the N best points, by the score of --best or else by the objective.")
    ] = None,
    knee: Annotated[
        bool, typer.Option("--knee", help="Show the best-balanced of the points that meet --where.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Choose from all operating points, not only from the front.")
    ] = False,
    split: Annotated[
        str | None, typer.Option(help="Show only the scores on dev or on test. Points are always chosen on dev.")
    ] = None,
    format: Annotated[str, typer.Option(help="Output format: table, or json with scores in [0, 1].")] = "table",
) -> None:
    """Show points of a run that meet conditions, with scores, configurations and export commands.

    Without options, all members of the front are shown. Exit code 1 if no point meets the conditions.
    """
    from raysweep.report import choice, choice_table
    from raysweep.report.notes import ending_notes
    from raysweep.report.summary import summary_of

    one_of("--format", format, FORMATS)
    wanted = choice.Wanted(
        conditions=where or (),
        by=None if best is None else one_of("--best", best, choice.BY),
        top=top,
        knee=knee,
        everything=everything,
    )
    given_split = None if split is None else one_of("--split", split, _splits())
    summary = summary_of(run_folder("RUN", run))
    chosen = choice.choose(summary, wanted)
    splits = summary.splits if given_split is None else (given_split,)
    if format == "json":
        _print_json(choice_table.rows_as_json(summary, chosen.candidates, splits))
    elif chosen.candidates:
        print_widest(choice_table.choice_tables(summary, chosen.candidates, splits))
        for line in choice_table.lines_below(summary, chosen.candidates, splits):
            typer.echo(line)
        for note in ending_notes(summary.results):
            typer.echo(f"note: {note}")
    if not chosen.candidates:
        typer.echo(chosen.why_none, err=format == "json")
        raise typer.Exit(1)


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Folders or URIs of two or more runs; the others are compared with the first."
        ),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            parser=given_path,
            metavar="FOLDER",
            help="Also write compare.md, compare.png with all fronts, and compare.json to this folder.",
        ),
    ] = None,
    format: Annotated[str, typer.Option(help="Output format: table, or json with scores in [0, 1].")] = "table",
) -> None:
    """Compare runs over the same data: fronts, hypervolumes, which points dominate which, and differing settings.

    Differences in hypervolume have an interval if the runs stored per-query scores.
    """
    from raysweep.report import side_by_side, side_by_side_texts

    one_of("--format", format, FORMATS)
    folder = None if to is None else here("--to", to)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(f"--to {folder}: is a file, not a folder")
    folders = [run_folder("RUN", run) for run in runs]
    found = side_by_side.compare_runs(list(_sides(folders)))
    if format == "json":
        _print_json(side_by_side_texts.as_json(found))
    else:
        for title, table in side_by_side_texts.sections(found):
            typer.echo(f"{title}:")
            print_widest([_rich_table(table)])
        for note in side_by_side_texts.notes(found):
            typer.echo(f"note: {note}")
    if folder is not None:
        _write_comparison(found, folder)
        typer.echo(f"compared: {folder / 'compare.md'}", err=format == "json")


def _sides(folders: "Sequence[Folder]") -> "Iterator[Side]":
    """Yield each run with its stored results, under a distinct label."""
    from raysweep.report.side_by_side import Side, labels
    from raysweep.report.summary import summary_of

    for folder, label in zip(folders, labels([folder.location for folder in folders]), strict=True):
        summary = summary_of(folder)
        yield Side(label, summary, _settings_of(folder, summary.results))


def _settings_of(folder: "Folder", results: "Results") -> "Mapping[str, Any]":
    """Return the settings in the run's file by dotted key.

    Raises:
        InputError: If the file is not the one with which the run was started.
    """
    from raysweep.results.settings_file import read_settings

    values = read_settings(folder, results)
    return {name: value for name, value in _dotted(values, "") if name != "name" and not name.startswith("storage.")}


def _dotted(values: "Mapping[str, Any]", prefix: str) -> "Iterator[tuple[str, Any]]":
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _write_comparison(found: "SideBySide", folder: Path) -> None:
    import json

    from raysweep.report.side_by_side_figure import fronts_figure
    from raysweep.report.side_by_side_texts import PICTURE, as_json, markdown
    from raysweep.report.write import replace_files

    contents = {
        "compare.md": markdown(found).encode(),
        "compare.json": json.dumps(as_json(found), indent=1).encode(),
        PICTURE: fronts_figure(found),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_files(folder, contents)
    except OSError as error:
        raise InputError(f"--to {folder}: cannot be written to ({error.strerror})") from None


def _rich_table(table: "TextTable") -> "rich.table.Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        shown.add_column(Text(column), justify="left" if column in table.text else "right", no_wrap=True)
    for row in table.rows:
        shown.add_row(*map(Text, row))
    return shown


def _splits() -> "Sequence[ScoredSplit]":
    from raysweep.results.types import ScoredSplit

    splits: tuple[ScoredSplit, ...] = get_args(ScoredSplit)
    return splits


def _print_json(value: object) -> None:
    import json

    typer.echo(json.dumps(value, indent=1))
