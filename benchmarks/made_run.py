"""Generate a run of many trials without training, for :mod:`benchmarks.report_size`.

The run has simulated scores (:mod:`benchmarks.simulated_scores`) of each rung's operating points, a ledger, and the other
files of a run: per-query scores of points near the front, the reference, the oracle and a probe; and the sentences
retrieved by the reference and the front's members, with the texts of some queries. A tenth of the configurations have two
runs.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibration import SETTINGS
from benchmarks.simulated_runs import invented_info
from benchmarks.simulated_scores import Encoders, Queries, limits, trial_scores
from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.oracle import DEFAULT_BONUSES
from raysweep.metrics.pareto import non_dominated
from raysweep.metrics.scores import GOALS
from raysweep.results.events import (
    PointsScored,
    RungFinished,
    SessionFinished,
    SessionStarted,
    TrialEnded,
    TrialStarted,
)
from raysweep.results.ledger import Ledger
from raysweep.results.query_scores import (
    PackedScores,
    baselines_file,
    kept_names,
    name_of_point,
    rung_file,
)
from raysweep.results.reader import load
from raysweep.results.readings import FILE, REFERENCE, Readings, Retrieved
from raysweep.results.scores import Score
from raysweep.results.types import Cost, Point, PointKey, RunInfo, ScoredSplit, TrialStatus
from raysweep.results.views import front_points
from raysweep.storage.folder import LocalFolder

SETTING = SETTINGS[0]
SPLITS: tuple[ScoredSplit, ...] = ("dev", "test")
NUM_POOL = 5 * SETTING.num_queries
KEYS: tuple[PointKey, ...] = (
    ("plain", None),
    ("concat", 0.3),
    ("class_concat", 0.3),
    ("class_concat", 1.0),
)
PROBE = (0.05, 0.1, 0.3, 1.0)
LOSSES = ("triplet", "contrastive", "online_contrastive", "multiple_negatives", "softmax")
NUM_SHOWN = 48  # queries with their texts


@dataclass(frozen=True)
class Scored:
    """Points and their scores (points, 2, queries)."""

    points: Sequence[Point]
    scores: Float64Array

    def store(self, run: LocalFolder, file: str) -> None:
        scores = dict(zip(GOALS, self.scores.transpose(1, 0, 2), strict=True))
        packed = PackedScores.pack([name_of_point(point) for point in self.points], scores)
        run.put(file, packed.content())


class MadeRun:
    """A run in a folder, with ``trials`` trials of ``rungs`` rungs."""

    def __init__(self, folder: Path, trials: int, rungs: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.run = LocalFolder(folder)
        self.trials, self.rungs = trials, rungs
        self.rng = np.random.default_rng(0)
        num_points = rungs * len(KEYS)
        true = trial_scores(SETTING, trials, num_points, self.rng)
        self.true = true.reshape(trials, num_points, 2)
        self.queries = {split: Queries.draw(SETTING, 2, self.rng) for split in SPLITS}
        self.reference_similarity: dict[ScoredSplit, float] = {}

    def make(self) -> int:
        """Write all files and return the number of trial points with per-query scores on dev."""
        with _without_waiting_for_the_disk():
            ledger = Ledger(self.run.path)
            settings = b"name: made\n"
            self.run.put("config.yaml", settings)
            digest = hashlib.sha256(settings).hexdigest()
            ledger.append(SessionStarted(info=_info(self.trials), config_digest=digest))
            for split in SPLITS:
                limit = self._limits(split)
                ledger.append(PointsScored(points=tuple(limit.points)))
                limit.store(self.run, baselines_file(split))
            kept = self._play(ledger)
            results = load(self.run)
            stored = self._store("dev", kept, {*kept_names(results)})
            front = front_points(results.points)
            tested = self._test(front)
            ledger.append(
                PointsScored(points=tuple(point for scored in tested for point in scored.points))
            )
            self._store("test", tested, None)
            self.run.put(FILE, _readings(front).content())
            ledger.append(SessionFinished(status="completed", reason="", seconds=3600.0))
            ledger.close()
        return stored

    def _limits(self, split: ScoredSplit) -> Scored:
        """Return the reference, the oracle and the probe."""
        made = limits(SETTING, 1)
        steps = np.linspace(0, len(made.logits) - 1, len(DEFAULT_BONUSES)).round().astype(np.int64)
        probe = Encoders.of_scores(
            SETTING,
            0.99 * trial_scores(SETTING, 1, len(PROBE), self.rng),
            np.ones(len(PROBE), np.int64),
            SETTING.shared,
        )
        encoders = made.chosen(np.concatenate([[0], steps])).joined(probe)
        scores = self.queries[split].scores(encoders, self.rng)
        self.reference_similarity[split] = float(scores[0, 1].mean())
        names = [("reference", None), *(("oracle", bonus) for bonus in DEFAULT_BONUSES)]
        names += [("probe", value) for value in PROBE]
        points = [
            self._point(split, scores[row], kind=kind, value=value, trial=None, step=None)
            for row, (kind, value) in enumerate(names)
        ]
        return Scored(points, scores)

    def _point(self, split: ScoredSplit, scores: Float64Array, **name: object) -> Point:
        polarity, similarity = scores.mean(axis=-1).tolist()
        deviations = scores.std(axis=-1).tolist()
        return Point(
            split=split,
            width=386,
            scores={
                "polarity": Score(polarity, deviations[0]),
                "similarity": Score(similarity, deviations[1]),
                "retention": Score(similarity / self.reference_similarity[split]),
            },
            **name,  # type: ignore[arg-type]
        )

    def _play(self, ledger: Ledger) -> list[Scored]:
        """Write all trials with their rungs, and return the rungs that may be near the front."""
        near = _near_true_front(self.true)
        kept = []
        for trial in range(self.trials):
            is_repeated = trial % 10 == 9
            original = trial - 1 if is_repeated else None
            config = _config(original or trial)
            ledger.append(
                TrialStarted(
                    trial=trial, config=config, num_rungs=self.rungs, replicate_of=original
                )
            )
            scores = self._scores("dev", original or trial)
            for step in range(1, self.rungs + 1):
                scored = self._rung("dev", trial, step, scores)
                ledger.append(_finished(trial, step, scored.points))
                if near[trial, _columns(step)].any() or is_repeated:
                    kept.append(scored)
            ledger.append(
                TrialEnded(trial=trial, status=TrialStatus.COMPLETED, reason="", cost=Cost(100.0))
            )
        return kept

    def _scores(self, split: ScoredSplit, trial: int) -> Float64Array:
        numbers = np.zeros(len(self.true[trial]), dtype=np.int64)
        encoders = Encoders.of_scores(SETTING, self.true[trial], numbers, SETTING.shared)
        return self.queries[split].scores(encoders, self.rng)

    def _rung(self, split: ScoredSplit, trial: int, step: int, scores: Float64Array) -> Scored:
        own = scores[_columns(step)]
        points = [
            self._point(split, own[row], kind=kind, value=value, trial=trial, step=step)
            for row, (kind, value) in enumerate(KEYS)
        ]
        return Scored(points, own.copy())

    def _test(self, front: Sequence[Point]) -> list[Scored]:
        """Score the members of the front on test, by rung."""
        rungs: dict[tuple[int, int], list[Point]] = {}
        for point in front:
            assert point.trial is not None and point.step is not None
            rungs.setdefault((point.trial, point.step), []).append(point)
        tested = []
        for (trial, step), members in rungs.items():
            scored = self._rung("test", trial, step, self._scores("test", trial))
            keys = {member.key for member in members}
            rows = [row for row, point in enumerate(scored.points) if point.key in keys]
            tested.append(Scored([scored.points[row] for row in rows], scored.scores[rows]))
        return tested

    def _store(self, split: ScoredSplit, rungs: Sequence[Scored], names: set[object] | None) -> int:
        """Store the per-query scores of the named points of these rungs, or of all, and return their number."""
        num_stored = 0
        for scored in rungs:
            rows = [
                row
                for row, point in enumerate(scored.points)
                if names is None or name_of_point(point) in names
            ]
            if rows:
                first = scored.points[0]
                assert first.trial is not None and first.step is not None
                chosen = Scored([scored.points[row] for row in rows], scored.scores[rows])
                chosen.store(self.run, rung_file(split, first.trial, first.step))
                num_stored += len(rows)
        return num_stored


def _config(number: int) -> dict[str, object]:
    """Return a random configuration, determined by its number."""
    rng = np.random.default_rng([2, number])
    return {
        "loss": LOSSES[number % len(LOSSES)],
        "learning_rate": float(10 ** rng.uniform(-6, -4)),
        "margin": float(rng.uniform(0.05, 1)),
        "freezing": f"emb+B0-{rng.integers(0, 6)}",
        "batch_size": int(rng.choice([32, 64, 128])),
        "weight_decay": float(rng.uniform(0, 0.1)),
    }


def _columns(step: int) -> slice:
    """Return a rung's columns among its trial's points."""
    return slice((step - 1) * len(KEYS), step * len(KEYS))


def _near_true_front(true: Float64Array) -> NDArray[np.bool_]:
    """Return a mask of points (trials, points) within about four standard errors of the front."""
    flat = true.reshape(-1, 2)
    front = flat[non_dominated(flat)]
    raised = flat + np.array([0.06, 0.015])
    is_far = np.zeros(len(flat), dtype=np.bool_)
    for member in front:
        is_far |= (member > raised).all(axis=1)
    near: NDArray[np.bool_] = ~is_far.reshape(true.shape[:2])
    return near


def _finished(trial: int, step: int, points: Sequence[Point]) -> RungFinished:
    return RungFinished(
        trial=trial,
        step=step,
        examples_seen=4096 * step,
        seconds=10.0 * step,
        loss=1.0 / step,
        stop=None,
        points=tuple(points),
        cost=Cost(10.0 * step),
    )


def _info(trials: int) -> RunInfo:
    pools: dict[str, int] = dict.fromkeys(SPLITS, NUM_POOL)
    return replace(
        invented_info(SETTING, trials), num_pool=pools, label_names=("negative", "positive")
    )


def _readings(front: Sequence[Point]) -> Readings:
    """Return random retrieved sentences of twenty words each."""
    rng = np.random.default_rng(3)
    names = [REFERENCE, *map(name_of_point, front)]
    retrieved = {name: _by_chance(rng) for name in names}
    query_ids = NUM_POOL + np.arange(SETTING.num_queries)
    texts = {
        sentence: " ".join(["sentence", str(sentence), *["words"] * 18])
        for sentence in range(NUM_POOL + NUM_SHOWN)
    }
    labels = {sentence: sentence % 2 for sentence in range(NUM_POOL)}
    return Readings(
        "dev", query_ids, query_ids % 2, retrieved, labels, texts, tuple(range(NUM_SHOWN))
    )


def _by_chance(rng: np.random.Generator) -> Retrieved:
    ids = rng.integers(0, NUM_POOL, (SETTING.num_queries, SETTING.k))
    cosines = -np.sort(-rng.uniform(0, 1, ids.shape).astype(np.float32), axis=1)
    return Retrieved(ids, cosines)


@contextlib.contextmanager
def _without_waiting_for_the_disk() -> Iterator[None]:
    real_fsync = os.fsync
    os.fsync = lambda fd: None
    try:
        yield
    finally:
        os.fsync = real_fsync
