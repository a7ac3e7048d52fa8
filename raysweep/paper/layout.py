"""Layouts of results as Markdown, LaTeX (booktabs) and CSV."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raysweep.output import ABSENT, TextTable, csv_text, escape_markdown, markdown_lines

if TYPE_CHECKING:
    import pandas as pd

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "[": "{[}",  # LaTeX parses a bracket or asterisk after a line break as an option
        "*": "{*}",
        ABSENT: "--",
        "±": r"\(\pm\)",
        **{character: f"\\{character}" for character in "{}&%$#_"},
    }
)


class NoLayoutError(Exception):
    """Raised if the data does not support a layout; the message is the reason."""


@dataclass(frozen=True)
class Column:
    """A column of a layout.

    Args:
        title: Header in Markdown and LaTeX.
        key: Header in CSV.
        cells: Text or numbers. Scores are x100. NaN is printed as a dash, or as an empty cell in CSV.
        digits: Number of decimals, or None for text columns.
        spreads: Standard deviations, printed in parentheses, or in the column ``KEY_std`` in CSV.
        is_best: Mask of the cells printed in bold.
    """

    title: str
    key: str
    cells: Sequence[Any]
    digits: int | None = None
    spreads: Sequence[float] | None = None
    is_best: Sequence[bool] | None = None

    def format(self, escape: Callable[[str], str], bold: str) -> list[str]:
        """Return the cells as text; ``bold`` is the format string for the best cells."""
        if self.digits is None:
            return [escape(cell) for cell in self.cells]
        texts = [escape(format_number(number, self.digits)) for number in self.cells]
        for row, is_best in enumerate(self.is_best or ()):
            if is_best:
                texts[row] = bold.format(texts[row])
        for row, spread in enumerate(self.spreads or ()):
            if not is_missing(spread):
                texts[row] += f" ({spread:.{self.digits}f})"
        return texts


@dataclass(frozen=True)
class Layout:
    """A layout. ``name`` is the stem of its files. In LaTeX, a rule separates rows of different ``groups``."""

    name: str
    caption: str
    columns: Sequence[Column]
    groups: Sequence[Hashable]  # one label per row
    draw: Callable[[], bytes] | None = None  # returns the figure as PNG


def make_column(frame: "pd.DataFrame", key: str, title: str, digits: int | None = None) -> Column:
    """Return a column of the frame, with spreads from the ``KEY_std`` column, if any."""
    spreads = None
    if digits is not None and f"{key}_std" in frame:
        spreads = frame[f"{key}_std"].tolist()
    return Column(title, key, frame[key].tolist(), digits, spreads)


def is_missing(number: float) -> bool:
    return number != number  # NaN


def format_number(number: float, digits: int) -> str:
    return ABSENT if is_missing(number) else f"{number:.{digits}f}"


def mark_best(numbers: "pd.Series[float]", digits: int) -> "pd.Series[bool]":
    """Return a mask of the numbers that equal the maximum after rounding."""
    maximum = format_number(numbers.max(), digits)
    texts = numbers.map(lambda number: format_number(number, digits))
    return (texts == maximum) & numbers.notna()


def to_markdown(layout: Layout) -> str:
    """Return a layout as a Markdown table below its caption."""
    titles = tuple(escape_markdown(column.title) for column in layout.columns)
    cells = [column.format(escape_markdown, "**{}**") for column in layout.columns]
    text = frozenset(
        title for title, column in zip(titles, layout.columns, strict=True) if column.digits is None
    )
    table = TextTable(titles, tuple(zip(*cells, strict=True)), text)
    return (
        "\n".join([escape_markdown(layout.caption), "", *markdown_lines(table, escape=str)]) + "\n"
    )


def to_latex(layout: Layout) -> str:
    r"""Return a layout as a ``table`` environment to ``\input`` in documents that use booktabs."""
    import pandas as pd

    header = []
    alignment = ""
    for column in layout.columns:
        title = escape_latex(column.title)
        header.append(title.replace("{", "{{").replace("}", "}}"))  # pandas formats the headers
        alignment += "l" if column.digits is None else "r"
    cells = [column.format(escape_latex, r"\textbf{{{}}}") for column in layout.columns]
    label = layout.name.replace("_", "-")
    text = pd.DataFrame(zip(*cells, strict=True)).to_latex(
        index=False,
        header=header,
        column_format=alignment,
        caption=escape_latex(layout.caption),
        label=f"tab:{label}",
    )
    text = text.replace("\\begin{table}\n", "\\begin{table}\n\\centering\n")
    lines = text.splitlines()
    first_row = lines.index(r"\midrule") + 1
    groups = layout.groups
    for row in range(len(groups) - 1, 0, -1):
        if groups[row] != groups[row - 1]:
            lines.insert(first_row + row, r"\midrule")
    return "\n".join([r"% \usepackage{booktabs}", *lines, ""])


def escape_latex(text: str) -> str:
    """Escape text for LaTeX, on one line."""
    return " ".join(text.split()).translate(_LATEX)


def to_csv(layout: Layout) -> str:
    """Return a layout as CSV, with numbers rounded to six decimals and empty cells for missing values."""
    keys = []
    cells = []
    for column in layout.columns:
        keys.append(column.key)
        if column.digits is None:
            texts = ["" if text == ABSENT else text for text in column.cells]
            cells.append(texts)
            continue
        cells.append(_format_precisely(column.cells))
        if column.spreads is not None:
            keys.append(f"{column.key}_std")
            cells.append(_format_precisely(column.spreads))
    return csv_text(keys, zip(*cells, strict=True))


def _format_precisely(numbers: Sequence[float]) -> list[str]:
    return ["" if is_missing(number) else f"{round(number, 6):.12g}" for number in numbers]
