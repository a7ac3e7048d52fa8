"""Output functions shared by commands."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from raysweep.output import json_text, print_table

if TYPE_CHECKING:
    from raysweep.report.summary import Summary
    from raysweep.storage.folder import Folder


def warn(text: str) -> None:
    typer.echo(f"warning: {text}", err=True)


def print_json(value: object) -> None:
    typer.echo(json_text(value))


def report_run(run: "Folder", to: Path | None = None, format: str = "table") -> "Summary":
    """Write a run's report, print its front as a table or as JSON, and return its summary.

    With JSON, the notes and the report's path are printed to standard error.
    """
    from raysweep.report import choice
    from raysweep.report import write as reports
    from raysweep.report.notes import notes
    from raysweep.report.terminal import front_tables
    from raysweep.results.commands import format_command
    from raysweep.storage import location

    written = reports.write(run, to)
    is_json = format == "json"
    if is_json:
        print_json(choice.front_as_json(written.summary))
    elif written.summary.members:
        print_table(*front_tables(written.summary))
    for note in notes(written.summary):
        typer.echo(f"note: {note}", err=is_json)
    typer.echo(f"report: {location.join(written.location, 'report.html')}", err=is_json)
    if location.is_uri(written.location):  # browsers cannot open bucket URIs
        folder = f"{location.base_name(run.location)}-report"
        typer.echo(
            f"to read it: {format_command('report', run.location, '--to', folder)}", err=is_json
        )
    return written.summary
