"""Scoring of the front on the test split: assigns rungs to workers and stores each result as it arrives."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raysweep.controller.failures import Blame, Failures, Loss
from raysweep.controller.sweep import Sweep
from raysweep.results.events import PointsScored
from raysweep.results.query_scores import name_of_point
from raysweep.results.types import Calibration, PointKey, measure_of, point_of


@dataclass(frozen=True)
class FrontRung:
    """A rung with points on the front, and the keys of these points."""

    trial: int
    step: int
    keys: list[PointKey] = field(default_factory=list)


@dataclass(frozen=True)
class ScoredRung:
    """A rung's scores on the test split and the calibration of its head, as plain values without trial and step.

    ``labeled`` are the rung's points that use the pool's labels, and ``measures`` its measures.
    """

    points: Sequence[Mapping[str, Any]]
    calibration: Mapping[str, Any] | None = None
    labeled: Sequence[Mapping[str, Any]] = ()
    measures: Sequence[Mapping[str, Any]] = ()

    def event(self, rung: FrontRung) -> PointsScored:
        """Return the ledger event for these scores."""
        identity: dict[str, Any] = {"trial": rung.trial, "step": rung.step}
        points = tuple(point_of(values, **identity) for values in self.points)
        labeled = tuple(point_of(values, **identity) for values in self.labeled)
        calibration = None if self.calibration is None else Calibration(**identity, **self.calibration)
        measures = tuple(measure_of(values, **identity) for values in self.measures)
        return PointsScored(points=points, calibration=calibration, labeled=labeled or None, measures=measures or None)


class FrontScores:
    """The rungs of the final front and their test scores.

    A rung without scores, because they never arrived or scoring failed, is scored again when the sweep is resumed. Without
    a test split (``has_test`` is False), there is nothing to score.
    """

    def __init__(self, sweep: Sweep, *, has_test: bool) -> None:
        self._sweep = sweep
        self._has_test = has_test
        self._began: float | None = None  # first call of `next`, on the monotonic clock
        self._waiting: deque[FrontRung] = deque()
        self._under_way: list[FrontRung] = []
        self._num_rungs = 0
        self._failures = Failures(sweep.config.resources)

    @property
    def have_begun(self) -> bool:
        """Return whether a rung was requested, which means that the sweep's trials are over."""
        return self._began is not None

    @property
    def are_under_way(self) -> bool:
        """Return whether a worker is scoring a rung."""
        return bool(self._under_way)

    def next(self) -> FrontRung | None:
        """Return the next rung to score, or None if all are assigned or the requested number of workers is busy."""
        if self._began is None:
            self._began = time.monotonic()
            if self._has_test:
                self._waiting.extend(_untested(self._sweep))
            self._num_rungs = len(self._waiting)
            if self._num_rungs:
                self._sweep.begin_stage("test", self._num_rungs)
        max_workers = self._sweep.steering.workers
        is_full = max_workers is not None and len(self._under_way) >= max_workers
        if is_full or not self._waiting:
            return None
        rung = self._waiting.popleft()
        self._under_way.append(rung)
        return rung

    def take(self, rung: FrontRung, scored: ScoredRung) -> None:
        """Store a rung's scores."""
        self._sweep.ledger.append(scored.event(rung))
        self._under_way.remove(rung)

    def fail(self, rung: FrontRung, reason: str) -> None:
        """Warn once that a rung could not be scored, since a long search must not end without a report."""
        if rung in self._under_way:
            self._under_way.remove(rung)
            self._sweep.display.warn(f"test: trial {rung.trial} not scored at rung {rung.step} (reason={reason})")

    def lose(self, rung: FrontRung, loss: Loss) -> None:
        """Queue a rung again after it lost its worker, or give up on it after too many losses."""
        if loss.blame == Blame.STORAGE:
            self._sweep.pause(loss.reason)
        if reason := self._failures.count((rung.trial, rung.step), loss):
            self.fail(rung, reason)
        else:
            self._under_way.remove(rung)
            self._waiting.append(rung)

    def show(self) -> None:
        """Update the status line while rungs are left to score."""
        num_left = len(self._waiting) + len(self._under_way)
        if num_left and self._began is not None:
            num_done = self._num_rungs - num_left
            seconds = time.monotonic() - self._began
            text = f"test: {num_done} of {self._num_rungs} rungs of the front scored, {seconds:.0f} s"
            self._sweep.display.status(text, num_done / self._num_rungs)


def _untested(sweep: Sweep) -> list[FrontRung]:
    """Return the rungs of the front with points that no earlier session scored on the test split."""
    rungs: dict[tuple[int, int], FrontRung] = {}
    for point in sweep.kept_front():
        if name_of_point(point) in sweep.tested:
            continue
        trial, step = point.trial, point.step
        assert trial is not None and step is not None
        rung = rungs.setdefault((trial, step), FrontRung(trial, step))
        rung.keys.append(point.key)
    return list(rungs.values())
