"""Tables as a terminal displays them."""

import io

from rich.console import Console

from raysweep.output import TextTable, print_table
from raysweep.report.summary import Summary
from raysweep.report.terminal import front_tables


def printed(table: TextTable, width: int = 400) -> str:
    """Return a table as printed on a terminal of ``width`` columns."""
    out = io.StringIO()
    print_table(
        table, console=Console(file=out, width=width, force_terminal=True, color_system=None)
    )
    return out.getvalue()


def narrow(summary: Summary) -> TextTable:
    """Return the front's table for a terminal of 80 columns."""
    return front_tables(summary)[-1]
