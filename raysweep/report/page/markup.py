"""HTML building blocks of the page's sections: paragraphs, sections, figures and tables."""

import base64
from collections.abc import Iterable, Sequence

from raysweep.report.page.picture import smaller
from raysweep.report.page.visible import escape
from raysweep.report.tables import MISSES, TextTable

MAX_OPEN_ROWS = 20  # longer tables scroll below a fixed header


def joined(parts: Iterable[str]) -> str:
    """Join non-empty parts with newlines."""
    return "\n".join(part for part in parts if part)


def paragraph(text: str, style: str = "") -> str:
    named = f' class="{style}"' if style else ""
    return f"<p{named}>{escape(text)}</p>"


def section(name: str, title: str, *parts: str) -> str:
    """Return a section that links can target; empty if all its parts are empty."""
    content = joined(parts)
    if not content:
        return ""
    return f'<section id="{name}" aria-labelledby="{name}-title">\n<h2 id="{name}-title">{title}</h2>\n{content}\n</section>'


def explained_table(name: str, title: str, text: str, content: TextTable) -> str:
    """Return a section with a paragraph and a table; empty if the table has no rows."""
    if not content.rows:
        return ""
    return section(name, title, paragraph(text), table(content, title, "fit"))


def figure(png: bytes, title: str, caption: str = "") -> str:
    """Return a figure with an embedded image."""
    data = base64.b64encode(smaller(png)).decode("ascii")
    image = f'<img alt="{escape(title)}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"


def folded(title: str, content: str, *, is_open: bool = False) -> str:
    """Return ``content``, which is HTML, in a collapsible element."""
    opened = " open" if is_open else ""
    return f"<details{opened}><summary>{escape(title)}</summary>\n{content}\n</details>"


def table(content: TextTable, label: str, style: str = "") -> str:
    """Return a table in a box that scrolls, also by keyboard; ``label`` names the box for screen readers."""
    head = _cells("th", content, [escape(column) for column in content.columns])
    rows = [_row(content, row) for row in content.rows]
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    named = f' class="{style}"' if style else ""
    is_long = len(content.rows) > MAX_OPEN_ROWS
    return scrolling(f"<table{named}>{body}</table>", f"{label}, table", is_long=is_long)


def scrolling(content: str, label: str, *, is_long: bool = False) -> str:
    """Return a box that scrolls horizontally, and also vertically if its content is long."""
    style = "scroll long" if is_long else "scroll"
    return f'<div class="{style}" tabindex="0" role="region" aria-label="{escape(label)}">{content}</div>'


def _row(content: TextTable, row: Sequence[str]) -> str:
    shown = [
        broken(cell) if column in content.text else _number(cell)
        for column, cell in zip(content.columns, row, strict=True)
    ]
    cells = _cells("td", content, shown)
    mark = row[0] if content.columns[0] == "mark" else ""
    if not mark:
        return f"<tr>{cells}</tr>"
    style = "misses" if mark == MISSES else "mark"
    return f'<tr class="{style}">{cells}</tr>'


def _number(text: str) -> str:
    """Return a number; its interval wraps to the next line if the cell is too narrow."""
    score, bracket, bounds = text.partition(" [")
    if not bracket:
        return escape(text)
    return f'{escape(score)} <span class="interval">[{escape(bounds)}</span>'


def _cells(tag: str, content: TextTable, cells: Sequence[str]) -> str:
    """Return ``cells``, which are HTML, as the cells of one row."""
    scope = ' scope="col"' if tag == "th" else ""
    shown = []
    for column, cell in zip(content.columns, cells, strict=True):
        style = "t" if column in content.text else "n"
        shown.append(f'<{tag}{scope} class="{style}">{cell}</{tag}>')
    return "".join(shown)


def broken(text: str) -> str:
    """Escape a list of terms so that lines break between them, and not inside ``1e-05``."""
    *terms, last = text.split(", ")
    if not terms:
        return escape(last)
    pieces = [*(f"{term}," for term in terms), last]
    return " ".join(f"<span>{escape(piece)}</span>" for piece in pieces)
