"""Text as a terminal displays it."""

import io

from rich.console import Console, RenderableType

from raysweep.report.summary import Summary
from raysweep.report.terminal import terminal_tables


def printed(thing: RenderableType, width: int = 400) -> str:
    """Return the text that rich prints, ``width`` columns wide."""
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as capture:
        console.print(thing)
    return capture.get()


def narrow(summary: Summary) -> RenderableType:
    """Return the front's table for a terminal of 80 columns."""
    *_, table = terminal_tables(summary)
    return table
