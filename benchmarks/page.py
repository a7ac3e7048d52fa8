"""How large the report's page of a big sweep is, how long it takes to write, and to open in a real Chromium.

A made run: 1,000 trials of up to ten rungs with eight operating points each, four of ten held after their first rung, 872
queries, and 48 queries with what the reference and the front's members retrieve. ``ratio`` is 3 s over the seconds from the
address to a page that answers, the best of several openings.
"""

import contextlib
import resource
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from raysweep.errors import InputError
from raysweep.report.write import write
from raysweep.results.events import (
    PointsScored,
    RungFinished,
    SessionFinished,
    SessionStarted,
    TrialEnded,
    TrialHeld,
    TrialStarted,
)
from raysweep.results.ledger import Ledger
from raysweep.results.query_scores import name_of_point
from raysweep.results.reader import load
from raysweep.results.readings import FILE, REFERENCE, Readings, Retrieved
from raysweep.results.types import Cost, Point, RunInfo, ScoredSplit
from raysweep.results.views import front_members
from raysweep.storage.folder import LocalFolder
from raysweep.trial_status import TrialStatus

NUM_RUNGS = 10
NUM_QUERIES = 872
NUM_NEIGHBOURS = 16
NUM_SHOWN = 48
HELD_SHARE = 0.4  # of trials, after their first rung
KINDS = (
    ("plain", None),
    *(("concat", value) for value in (0.1, 0.3, 1.0)),
    *(("class_concat", value) for value in (0.1, 0.3, 1.0, 3.0)),
)
LOSSES = ("triplet", "contrastive", "online_contrastive", "multiple_negatives", "softmax")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NUM_OPENINGS = 3
REFERENCE_SCORES = (0.63, 0.466)


def main() -> None:
    arguments = measure.parser("benchmarks.page", __doc__).parse_args()
    num_trials = 300 if arguments.quick else 1000
    found = measure.machine()
    with measure.workplace() as place:
        _write_run(place, num_trials)
        begun = time.perf_counter()
        page = write(place).folder / "report.html"
        write_seconds = time.perf_counter() - begun
        openings = [_open(page) for _ in range(NUM_OPENINGS)]
        megabytes = page.stat().st_size / 1e6
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    ready = min(opening.seconds for opening in openings)
    figures: dict[str, Any] = {
        "trials": num_trials,
        "megabytes": megabytes,
        "write_seconds": write_seconds,
        "peak_gib": peak_gib,
        "open_seconds": [opening.seconds for opening in openings],
        "open_cpu_seconds": [opening.cpu_seconds for opening in openings],
        "ratio": 3.0 / ready,
    }
    print(
        f"{num_trials:,} trials: written in {write_seconds:.1f} s with at most {peak_gib:.2f} GiB, {megabytes:.2f} MB"
    )
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


def _write_run(folder: Path, num_trials: int) -> None:
    rng = np.random.default_rng(0)
    ledger = Ledger(folder)
    ledger.append(SessionStarted(info=_info(num_trials)))
    for split in ("dev", "test"):
        ledger.append(PointsScored(points=_limits(split)))
    for number in range(num_trials):
        _append_trial(ledger, rng, number)
    ledger.append(SessionFinished(status="completed", reason="", seconds=1e5))
    ledger.close()
    _write_readings(folder, rng)


def _info(num_trials: int) -> RunInfo:
    return RunInfo(
        name="made",
        version="0",
        dataset="made.csv",
        model="made",
        reference="made",
        k=NUM_NEIGHBOURS,
        rank_weights="linear",
        polarity_weight=0.5,
        similarity="similarity",
        num_trials=num_trials,
        num_queries={"dev": NUM_QUERIES, "test": NUM_QUERIES},
        num_pool={"dev": 4360, "test": 4360},
        label_names=("negative", "positive"),
        seed=0,
    )


def _limits(split: ScoredSplit) -> tuple[Point, ...]:
    """The reference, and an oracle that comes to P 1 at a small loss of S."""
    polarity, similarity = REFERENCE_SCORES
    oracle = [
        _point(split, ("oracle", bonus), 1 - (1 - polarity) * np.exp(-8 * bonus), similarity - 0.02 * bonus)
        for bonus in np.linspace(0, 1, 20).tolist()
    ]
    return _point(split, ("reference", None), polarity, similarity), *oracle


def _point(
    split: ScoredSplit,
    key: tuple[str, float | None],
    polarity: float,
    similarity: float,
    at: tuple[int, int] | None = None,
) -> Point:
    trial, step = at or (None, None)
    return Point(
        trial=trial,
        step=step,
        kind=key[0],
        value=key[1],
        split=split,
        width=384,
        polarity=float(polarity),
        polarity_std=0.25,
        similarity=float(similarity),
        similarity_std=0.08,
        retention=float(similarity) / REFERENCE_SCORES[1],
        accuracy=float(polarity),
    )


def _append_trial(ledger: Ledger, rng: np.random.Generator, number: int) -> None:
    config = {
        "loss": LOSSES[number % len(LOSSES)],
        "learning_rate": float(10 ** rng.uniform(-6, -4)),
        "margin": float(rng.uniform(0.05, 1)),
        "freezing": f"emb+B0-{rng.integers(0, 6)}",
        "batch_size": int(rng.choice([32, 64, 128])),
        "weight_decay": float(rng.uniform(0, 0.1)),
    }
    ledger.append(TrialStarted(trial=number, config=config, num_rungs=NUM_RUNGS))
    is_held = rng.random() < HELD_SHARE
    num_rungs = 1 if is_held else NUM_RUNGS
    for step in range(1, num_rungs + 1):
        gain = 1 - np.exp(-rng.uniform(0.2, 0.6) * step)
        scores = [(0.63 + 0.27 * gain * rng.random(), 0.466 - 0.2 * gain * rng.random()) for _ in KINDS]
        points = tuple(_point("dev", key, *score, (number, step)) for key, score in zip(KINDS, scores, strict=True))
        cost = Cost(seconds=10.0 * step, cpu_seconds=20.0 * step)
        finished = RungFinished(
            trial=number,
            step=step,
            examples_seen=2048 * step,
            seconds=10.0 * step,
            loss=0.1,
            stop=None,
            points=points,
            cost=cost,
        )
        ledger.append(finished)
    cost = Cost(seconds=10.0 * num_rungs, cpu_seconds=20.0 * num_rungs)
    if is_held:
        ledger.append(TrialHeld(trial=number, reason="the front promises to grow more elsewhere", cost=cost))
    else:
        ledger.append(TrialEnded(trial=number, status=TrialStatus.COMPLETED, reason="all rungs are done", cost=cost))


def _write_readings(folder: Path, rng: np.random.Generator) -> None:
    """Sentences of twenty words each, by chance."""
    results = load(LocalFolder(folder))
    names = [REFERENCE, *(name_of_point(point) for point in front_members(results.points))]
    num_pool = results.info.num_pool["dev"]
    retrieved = {name: _by_chance(rng, num_pool) for name in names}
    shown = tuple(range(NUM_SHOWN))
    query_ids = num_pool + np.arange(NUM_QUERIES)
    texts = {
        sentence: " ".join(["sentence", str(sentence), *["words"] * 18]) for sentence in range(num_pool + NUM_SHOWN)
    }
    labels = {sentence: sentence % 2 for sentence in range(num_pool)}
    readings = Readings("dev", query_ids, query_ids % 2, retrieved, labels, texts, shown)
    LocalFolder(folder).put(FILE, readings.content())


def _by_chance(rng: np.random.Generator, num_pool: int) -> Retrieved:
    ids = rng.integers(0, num_pool, (NUM_QUERIES, NUM_NEIGHBOURS))
    cosines = -np.sort(-rng.uniform(0, 1, ids.shape).astype(np.float32), axis=1)
    return Retrieved(ids, cosines)


if __name__ == "__main__":
    main()
