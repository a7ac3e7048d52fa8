"""The page's styles, scripts and chart library, read from the package."""

import base64
import hashlib
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

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


def assets() -> Traversable:
    """Return the folder of the files."""
    return resources.files("raysweep.report.page") / "assets"


@dataclass(frozen=True)
class Assets:
    """The embedded files: ``style`` as CSS, ``library`` and ``script`` as JavaScript."""

    style: str
    library: str
    script: str

    @classmethod
    def read(cls) -> "Assets":
        folder = assets()
        parts = [(folder / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
        library = (folder / "vendor" / LIBRARY).read_text(encoding="utf-8")
        style = (folder / "page.css").read_text(encoding="utf-8")
        return cls(style=style, library=library, script="".join(parts))

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
