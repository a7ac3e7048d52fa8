"""Ledgers of invented sweeps for reports: trials with invented scores."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from raysweep.metrics.scores import Pair
from raysweep.results.events import (
    PointsScored,
    RungFinished,
    SessionFinished,
    SessionStarted,
    TrialEnded,
    TrialInterrupted,
    TrialPaused,
    TrialStarted,
)
from raysweep.results.ledger import Ledger
from raysweep.results.types import Cost, Point, Rung, RunInfo, ScoredSplit, TrialStatus
from support.points import make_scores, with_means

INFO = RunInfo(
    name="night-run",
    version="0.1.0",
    dataset="reviews.csv",
    model="all-MiniLM-L6-v2",
    reference="all-MiniLM-L6-v2",
    k=16,
    rank_weights="uniform",
    polarity_weight=0.5,
    similarity="similarity",
    num_trials=8,
    num_queries={"dev": 900, "test": 400},
    num_pool={"dev": 4500, "test": 2000},
    label_names=("negative", "positive"),
    seed=7,
)
REFERENCE: Mapping[ScoredSplit, Pair] = {"dev": (0.63, 0.47), "test": (0.62, 0.46)}
LOSSES = ("triplet", "contrastive", "online_contrastive", "multiple_negatives")
BONUSES = (0.0, 0.1, 0.2, 0.4, 1.0, 2.0)  # of the oracle
NUM_RUNGS = 5


class StoredTrial(NamedTuple):
    config: Mapping[str, Any]
    status: str
    reason: str
    scores: Sequence[Pair]  # (P, S) of each rung


@dataclass(frozen=True)
class StoredSweep:
    """The content of a ledger besides the trials."""

    info: RunInfo = INFO
    reference: bool = True
    oracle: bool = True
    baselines: Sequence[Point] = field(default=())  # see :func:`baseline`
    # dev points that were also scored on test, slightly worse
    test_of: Sequence[Point] = field(default=())
    # status and reason; None if the sweep was killed
    finish: tuple[str, str] | None = (
        "completed",
        "",
    )
    limit: Mapping[str, float] = field(default_factory=dict)  # the budget that ended the sweep
    is_final: bool = False  # whether it failed for good
    gpus: float = 0.5  # of each trial
    price: float = 3.0  # of an hour
    settings: bytes = b"name: night-run\n"  # content of config.yaml


def start_session(
    folder: Path, info: RunInfo = INFO, settings: bytes = b"name: night-run\n"
) -> SessionStarted:
    """Write ``config.yaml`` and return the first event of a session with these settings."""
    (folder / "config.yaml").write_bytes(settings)
    return SessionStarted(info=info, config_digest=hashlib.sha256(settings).hexdigest())


def write_ledger(
    folder: Path, trials: Iterable[StoredTrial], sweep: StoredSweep | None = None
) -> None:
    sweep = sweep or StoredSweep()
    ledger = Ledger(folder)
    ledger.append(start_session(folder, sweep.info, sweep.settings))
    for split in REFERENCE if sweep.test_of else ("dev",):
        baselines = [each for each in sweep.baselines if each.split == split]
        ledger.append(PointsScored(points=(*_limits(sweep, split), *baselines)))
    for number, trial in enumerate(trials):
        _append_trial(ledger, number, trial, sweep)
    tested = [
        dataclasses.replace(
            with_means(
                each, polarity=each["polarity"] - 0.02, similarity=each["similarity"] - 0.01
            ),
            split="test",
        )
        for each in sweep.test_of
    ]
    if tested:
        ledger.append(PointsScored(points=tuple(tested)))
    if sweep.finish:
        status, reason = sweep.finish
        finished = SessionFinished(
            status=status,
            reason=reason,
            seconds=321.0,
            is_final=sweep.is_final or None,
            limit=dict(sweep.limit) or None,
        )
        ledger.append(finished)
    ledger.close()


def point(trial: int, step: int, polarity: float, similarity: float) -> Point:
    """Return the dev point of a trial's encoder itself."""
    return _point("dev", polarity, similarity, trial=trial, step=step, kind="plain", width=384)


def baseline(
    split: ScoredSplit, kind: str, polarity: float, similarity: float, **others: Any
) -> Point:
    """Return a point without a trial; ``others`` are its value, label and width."""
    return _point(split, polarity, similarity, kind=kind, **{"width": 386, **others})


def _limits(sweep: StoredSweep, split: ScoredSplit) -> tuple[Point, ...]:
    polarity, similarity = REFERENCE[split]
    points = (
        [_point(split, polarity, similarity, kind="reference", width=384)]
        if sweep.reference
        else []
    )
    for bonus in BONUSES if sweep.oracle else ():
        share = 1 - math.exp(-8 * bonus)
        best = polarity + (1 - polarity) * share, similarity - 0.02 * share**2
        points.append(_point(split, *best, kind="oracle", value=bonus, width=None))
    return tuple(points)


def _point(split: ScoredSplit, polarity: float, similarity: float, **others: Any) -> Point:
    given = {"trial": None, "step": None, "value": None, **others}
    return Point(
        **given,
        split=split,
        scores=make_scores(
            polarity, similarity, retention=similarity / REFERENCE[split][1], spreads=(0.25, 0.08)
        ),
    )


def _append_trial(ledger: Ledger, number: int, trial: StoredTrial, sweep: StoredSweep) -> None:
    ledger.append(TrialStarted(trial=number, config=trial.config, num_rungs=NUM_RUNGS))
    for step, (polarity, similarity) in enumerate(trial.scores, 1):
        rung = dataclasses.asdict(Rung(number, step, 2048 * step, 10.0 * step, 0.1))
        points = (point(number, step, polarity, similarity),)
        ledger.append(
            RungFinished(**rung, stop=None, points=points, cost=_cost(number, step, sweep))
        )
    cost = _cost(number, len(trial.scores) + 0.1, sweep)
    if trial.status == "paused":
        ledger.append(TrialPaused(trial=number, reason=trial.reason, cost=cost))
    elif trial.status == "interrupted":
        ledger.append(TrialInterrupted(trial=number, reason=trial.reason, cost=cost))
    elif trial.status != "running":
        ledger.append(
            TrialEnded(
                trial=number, status=TrialStatus(trial.status), reason=trial.reason, cost=cost
            )
        )


def _cost(number: int, num_rungs: float, sweep: StoredSweep) -> Cost:
    """Return the cost of a trial on 2 CPUs whose rungs take 10 to 16 seconds."""
    seconds = (10 + number % 7) * num_rungs
    return Cost(
        seconds=seconds,
        cpu_seconds=2 * seconds,
        gpu_seconds=sweep.gpus * seconds,
        money=sweep.price * seconds / 3600,
    )


def random_trials(num_trials: int, seed: int = 0) -> list[StoredTrial]:
    """Return trials that completed, were stopped or failed."""
    rng = np.random.default_rng(seed)
    trials = []
    for number in range(num_trials):
        loss = LOSSES[number % len(LOSSES)]
        config = {
            "loss": loss,
            "learning_rate": float(10 ** rng.uniform(-6, -4)),
            "batch_size": 64,
            "freezing": "none",
        }
        if loss == "triplet":
            config["margin"] = float(rng.uniform(0.01, 1))
        if number % 11 == 5:
            trials.append(StoredTrial(config, "failed", "the loss was not finite at step 12", []))
            continue
        num_rungs = int(rng.integers(1, NUM_RUNGS + 1))
        scores = _random_scores(rng, num_rungs)
        if num_rungs == NUM_RUNGS:
            trials.append(StoredTrial(config, "completed", "", scores))
        else:
            trials.append(
                StoredTrial(config, "stopped", f"below the top half at step {num_rungs}", scores)
            )
    return trials


def _random_scores(rng: np.random.Generator, num_rungs: int) -> list[Pair]:
    """Return rising polarity and falling similarity, with smaller steps at each rung."""
    strength = rng.uniform(0.2, 1)
    gain = 1 - np.exp(-strength * np.arange(1, num_rungs + 1))
    polarity = 0.63 + 0.27 * gain + rng.normal(0, 0.006, num_rungs)
    similarity = 0.47 - 0.25 * rng.uniform(0.3, 1.0) * gain**2 + rng.normal(0, 0.004, num_rungs)
    return [(float(p), float(s)) for p, s in zip(polarity, similarity, strict=True)]


def trials_of_every_status(num_trials: int = 40) -> list[StoredTrial]:
    """Return random trials: some are paused, some were cut off, some are running."""
    changed = {1: "paused", 2: "interrupted", 3: "running"}
    trials = []
    for number, trial in enumerate(random_trials(num_trials)):
        status = changed.get(number % 5, "stopped") if trial.status == "stopped" else trial.status
        trials.append(trial._replace(status=status))
    return trials


MARKUP = '<script>alert("x")</script>|&amp;'


def write_run_with_markup(folder: Path) -> None:
    """Write a run in which every text chosen by the user is MARKUP."""
    names: dict[str, Any] = dict.fromkeys(
        ("name", "dataset", "model", "reference", "rank_weights", "version"), MARKUP
    )
    info = dataclasses.replace(INFO, **names, label_names=(MARKUP, "b"))
    trials = [
        StoredTrial(
            {"loss": MARKUP, "freezing": MARKUP, MARKUP: 1}, "failed", MARKUP, [(0.7, 0.4)]
        ),
        StoredTrial({"loss": "b"}, "completed", "", []),
    ]
    write_ledger(folder, trials, StoredSweep(info=info, finish=("interrupted", MARKUP)))


def dev_front(trials: Iterable[StoredTrial]) -> list[Point]:
    """Return the non-dominated points of all rungs by falling similarity, found by pairwise comparison."""
    points = [
        point(number, step, *scores)
        for number, trial in enumerate(trials)
        for step, scores in enumerate(trial.scores, 1)
    ]
    front = [each for each in points if not any(_dominates(other, each) for other in points)]
    return sorted(front, key=lambda each: -each["similarity"])


def _dominates(one: Point, other: Point) -> bool:
    at_least = one["polarity"] >= other["polarity"] and one["similarity"] >= other["similarity"]
    return at_least and (one["polarity"], one["similarity"]) != (
        other["polarity"],
        other["similarity"],
    )


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the events of a ledger as JSON objects, without their numbers."""
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "number"} for line in lines]


def write_lines(folder: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write events as numbered JSON objects, valid or not."""
    numbered = [
        json.dumps({**line, "number": number}) + "\n" for number, line in enumerate(lines, 1)
    ]
    (folder / "ledger.jsonl").write_text("".join(numbered))


def change_settings(folder: Path, settings: str) -> None:
    """Replace ``config.yaml`` and its digest in the ledger. Links to files of another run become files."""
    lines = read_lines(folder)
    digest = hashlib.sha256(settings.encode()).hexdigest()
    for name in ("config.yaml", "ledger.jsonl"):
        (folder / name).unlink(missing_ok=True)
    (folder / "config.yaml").write_text(settings)
    write_lines(
        folder,
        [{**line, "config_digest": digest} if line["event"] == "run" else line for line in lines],
    )
