"""Self-contained HTML pages for runs and comparisons."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePath
from typing import Any

from raysweep.metrics.scores import spec_of
from raysweep.output import escape_controls, escape_html
from raysweep.report import side_by_side_texts
from raysweep.report.page.data import page_data
from raysweep.report.page.markup import details, figure, join, note_list, paragraph, section, table
from raysweep.report.page.points import Json, compared_points, scaled
from raysweep.report.page.sections import Material, header, sections
from raysweep.report.side_by_side import SideBySide
from raysweep.report.style import DARK_PALETTE, PALETTE
from raysweep.report.texts import front_title, scores_text

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
"""The scripts of a run's page, in dependency order."""

COMPARISON_SCRIPTS = ("elements", "theme", "frame", "chart", "comparison")
"""The scripts of a comparison's page, in dependency order."""

LIBRARY = "echarts.min.js"  # Apache ECharts, unmodified from its npm package

# `<` could end the script element, and a lenient parser could mistake the others for markup.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}


def render(material: Material) -> bytes:
    """Return the HTML page of a run."""
    summary = material.summary
    folder = summary.results.folder
    title = f"raysweep: {summary.results.info.name}"
    body = _without_parents(folder, join(sections(material)))
    data = _without_parents(folder, embedded_json(page_data(summary, material.readings)))
    return document(title, header(summary), body, data, Assets.read(REPORT_SCRIPTS))


def render_comparison(comparison: SideBySide, png: bytes) -> bytes:
    """Return the HTML page of a comparison; ``png`` is the figure shown without JavaScript."""
    info = comparison.sides[0].summary.results.info
    definitions = paragraph(scores_text(info))
    chart = '<div class="scripted" id="fronts-chart" hidden></div>'
    image = f"<noscript>{figure(png, front_title(comparison.goals))}</noscript>"
    points = table(side_by_side_texts.point_table(comparison), "Points on the fronts", "fit")
    all_points = details("All points on the fronts", points)
    parts = [
        note_list(side_by_side_texts.notes(comparison)),
        section("fronts", "Fronts", definitions, chart, image, all_points),
    ]
    for heading, content in side_by_side_texts.sections(comparison):
        name = heading.lower().replace(" ", "-")
        parts.append(section(name, heading, table(content, heading, "fit")))
    data = embedded_json(comparison_data(comparison))
    title = f"raysweep: {', '.join(side.label for side in comparison.sides)}"
    names = f"<h1>{escape_html(_names(comparison))}</h1>"
    subtitle = f"{len(comparison.sides)} runs on {info.dataset}; raysweep {info.version}"
    top = join([names, paragraph(subtitle, "soft")])
    return document(title, top, join(parts), data, Assets.read(COMPARISON_SCRIPTS))


def comparison_data(comparison: SideBySide) -> Json:
    """Return the page script's data: fronts and limits by split, with scores x100."""
    goals = comparison.goals
    limits = {}
    for split in comparison.splits:
        # the oracle front and the reference are the same for all runs
        by_run = [compared_points(side.summary, split) for side in comparison.sides]
        limits[split] = {
            name: next((each[name] for each in by_run if each[name]), None)
            for name in ("oracle", "reference")
        }
    sides = []
    for side in comparison.sides:
        members = side.front.members
        knee = next((index for index, member in enumerate(members) if member.is_knee), None)
        fronts = {}
        for split in comparison.splits:
            fronts[split] = [
                {"name": point.name, "value": [scaled(point[goals.s]), scaled(point[goals.p])]}
                for point in side.front.on(split)
            ]
        sides.append({"label": escape_controls(side.label), "knee": knee, "fronts": fronts})
    return {
        "run": {"name": _names(comparison)},
        "title": front_title(goals),
        "labels": {"p": spec_of(goals.p).label, "s": spec_of(goals.s).label},
        "palette": {"light": PALETTE, "dark": DARK_PALETTE},
        "splits": list(comparison.splits),
        "sides": sides,
        "limits": limits,
    }


def _names(comparison: SideBySide) -> str:
    return ", ".join(escape_controls(side.label) for side in comparison.sides)


def document(title: str, top: str, body: str, data: str, assets: "Assets") -> bytes:
    """Return an HTML document. ``title`` is plain text; ``top``, ``body`` and ``data`` are already escaped."""
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
    """Shorten a local ``folder`` in ``text`` to its last two parts, because pages may be shared."""
    path = PurePath(folder)
    if not path.is_absolute():
        return text
    relative = PurePath(*path.parts[-2:])
    return text.replace(escape_html(folder), escape_html(str(relative)))


def embedded_json(value: Any) -> str:
    """Return ``value`` as ASCII JSON without ``<``, for embedding in a script element.

    Raises:
        ValueError: If a number is not finite.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def asset_folder() -> Traversable:
    """Return the folder with the page's styles, scripts and chart library."""
    return resources.files("raysweep.report.page") / "assets"


@dataclass(frozen=True)
class Assets:
    """The CSS and JavaScript that a page embeds."""

    style: str
    library: str
    script: str

    @classmethod
    def read(cls, scripts: Sequence[str]) -> "Assets":
        """Read the assets and concatenate ``scripts``."""
        folder = asset_folder()
        sources = [(folder / f"{name}.js").read_text(encoding="utf-8") for name in scripts]
        library = (folder / "vendor" / LIBRARY).read_text(encoding="utf-8")
        style = (folder / "page.css").read_text(encoding="utf-8")
        return cls(style=style, library=library, script="".join(sources))

    @property
    def policy(self) -> str:
        """A content security policy that allows only the embedded style and scripts."""
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
    """Return the hash source that allows inline ``content`` in a content security policy."""
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"
