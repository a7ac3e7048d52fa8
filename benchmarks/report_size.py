"""The report of a large run: seconds and memory. 1,000 trials, 10 rungs, 872 queries, 1,000 resamples.

The run is made, not swept: invented scores (:mod:`benchmarks.simulated_scores`) of each rung's operating points, a ledger,
and the per-query scores of what a run stores: points near the front, the reference, the oracle and a probe. A tenth of the
configurations ran twice. The report is then written by a process of its own, as ``raysweep report RUN`` does, whose seconds
and greatest resident memory are printed, imports included.
"""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import measure
from benchmarks.calibration import SETTINGS
from benchmarks.simulated_scores import Encoders, Queries, limits, trial_scores
from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.oracle import DEFAULT_BONUSES
from raysweep.metrics.pareto import non_dominated
from raysweep.results.events import (
    PointsScored,
    RungFinished,
    SessionFinished,
    SessionStarted,
    TrialEnded,
    TrialStarted,
)
from raysweep.results.ledger import Ledger
from raysweep.results.query_scores import PackedScores, baselines_file, kept_names, name_of_point, rung_file
from raysweep.results.reader import load
from raysweep.results.types import Cost, Point, RunInfo, ScoredSplit
from raysweep.results.views import front_members
from raysweep.storage.folder import LocalFolder
from raysweep.trial_status import TrialStatus

SETTING = SETTINGS[0]
SPLITS: tuple[ScoredSplit, ...] = ("dev", "test")
GROWTH = np.array([0.15, 0.35, 0.6, 1.0])  # strengths of the operating points
PROBE = (0.05, 0.1, 0.3, 1.0)

MEASURED = (
    "import resource, sys; from pathlib import Path; from raysweep.report.write import write; "
    "print(write(Path(sys.argv[1])).summary.uncertainty.keys()); "
    "print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
)


def main() -> None:
    parser = measure.parser("benchmarks.report_size", __doc__)
    parser.add_argument("--trials", type=int, help="1000; with --quick 100")
    parser.add_argument("--rungs", type=int, default=10)
    parser.add_argument("--keep", type=Path, help="make the run in this folder, and leave it there")
    arguments = parser.parse_args()
    trials = arguments.trials or (100 if arguments.quick else 1000)
    found = measure.machine()
    with measure.workplace() as place:
        folder = arguments.keep or place / "run"
        num_stored = MadeRun(folder, trials, arguments.rungs).make()
        began = time.perf_counter()
        command = [sys.executable, "-c", MEASURED, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=measure.ROOT)
        seconds = time.perf_counter() - began
        size = (folder / "report" / "report.html").stat().st_size
    peak = re.search(r"peak (\d+)", done.stdout)
    mebibytes = int(peak[1]) / 1024 if peak else 0.0
    print(f"{trials:,} trials of {arguments.rungs} rungs, {num_stored:,} points with scores of each query on dev")
    print(f"report: {seconds:.1f} s, {mebibytes:,.0f} MiB, a page of {size / measure.MIB:.1f} MiB")
    ratio = 30 / seconds
    print(f"\nratio: {ratio:.2f} (30 s over the seconds taken)")
    figures = {"ratio": ratio, "seconds": seconds, "mebibytes": mebibytes, "stored": num_stored, "trials": trials}
    measure.finish("report_size", figures, found, arguments.json)


@dataclass(frozen=True)
class Scored:
    """Points and their scores (points, 2, queries)."""

    points: Sequence[Point]
    scores: Float64Array

    def store(self, run: LocalFolder, file: str) -> None:
        packed = PackedScores.pack([name_of_point(point) for point in self.points], *self.scores.transpose(1, 0, 2))
        run.put(file, packed.content())


class MadeRun:
    """A run in a folder, with ``trials`` trials of ``rungs`` rungs."""

    def __init__(self, folder: Path, trials: int, rungs: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.run = LocalFolder(folder)
        self.trials, self.rungs = trials, rungs
        self.rng = np.random.default_rng(0)
        num_points = rungs * len(GROWTH)
        true = trial_scores(SETTING, trials, num_points, self.rng)
        self.true = true.reshape(trials, num_points, 2)
        self.queries = {split: Queries.draw(SETTING, 2, self.rng) for split in SPLITS}
        self.reference_similarity: dict[ScoredSplit, float] = {}

    def make(self) -> int:
        """Write everything. How many points of trials have scores of each query on dev."""
        with _without_waiting_for_the_disk():
            ledger = Ledger(self.run.path)
            ledger.append(SessionStarted(info=_info(self.trials)))
            for split in SPLITS:
                limit = self._limits(split)
                ledger.append(PointsScored(points=tuple(limit.points)))
                limit.store(self.run, baselines_file(split))
            kept = self._play(ledger)
            results = load(self.run)
            stored = self._store("dev", kept, {*kept_names(results)})
            tested = self._test(front_members(results.points))
            ledger.append(PointsScored(points=tuple(point for scored in tested for point in scored.points)))
            self._store("test", tested, None)
            ledger.append(SessionFinished(status="completed", reason="", seconds=3600.0))
            ledger.close()
        return stored

    def _limits(self, split: ScoredSplit) -> Scored:
        """The reference, the oracle and the probe."""
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
            polarity=polarity,
            polarity_std=deviations[0],
            similarity=similarity,
            similarity_std=deviations[1],
            retention=similarity / self.reference_similarity[split],
            **name,  # type: ignore[arg-type]
        )

    def _play(self, ledger: Ledger) -> list[Scored]:
        """All trials, with their rungs. Those rungs that may be near the front."""
        near = _near_true_front(self.true)
        kept = []
        for trial in range(self.trials):
            is_repeated = trial % 10 == 9
            original = trial - 1 if is_repeated else None
            config = {"loss": "triplet", "margin": 0.01 * (original or trial), "learning_rate": 1e-5 * (1 + trial % 7)}
            ledger.append(TrialStarted(trial=trial, config=config, num_rungs=self.rungs, replicate_of=original))
            scores = self._scores("dev", original or trial)
            for step in range(1, self.rungs + 1):
                scored = self._rung("dev", trial, step, scores)
                ledger.append(_finished(trial, step, scored.points))
                if near[trial, _columns(step)].any() or is_repeated:
                    kept.append(scored)
            ledger.append(TrialEnded(trial=trial, status=TrialStatus.COMPLETED, reason="", cost=Cost(100.0)))
        return kept

    def _scores(self, split: ScoredSplit, trial: int) -> Float64Array:
        numbers = np.zeros(len(self.true[trial]), dtype=np.int64)
        encoders = Encoders.of_scores(SETTING, self.true[trial], numbers, SETTING.shared)
        return self.queries[split].scores(encoders, self.rng)

    def _rung(self, split: ScoredSplit, trial: int, step: int, scores: Float64Array) -> Scored:
        own = scores[_columns(step)]
        points = [
            self._point(split, own[row], kind="class_concat", value=float(value), trial=trial, step=step)
            for row, value in enumerate(GROWTH)
        ]
        return Scored(points, own.copy())

    def _test(self, front: Sequence[Point]) -> list[Scored]:
        """The members of the front, by rung."""
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
        """The scores of the named points of these rungs, or of all. How many."""
        num_stored = 0
        for scored in rungs:
            rows = [row for row, point in enumerate(scored.points) if names is None or name_of_point(point) in names]
            if rows:
                first = scored.points[0]
                assert first.trial is not None and first.step is not None
                chosen = Scored([scored.points[row] for row in rows], scored.scores[rows])
                chosen.store(self.run, rung_file(split, first.trial, first.step))
                num_stored += len(rows)
        return num_stored


def _columns(step: int) -> slice:
    """A rung's points among its trial's."""
    return slice((step - 1) * len(GROWTH), step * len(GROWTH))


def _near_true_front(true: Float64Array) -> NDArray[np.bool_]:
    """Which points (trials, points) four standard errors or so may put within three of the front."""
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
    queries = {"dev": SETTING.num_queries, "test": SETTING.num_queries}
    return RunInfo(
        name="made",
        version="0.1.0",
        dataset="invented",
        model="invented",
        reference="invented",
        k=SETTING.k,
        rank_weights="uniform",
        polarity_weight=0.5,
        similarity="similarity",
        num_trials=trials,
        num_queries=queries,
        num_pool={split: 5 * number for split, number in queries.items()},
        label_names=("negative", "positive"),
        seed=1,
    )


@contextlib.contextmanager
def _without_waiting_for_the_disk() -> Iterator[None]:
    kept = os.fsync
    os.fsync = lambda fd: None
    try:
        yield
    finally:
        os.fsync = kept


if __name__ == "__main__":
    main()
