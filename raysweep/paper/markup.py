"""Tables as Markdown, as LaTeX with booktabs, and as CSV."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator

from raysweep.paper.table import ABSENT, Cell, Column, Number, Row, Table, shown
from raysweep.report.markdown import plain

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # a bracket or asterisk after a line break would be an option
    "*": "{*}",
    ABSENT: "--",
    "±": r"\(\pm\)",
    **{character: f"\\{character}" for character in "&%$#_"},
}


def markdown(table: Table) -> str:
    """Return the caption, and the table below it, with the best values in bold."""
    rule = ["---" if column.digits is None else "---:" for column in table.columns]
    titles = [plain(column.title) for column in table.columns]
    rows = [_cells(table.columns, row, plain, "**{}**") for row in _rows(table)]
    lines = ["| " + " | ".join(cells) + " |" for cells in (titles, rule, *rows)]
    return "\n".join([plain(table.caption), "", *lines]) + "\n"


def latex(table: Table) -> str:
    r"""Return a ``table`` for ``\input``, in a document that uses booktabs, with the best values in bold."""
    alignment = "".join("l" if column.digits is None else "r" for column in table.columns)
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped(table.caption)}}}",
            rf"\label{{tab:{table.name.replace('_', '-')}}}",
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            _latex_line(escaped(column.title) for column in table.columns),
            *_latex_groups(table),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _latex_groups(table: Table) -> Iterator[str]:
    for group in table.groups:
        yield r"\midrule"
        for row in group:
            yield _latex_line(_cells(table.columns, row, escaped, r"\textbf{{{}}}"))


def _latex_line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def escaped(text: str) -> str:
    """Return text on one line, escaped for LaTeX."""
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def csv_text(table: Table) -> str:
    """Return a header and the rows, with numbers to six decimals; missing values are empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_csv_keys(table.columns))
    for row in _rows(table):
        writer.writerow(_csv_cells(table.columns, row))
    return file.getvalue()


def _csv_keys(columns: Iterable[Column]) -> Iterator[str]:
    for column in columns:
        yield column.key
        if column.has_spread:
            yield f"{column.key}_std"


def _csv_cells(columns: Iterable[Column], row: Row) -> Iterator[str]:
    for column, cell in zip(columns, row, strict=True):
        if isinstance(cell, str):
            yield "" if cell == ABSENT else cell
            continue
        yield _csv_number(cell.value)
        if column.has_spread:
            yield _csv_number(cell.spread)


def _csv_number(value: float | None) -> str:
    return "" if value is None else f"{round(value, 6):.12g}"


def _rows(table: Table) -> Iterator[Row]:
    for group in table.groups:
        yield from group


def _cells(columns: Iterable[Column], row: Row, escape: Callable[[str], str], bold: str) -> list[str]:
    """Return the formatted cells of a row."""
    return [_cell(column, cell, escape, bold) for column, cell in zip(columns, row, strict=True)]


def _cell(column: Column, cell: Cell, escape: Callable[[str], str], bold: str) -> str:
    if isinstance(cell, str):
        return escape(cell)
    text = escape(shown(cell, column.digits or 0))
    if cell.is_best:
        text = bold.format(text)
    return text if cell.spread is None else f"{text} ({shown(Number(cell.spread), column.digits or 0)})"
