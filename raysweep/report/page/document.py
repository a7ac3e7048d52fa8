"""The page as one HTML document that embeds its policy, styles, data and scripts and fetches nothing."""

import base64
import hashlib
import json
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePath
from typing import Any

from raysweep.output import escape_html
from raysweep.report.page.data import page_data
from raysweep.report.page.markup import join
from raysweep.report.page.sections import Material, header, sections

SCRIPTS = (
    "elements",
    "run",
    "selection",
    "theme",
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
"""The scripts in the order of concatenation: each uses only those before it."""

LIBRARY = "echarts.min.js"  # Apache ECharts, unmodified from its npm package

# In addition to JSON's own escapes: `<` could end the element, and a lenient parser could take the others for markup.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}


def render(material: Material) -> bytes:
    """Return the page as file content. All texts of the run are escaped."""
    summary = material.summary
    assets = Assets.read()
    title = escape_html(f"raysweep: {summary.results.info.name}")
    folder = summary.results.folder
    body = _without_parents(folder, join(sections(material)))
    data = _without_parents(folder, embedded_json(page_data(summary, material.readings)))
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{assets.policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{title}</title>\n<style>{assets.style}</style>\n</head>\n<body>",
        f'<header class="top">\n{header(summary)}\n<div class="scripted" id="top-controls" hidden></div>\n</header>',
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
    def read(cls) -> "Assets":
        folder = asset_folder()
        scripts = [(folder / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
        library = (folder / "vendor" / LIBRARY).read_text(encoding="utf-8")
        style = (folder / "page.css").read_text(encoding="utf-8")
        return cls(style=style, library=library, script="".join(scripts))

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
