"""Output of the commands: warnings, tables, JSON and the report of a run."""

import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    import rich.table

    from raysweep.report.summary import Summary
    from raysweep.report.tables import TextTable
    from raysweep.storage.folder import Folder


def warn(text: str) -> None:
    typer.echo(f"warning: {text}", err=True)


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=1))


def print_table(table: "rich.table.Table") -> None:
    from rich.console import Console

    Console(emoji=False).print(table)


def print_widest(tables: Iterable["rich.table.Table"]) -> None:
    """Print the first of the tables that fits the terminal, or the last one."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(emoji=False)
    unlimited = console.options.update(max_width=10_000)
    for table in tables:
        width = Measurement.get(console, unlimited, table).maximum
        if width <= console.width:
            break
    caption, table.caption = table.caption, None  # rich wraps captions to the table's width
    Console(width=max(width, console.width), emoji=False).print(table)
    if caption:
        console.print(caption, soft_wrap=not console.is_terminal)


def as_rich(table: "TextTable") -> "rich.table.Table":
    """Return a table of texts for printing, with numbers aligned to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    rich_table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        is_text = column in table.text
        rich_table.add_column(Text(column), justify="left" if is_text else "right", no_wrap=True)
    for row in table.rows:
        rich_table.add_row(*map(Text, row))
    return rich_table


def report_run(run: "Folder", to: Path | None = None) -> "Summary":
    """Write and print the report of a run, and return its summary."""
    from raysweep.report import write as reports
    from raysweep.report.notes import notes
    from raysweep.report.terminal import terminal_tables
    from raysweep.storage import location

    written = reports.write(run, to)
    if written.summary.members:
        print_widest(terminal_tables(written.summary))
    for note in notes(written.summary):
        typer.echo(f"note: {note}")
    typer.echo(f"report: {location.join(written.location, 'report.html')}")
    if location.is_uri(written.location):  # browsers cannot open it
        typer.echo(f"to read it: raysweep report {shlex.quote(run.location)} --to FOLDER")
    return written.summary
