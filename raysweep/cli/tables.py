"""Tables in a terminal."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rich.table


def print_widest(tables: Iterable["rich.table.Table"]) -> None:
    """Print the first of the tables that fits the terminal, or the last one."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(emoji=False)
    unlimited = console.options.update(max_width=10_000)
    for table in tables:
        needed = Measurement.get(console, unlimited, table).maximum
        if needed <= console.width:
            break
    caption, table.caption = table.caption, None  # rich wraps captions to the table's width
    Console(width=max(needed, console.width), emoji=False).print(table)
    if caption:
        console.print(caption, soft_wrap=not console.is_terminal)
