"""HTML building blocks such as paragraphs, sections, figures and tables."""

import base64
import io
from collections.abc import Iterable, Sequence

from raysweep.output import TextTable, escape_html
from raysweep.report.tables import MISSES

MAX_OPEN_ROWS = 20  # longer tables scroll below a fixed header

MAX_WIDTH_PIXELS = 1400  # wider figures are scaled down

NUM_COLORS = 128  # size of a figure's palette


def join(parts: Iterable[str]) -> str:
    """Join non-empty parts with newlines."""
    return "\n".join(part for part in parts if part)


def paragraph(text: str, style: str = "") -> str:
    attribute = f' class="{style}"' if style else ""
    return f"<p{attribute}>{escape_html(text)}</p>"


def note_list(notes: Iterable[str]) -> str:
    """Return notes as an HTML list, or an empty string if there are none."""
    items = "".join(f"<li>{escape_html(note)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if items else ""


def section(name: str, title: str, *parts: str) -> str:
    """Return a section, or an empty string if all parts are empty."""
    content = join(parts)
    if not content:
        return ""
    return f'<section id="{name}" aria-labelledby="{name}-title">\n<h2 id="{name}-title">{title}</h2>\n{content}\n</section>'


def scripted_section(name: str, title: str, content: str) -> str:
    """Return a section that is hidden until the script fills it."""
    heading = f'<h2 id="{name}-title">{title}</h2>'
    return f'<section id="{name}" class="scripted" hidden aria-labelledby="{name}-title">\n{heading}\n{content}\n</section>'


def figure(png: bytes, title: str) -> str:
    """Return a figure with an embedded image."""
    data = base64.b64encode(_shrink(png)).decode("ascii")
    image = f'<img alt="{escape_html(title)}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}</figure>"


def _shrink(png: bytes) -> bytes:
    """Reduce a PNG to ``MAX_WIDTH_PIXELS`` and ``NUM_COLORS``, which cuts the file size by about 90%."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as original:
        picture = original.convert("RGB")
    if picture.width > MAX_WIDTH_PIXELS:
        height = round(picture.height * MAX_WIDTH_PIXELS / picture.width)
        size = (MAX_WIDTH_PIXELS, max(1, height))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    palette_picture = picture.quantize(NUM_COLORS, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    palette_picture.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def details(title: str, content: str, *, is_open: bool = False) -> str:
    """Wrap HTML ``content`` in a collapsible element."""
    attribute = " open" if is_open else ""
    return f"<details{attribute}><summary>{escape_html(title)}</summary>\n{content}\n</details>"


def table(content: TextTable, label: str, style: str = "") -> str:
    """Return a table in a scrollable box; ``label`` is for screen readers."""
    head = _cells("th", content, [escape_html(column) for column in content.columns])
    rows = [_row(content, row) for row in content.rows]
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    attribute = f' class="{style}"' if style else ""
    is_long = len(content.rows) > MAX_OPEN_ROWS
    return scroll_box(f"<table{attribute}>{body}</table>", f"{label}, table", is_long=is_long)


def scroll_box(content: str, label: str, *, is_long: bool = False) -> str:
    """Return a box that scrolls horizontally, and also vertically if its content is long."""
    style = "scroll long" if is_long else "scroll"
    return f'<div class="{style}" tabindex="0" role="region" aria-label="{escape_html(label)}">{content}</div>'


def _row(content: TextTable, row: Sequence[str]) -> str:
    cells = []
    for column, text in zip(content.columns, row, strict=True):
        score, bracket, bounds = text.partition(" [")
        if column in content.text:
            cell = wrap_terms(text)
        elif bracket:  # the interval wraps to the next line if the cell is too narrow
            interval = f'<span class="interval">[{escape_html(bounds)}</span>'
            cell = f"{escape_html(score)} {interval}"
        else:
            cell = escape_html(text)
        cells.append(cell)
    mark = row[0] if content.columns[0] == "mark" else ""
    style = "misses" if mark == MISSES else "mark"
    attribute = f' class="{style}"' if mark else ""
    return f"<tr{attribute}>{_cells('td', content, cells)}</tr>"


def _cells(tag: str, content: TextTable, cells: Sequence[str]) -> str:
    """Wrap HTML ``cells`` in ``tag`` elements."""
    scope = ' scope="col"' if tag == "th" else ""
    tagged = []
    for column, cell in zip(content.columns, cells, strict=True):
        style = "t" if column in content.text else "n"
        tagged.append(f'<{tag}{scope} class="{style}">{cell}</{tag}>')
    return "".join(tagged)


def wrap_terms(text: str) -> str:
    """Escape a comma-separated list and allow line breaks only between its terms."""
    *terms, last = text.split(", ")
    if not terms:
        return escape_html(last)
    pieces = [*(f"{term}," for term in terms), last]
    return " ".join(f"<span>{escape_html(piece)}</span>" for piece in pieces)
