"""The page as one HTML document that embeds its policy, styles, data and scripts and fetches nothing."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePath
from typing import Any

from raysweep.output import escape_html
from raysweep.report.page.comparison import comparison_data, comparison_header, comparison_sections
from raysweep.report.page.data import page_data
from raysweep.report.page.markup import join
from raysweep.report.page.sections import Material, header, sections
from raysweep.report.side_by_side import SideBySide

REPORT_SCRIPTS = (
    "elements",
    "run",
    "selection",
    "theme",
    "frame",
    "chart",
    "point_card",
    "pinned",
    "keys",
    "front",
    "curves",
    "parallel",
    "slices",
    "trials",
    "readings",
    "live",
    "start",
)
"""The scripts of a run's page in the order of concatenation: each uses only those before it."""

COMPARISON_SCRIPTS = ("elements", "theme", "frame", "chart", "comparison")
"""The scripts of a comparison's page, in the same order."""

LIBRARY = "echarts.min.js"  # Apache ECharts, unmodified from its npm package

# In addition to JSON's own escapes: `<` could end the element, and a lenient parser could take the others for markup.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}


def render(material: Material) -> bytes:
    """Return the page of a run as file content. All texts of the run are escaped."""
    summary = material.summary
    folder = summary.results.folder
    title = f"raysweep: {summary.results.info.name}"
    body = _without_parents(folder, join(sections(material)))
    data = _without_parents(folder, embedded_json(page_data(summary, material.readings)))
    return document(title, header(summary), body, data, Assets.read(REPORT_SCRIPTS))


def render_comparison(comparison: SideBySide, png: bytes) -> bytes:
    """Return the page of a comparison as file content; ``png`` is the figure for readers without scripts."""
    title = f"raysweep: {', '.join(side.label for side in comparison.sides)}"
    body = join(comparison_sections(comparison, png))
    data = embedded_json(comparison_data(comparison))
    return document(
        title, comparison_header(comparison), body, data, Assets.read(COMPARISON_SCRIPTS)
    )


def document(title: str, top: str, body: str, data: str, assets: "Assets") -> bytes:
    """Return an HTML document; ``title`` is text, ``top`` and ``body`` are HTML, and ``data`` is embedded JSON."""
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{assets.policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape_html(title)}</title>\n<style>{assets.style}</style>\n</head>\n<body>",
        f'<header class="top">\n{top}\n<div class="scripted" id="top-controls" hidden></div>\n</header>',
        '<nav class="scripted" id="contents" aria-label="Contents" hidden></nav>',
        f"<main>\n{body}\n</main>",
        '<div class="scripted" id="selection-bar" role="status" hidden></div>',
        f'<script type="application/json" id="data">{data}</script>',
        f"<script>{assets.library}</script>\n<script>{assets.script}</script>",
        "</body>\n</html>\n",
    ]
    return "\n".join(parts).encode()


def _without_parents(folder: str, text: str) -> str:
    """Replace a local run's ``folder`` with its last two parts, as in ``raysweep-runs/NAME``: pages are shared."""
    path = PurePath(folder)
    if not path.is_absolute():
        return text
    relative = PurePath(*path.parts[-2:])
    return text.replace(escape_html(folder), escape_html(str(relative)))


def embedded_json(value: Any) -> str:
    """Return ``value`` as ASCII JSON without any ``<``, to be embedded in a script element.

    Raises:
        ValueError: If a number is not finite.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def asset_folder() -> Traversable:
    """Return the folder of the page's styles, scripts and chart library."""
    return resources.files("raysweep.report.page") / "assets"


@dataclass(frozen=True)
class Assets:
    """The embedded files: ``style`` as CSS, ``library`` and ``script`` as JavaScript."""

    style: str
    library: str
    script: str

    @classmethod
    def read(cls, scripts: Sequence[str]) -> "Assets":
        """Read the embedded files, with the named scripts in this order."""
        folder = asset_folder()
        sources = [(folder / f"{name}.js").read_text(encoding="utf-8") for name in scripts]
        library = (folder / "vendor" / LIBRARY).read_text(encoding="utf-8")
        style = (folder / "page.css").read_text(encoding="utf-8")
        return cls(style=style, library=library, script="".join(sources))

    @property
    def policy(self) -> str:
        """The content security policy: nothing is fetched, and only these scripts and this style are allowed."""
        rules = {
            "default-src": "'none'",
            "script-src": f"{_digest(self.library)} {_digest(self.script)}",
            "style-src": _digest(self.style),
            "img-src": "data:",
            "base-uri": "'none'",
            "form-action": "'none'",
        }
        return "; ".join(f"{name} {value}" for name, value in rules.items())


def _digest(content: str) -> str:
    """Return the hash source by which a policy allows inline content."""
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"
