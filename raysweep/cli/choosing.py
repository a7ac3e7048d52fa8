"""The commands that look at what runs have stored, to choose from it."""

from typing import TYPE_CHECKING, Annotated, get_args

import typer

from raysweep.cli.options import one_of, run_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import rich.table

    from raysweep.results.types import ScoredSplit

FORMATS = ("table", "json")

Run = Annotated[str, typer.Argument(metavar="RUN", help="The folder or URI of a run, finished or not.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(show)


def show(  # noqa: PLR0913 (the options of a command)
    run: Run,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Only points of which this holds, such as 'polarity >= 0.85', 'kind = concat' or 'loss != triplet'; "
            "repeatable. Scores are those on dev, in [0, 1].",
        ),
    ] = None,
    best: Annotated[
        str | None,
        typer.Option(
            metavar="SCORE", help="The best by polarity, similarity, retention, accuracy or objective; see --top."
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="So many of the best points: by the objective, or by what --best names.")
    ] = None,
    knee: Annotated[bool, typer.Option("--knee", help="The best-balanced point, of those that meet --where.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Choose from every operating point, not from the front alone.")
    ] = False,
    split: Annotated[
        str | None, typer.Option(help="Show the scores on dev or on test alone. Choosing is on dev all the same.")
    ] = None,
    format: Annotated[str, typer.Option(help="table, or json with scores in [0, 1].")] = "table",
) -> None:
    """Show points of a run that meet conditions, with scores, configurations and the commands that export them.

    All members of the front if nothing else is asked for. Exit code 1 where no point meets the conditions.
    """
    from raysweep.report import choice, choice_table
    from raysweep.report.notes import ending_notes
    from raysweep.report.summary import summarise
    from raysweep.results import reader

    one_of("--format", format, FORMATS)
    wanted = choice.Wanted(
        conditions=where or (),
        by=None if best is None else one_of("--best", best, choice.BY),
        top=top,
        knee=knee,
        everything=everything,
    )
    given_split = None if split is None else one_of("--split", split, _splits())
    summary = summarise(reader.load(run_folder("RUN", run)))
    chosen = choice.choose(summary, wanted)
    splits = summary.splits if given_split is None else (given_split,)
    if format == "json":
        _print_json(choice_table.rows_as_json(summary, chosen.candidates, splits))
    elif chosen.candidates:
        _print_widest(choice_table.choice_tables(summary, chosen.candidates, splits))
        for line in choice_table.lines_below(summary, chosen.candidates, splits):
            typer.echo(line)
        for note in ending_notes(summary.results):
            typer.echo(f"note: {note}")
    if not chosen.candidates:
        typer.echo(chosen.why_none, err=format == "json")
        raise typer.Exit(1)


def _splits() -> "Sequence[ScoredSplit]":
    from raysweep.results.types import ScoredSplit

    splits: tuple[ScoredSplit, ...] = get_args(ScoredSplit)
    return splits


def _print_widest(tables: "Iterable[rich.table.Table]") -> None:
    """Print the first of the tables that the terminal has room for, or the last."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console()
    unlimited = console.options.update(max_width=10_000)
    for table in tables:
        needed = Measurement.get(console, unlimited, table).maximum
        if needed <= console.width:
            break
    Console(width=max(needed, console.width)).print(table)


def _print_json(value: object) -> None:
    import json

    typer.echo(json.dumps(value, indent=1))
