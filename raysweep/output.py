"""Output formatting and escaping for terminals, Markdown, HTML, CSV and JSON."""

import csv
import html
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rich.console
    import rich.table

ABSENT = "–"  # noqa: RUF001 (an en dash reads as an empty cell)

# Control characters other than tabs and newlines are replaced by Unicode control pictures. Other unsafe characters are
# replaced by the replacement character: C1 controls, line separators, direction overrides (which reorder the displayed
# text) and unpaired surrogates (which cannot be encoded).
_CONTROL_PICTURES = {
    code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\r"
} | {0x7F: "\u2421"}
_SEPARATORS_AND_DIRECTIONS = (*range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPED = {
    **dict.fromkeys(
        [*range(0x80, 0xA0), *_SEPARATORS_AND_DIRECTIONS, *range(0xD800, 0xE000)],
        "\N{REPLACEMENT CHARACTER}",
    ),
    **_CONTROL_PICTURES,
}


@dataclass(frozen=True)
class TextTable:
    """A table of formatted cells; ``text`` names the columns that contain text instead of numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text: frozenset[str]
    title: str = ""
    caption: str = ""


def print_table(
    table: TextTable, *narrower: TextTable, console: "rich.console.Console | None" = None
) -> None:
    """Print the first table that fits the terminal, or the last one with wrapped cells.

    Redirected output is not wrapped.
    """
    from rich.console import Console
    from rich.measure import Measurement

    console = Console() if console is None else console
    unlimited = console.options.update(max_width=10_000)
    for candidate in (table, *narrower):
        grid = _rich_table(candidate)
        needed = Measurement.get(console, unlimited, grid)
        if needed.maximum <= console.width:
            break
    width = console.width
    console.width = max(width, needed.minimum if console.is_terminal else needed.maximum)
    console.print(grid)
    console.width = width
    if candidate.caption:
        caption = escape_controls(candidate.caption)
        console.print(
            caption, soft_wrap=not console.is_terminal, markup=False, emoji=False, highlight=False
        )


def _rich_table(table: TextTable) -> "rich.table.Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    title = Text(escape_line(table.title)) if table.title else None
    grid = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    for column in table.columns:
        is_text = column in table.text
        grid.add_column(
            Text(escape_controls(column)),
            justify="left" if is_text else "right",
            no_wrap=not is_text,
            overflow="fold",
        )
    for row in table.rows:
        grid.add_row(*(Text(escape_controls(cell)) for cell in row))
    return grid


def markdown_lines(table: TextTable, escape: "Callable[[str], str] | None" = None) -> list[str]:
    """Return a table as lines of Markdown, applying ``escape`` (default: :func:`escape_markdown`) to each cell."""
    escape = escape_markdown if escape is None else escape
    rule = ["---" if column in table.text else "---:" for column in table.columns]
    head, *rows = [[escape(cell) for cell in row] for row in (table.columns, *table.rows)]
    return ["| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)]


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a header and rows as CSV, with None as an empty cell."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return file.getvalue()


def json_text(value: object) -> str:
    """Return a value as indented JSON."""
    return json.dumps(value, indent=2)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 trial`` or ``1,024 trials``; the noun's plural must end in s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def escape_controls(text: str) -> str:
    """Replace control characters other than tabs and newlines."""
    return text.translate(_ESCAPED)


def escape_line(text: str) -> str:
    """Return text as a single line for a terminal or a log."""
    return escape_controls(" ".join(text.split()))


def escape_html(text: str) -> str:
    """Escape text for HTML elements and attributes."""
    return html.escape(escape_controls(text))


def escape_markdown(text: str) -> str:
    """Escape text for one line of Markdown, such as a table cell."""
    for character in "\\`*[]<>|":
        text = text.replace(character, "\\" + character)
    # underscores within words are not markup
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\_", text)
    return escape_line(text)
