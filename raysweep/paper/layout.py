"""Layouts of published results: caption, columns and rows, written as Markdown, LaTeX (booktabs) and CSV."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raysweep.output import ABSENT, TextTable, csv_text, escape_markdown, markdown_lines

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "[": "{[}",  # a bracket or asterisk after a line break would be an option
        "*": "{*}",
        ABSENT: "--",
        "±": r"\(\pm\)",
        **{character: f"\\{character}" for character in "{}&%$#_"},
    }
)


class NoLayoutError(Exception):
    """The data does not allow a layout; the message is the reason, shown after the layout's name."""


@dataclass(frozen=True)
class Number:
    """A numeric cell, as displayed; scores are x100. None means not measured.

    ``spread`` is its standard deviation, shown in parentheses. The best value of a column is in bold.
    """

    value: float | None
    spread: float | None = None
    is_best: bool = False


Cell = str | Number
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Column:
    """A column: ``title`` is for readers, ``key`` for the CSV file. Text columns have no ``digits``."""

    title: str
    key: str
    digits: int | None = None  # decimals
    has_spread: bool = False  # a separate CSV column, with the key ``KEY_std``


@dataclass(frozen=True)
class Layout:
    """A layout. ``name`` is the stem of its files. Groups of rows are separated by rules."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    groups: tuple[tuple[Row, ...], ...]
    draw: Callable[[], bytes] | None = None  # returns the figure as PNG

    @property
    def rows(self) -> list[Row]:
        return [row for group in self.groups for row in group]


def format_number(number: Number, digits: int) -> str:
    return ABSENT if number.value is None else f"{number.value:.{digits}f}"


def mark_best(numbers: Sequence[Number], digits: int) -> list[Number]:
    """Return the numbers of a column, with those marked that are printed as the maximum."""
    values = [number.value for number in numbers if number.value is not None]
    if not values:
        return list(numbers)
    maximum = format_number(Number(max(values)), digits)
    return [Number(number.value, number.spread, format_number(number, digits) == maximum) for number in numbers]


def to_markdown(layout: Layout) -> str:
    """Return the caption, and the rows below it, with the best values in bold."""
    titles = tuple(escape_markdown(column.title) for column in layout.columns)
    rows = [tuple(_format_row(layout.columns, row, escape_markdown, "**{}**")) for row in layout.rows]
    text = frozenset(title for title, column in zip(titles, layout.columns, strict=True) if column.digits is None)
    lines = markdown_lines(TextTable(titles, tuple(rows), text), escape=str)
    return "\n".join([escape_markdown(layout.caption), "", *lines]) + "\n"


def to_latex(layout: Layout) -> str:
    r"""Return a ``table`` for ``\input``, in a document that uses booktabs, with the best values in bold."""
    import pandas as pd

    titles = [escape_latex(column.title) for column in layout.columns]
    rows = [_format_row(layout.columns, row, escape_latex, r"\textbf{{{}}}") for row in layout.rows]
    text = pd.DataFrame(rows).to_latex(
        index=False,
        header=[title.replace("{", "{{").replace("}", "}}") for title in titles],  # pandas formats titles
        column_format="".join("l" if column.digits is None else "r" for column in layout.columns),
        caption=escape_latex(layout.caption),
        label=f"tab:{layout.name.replace('_', '-')}",
    )
    lines = text.replace("\\begin{table}\n", "\\begin{table}\n\\centering\n").splitlines()
    end = lines.index(r"\midrule") + 1
    for group in layout.groups[:-1]:
        end += len(group)
        lines.insert(end, r"\midrule")
        end += 1
    return "\n".join([r"% \usepackage{booktabs}", *lines, ""])


def escape_latex(text: str) -> str:
    """Return text on one line, escaped for LaTeX."""
    return " ".join(text.split()).translate(_LATEX)


def to_csv(layout: Layout) -> str:
    """Return a header and the rows, with numbers to six decimals; missing values are empty."""
    keys: list[str] = []
    for column in layout.columns:
        keys += [column.key, f"{column.key}_std"] if column.has_spread else [column.key]
    rows = []
    for row in layout.rows:
        cells: list[str] = []
        for column, cell in zip(layout.columns, row, strict=True):
            if isinstance(cell, str):
                cells.append("" if cell == ABSENT else cell)
            else:
                numbers = (cell.value, cell.spread) if column.has_spread else (cell.value,)
                cells += ["" if number is None else f"{round(number, 6):.12g}" for number in numbers]
        rows.append(cells)
    return csv_text(keys, rows)


def _format_row(columns: Sequence[Column], row: Row, escape: Callable[[str], str], bold: str) -> list[str]:
    """Return the cells as text; ``bold`` is the format of the best."""
    cells = []
    for column, cell in zip(columns, row, strict=True):
        if isinstance(cell, str):
            cells.append(escape(cell))
            continue
        digits = column.digits or 0
        text = escape(format_number(cell, digits))
        if cell.is_best:
            text = bold.format(text)
        cells.append(text if cell.spread is None else f"{text} ({cell.spread:.{digits}f})")
    return cells
