"""How large the report's page of a big sweep is, and how long it takes to open in a real Chromium.

A made run (:mod:`benchmarks.made_run`): 1,000 trials of ten rungs, four of ten held after their first one. ``ratio`` is 3 s
over the seconds from the address to a page that answers, the best of several openings.
"""

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.made_run import MadeRun
from raysweep.errors import InputError
from raysweep.report.write import write

NUM_RUNGS = 10
HELD_SHARE = 0.4  # of trials, after their first rung
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NUM_OPENINGS = 3


def main() -> None:
    arguments = measure.parser("benchmarks.page", __doc__).parse_args()
    num_trials = 300 if arguments.quick else 1000
    found = measure.machine()
    with measure.workplace() as place:
        MadeRun(place, num_trials, NUM_RUNGS, HELD_SHARE).make()
        page = write(place).folder / "report.html"
        openings = [_open(page) for _ in range(NUM_OPENINGS)]
        megabytes = page.stat().st_size / 1e6
    ready = min(opening.seconds for opening in openings)
    figures: dict[str, Any] = {
        "trials": num_trials,
        "megabytes": megabytes,
        "open_seconds": [opening.seconds for opening in openings],
        "open_cpu_seconds": [opening.cpu_seconds for opening in openings],
        "ratio": 3.0 / ready,
    }
    print(f"{num_trials:,} trials: a page of {megabytes:.2f} MB")
    for opening in openings:
        print(f"opened in {opening.seconds:.2f} s, {opening.cpu_seconds:.2f} s of a processor")
    print(f"\nratio: {3.0 / ready:.2f} (3 s over the best opening)")
    measure.finish("page", figures, found, arguments.json)


@dataclass(frozen=True)
class Opening:
    """``seconds`` from the address to a page whose script has run and whose front is drawn.

    ``cpu_seconds`` are those that the page's process took for it, which other work on the machine does not lengthen.
    """

    seconds: float
    cpu_seconds: float


def _open(page: Path) -> Opening:
    with _browser() as browser:
        shown = browser.new_page(viewport={"width": 1280, "height": 900})
        meter = shown.context.new_cdp_session(shown)
        meter.send("Performance.enable")
        begun = time.perf_counter()
        shown.goto(page.resolve().as_uri())
        shown.wait_for_selector("html[data-ready]", state="attached")
        shown.wait_for_selector("#front-canvas canvas", state="attached")
        seconds = time.perf_counter() - begun
        metrics = {each["name"]: each["value"] for each in meter.send("Performance.getMetrics")["metrics"]}
        return Opening(seconds, metrics["ProcessTime"])


@contextlib.contextmanager
def _browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if path is None:
        raise InputError(f"there is no browser on the path: {', '.join(BROWSERS)}")
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path)
        yield browser
        browser.close()


if __name__ == "__main__":
    main()
