"""A real headless Chromium whose pages record errors and network requests."""

import contextlib
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

VENDOR = ROOT / "tests" / "support" / "vendor"

# no waiting for scrolling
DESKTOP = {
    "viewport": {"width": 1280, "height": 900},
    "reduced_motion": "reduce",
}
PHONE = {
    "viewport": {"width": 390, "height": 844},
    "has_touch": True,
    "is_mobile": True,
    "device_scale_factor": 2,
}


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Return this machine's browser; skip the test if it has none."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright, of the extra test"
    )
    found = [path for name in NAMES if (path := shutil.which(name))]
    if not found:
        pytest.skip("needs Chromium, as of Debian's package chromium")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=found[0])
        yield browser
        browser.close()


@dataclass
class Window:
    """A page with its console messages, its errors, and the addresses requested since the last navigation."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def show(self, address: str) -> Any:
        """Open the address and return the page when it is ready."""
        self.complaints.clear()
        self.requests.clear()
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready]", state="attached")
        return self.page

    def check_quiet(self) -> None:
        """Check that there are no errors and that no request left the file."""
        assert self.complaints == []
        assert [request for request in self.requests if not request.startswith("data:")][1:] == []


@contextlib.contextmanager
def window(browser: Any, **settings: Any) -> Iterator[Window]:
    """Yield an empty page in a new browser context with these settings."""
    context = browser.new_context(**{**DESKTOP, **settings})
    page = context.new_page()
    page.set_default_timeout(20_000)
    found = Window(page)
    page.on("console", lambda message: found.complaints.append(message.text))
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    page.on("request", lambda request: found.requests.append(request.url))
    yield found
    context.close()


def axe_violations(page: Any, *rules: str) -> list[str]:
    """Return axe-core's violations on a page, by all of its rules or the given ones; color contrast is one of them."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_axe() + "\n;0")  # the debugger's protocol bypasses the page's policy
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    result = page.evaluate("(options) => axe.run(document, options)", options)
    return [
        f"{each['id']}: {node['html'][:200]}"
        for each in result["violations"]
        for node in each["nodes"]
    ]


def _axe() -> str:
    source = (VENDOR / "axe.min.js").read_text(encoding="utf-8")
    recorded = (VENDOR / "checksums.txt").read_text(encoding="utf-8")
    assert hashlib.sha256(source.encode()).hexdigest() in recorded, (
        "axe.min.js is not the one that is recorded"
    )
    return source


def address_of(page: Path) -> str:
    return page.resolve().as_uri()
