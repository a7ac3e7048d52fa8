"""Scoring of rungs after the search.

The front is scored on the test split, and paused and interrupted trials are measured on watched data.
"""

import time
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from raysweep.config.trial import TrialConfig
from raysweep.controller.failures import Blame, Failures, Loss, RaisedError
from raysweep.controller.sweep import Sweep
from raysweep.metrics.scores import WATCHED
from raysweep.results.events import PointsScored, RungWatched
from raysweep.results.query_scores import name_of_point
from raysweep.results.types import Calibration, Point, PointKey, StageName, measure_of, point_of
from raysweep.results.watched import Watched
from raysweep.terminal import duration


@dataclass(frozen=True)
class FrontRung:
    """A rung with points on the front. ``keys`` identifies these points."""

    trial: int
    step: int
    keys: list[PointKey] = field(default_factory=list)


@dataclass(frozen=True)
class UnwatchedRung:
    """The last rung of a paused or interrupted trial, to be measured on watched data."""

    trial: int
    step: int
    config: TrialConfig
    run: int  # number among the runs of this configuration; 0 for the original


AfterSearch = FrontRung | UnwatchedRung
"""A rung to score after the search."""


@dataclass(frozen=True)
class ScoredRung:
    """A rung's test scores and the calibration of its head, as plain values without the trial and step.

    ``labeled`` contains the points that use the pool's labels. ``tasks`` contains the points of individual data sets in
    a sequence.
    """

    points: Sequence[Mapping[str, Any]]
    calibration: Mapping[str, Any] | None = None
    labeled: Sequence[Mapping[str, Any]] = ()
    measures: Sequence[Mapping[str, Any]] = ()
    tasks: Sequence[Mapping[str, Any]] = ()

    def event(self, rung: FrontRung) -> PointsScored:
        """Return these scores as a ledger event."""
        identity: dict[str, Any] = {"trial": rung.trial, "step": rung.step}
        points = tuple(point_of(values, **identity) for values in self.points)
        labeled = tuple(point_of(values, **identity) for values in self.labeled)
        calibration = (
            None if self.calibration is None else Calibration(**identity, **self.calibration)
        )
        measures = tuple(measure_of(values, **identity) for values in self.measures)
        tasks = tuple(point_of(values, **identity) for values in self.tasks)
        return PointsScored(
            points=points,
            calibration=calibration,
            labeled=labeled or None,
            measures=measures or None,
            tasks=tasks or None,
        )


def key_of(rung: AfterSearch) -> Hashable:
    """Return a key for the rung that is unique among all jobs of the sweep."""
    return type(rung), rung.trial, rung.step


class FrontScores:
    """Assigns the rungs to score after the search, and stores their scores.

    Rungs that could not be scored are retried when the sweep is resumed. The front is scored only if ``has_test`` is
    True.
    """

    def __init__(self, sweep: Sweep, *, has_test: bool) -> None:
        self._sweep = sweep
        self._has_test = has_test
        self._began: float | None = None  # monotonic time of the first call to `next`
        self._waiting: deque[AfterSearch] = deque()
        self._under_way: list[AfterSearch] = []
        self._num_rungs = 0
        # number of scored rungs, and seconds from the start until the last one was scored
        self._last_done = (
            0,
            0.0,
        )
        self._stages: set[StageName] = set()  # stages that have begun
        self._failures = Failures(sweep.config.resources)

    @property
    def have_begun(self) -> bool:
        """Return whether scoring has begun."""
        return self._began is not None

    @property
    def are_under_way(self) -> bool:
        """Return whether any worker is scoring a rung."""
        return bool(self._under_way)

    def next(self) -> AfterSearch | None:
        """Return the next rung to score, or None if no rung is waiting or all allowed workers are busy."""
        if self._began is None:
            self._began = time.monotonic()
            if self._has_test:
                self._waiting.extend(_untested(self._sweep))
            self._waiting.extend(_unwatched(self._sweep))
            self._num_rungs = self._sweep.num_to_score = len(self._waiting)
        max_workers = self._sweep.steering.workers
        is_full = max_workers is not None and len(self._under_way) >= max_workers
        if is_full or not self._waiting:
            return None
        rung = self._waiting.popleft()
        stage: StageName = "test" if isinstance(rung, FrontRung) else "watch"
        if stage not in self._stages:
            self._stages.add(stage)
            num_rungs = 1 + sum(isinstance(other, type(rung)) for other in self._waiting)
            self._sweep.begin_stage(stage, num_rungs)
        self._under_way.append(rung)
        self._sweep.num_to_score = len(self._waiting)
        return rung

    def take(self, rung: FrontRung, scored: ScoredRung) -> None:
        """Store a rung's scores. Watched scores are copied from the search, because watched data has no splits."""
        event = scored.event(rung)
        on_dev = {name_of_point(member): member for member in self._sweep.front}
        points: list[Point] = []
        for point in event.points:
            member = on_dev.get(name_of_point(point))
            if member is not None and WATCHED in member.scores:
                scores = {**point.scores, WATCHED: member.scores[WATCHED]}
                point = replace(point, scores=scores)
            points.append(point)
        self._sweep.ledger.append(replace(event, points=tuple(points)))
        self._under_way.remove(rung)

    def take_watched(self, rung: UnwatchedRung, watched: Watched) -> None:
        """Store a rung's scores on watched data."""
        self._sweep.ledger.append(RungWatched(trial=rung.trial, step=rung.step, watched=watched))
        self._sweep.progress.watched[rung.trial] = rung.step
        self._under_way.remove(rung)

    def fail(self, rung: AfterSearch, reason: str) -> None:
        """Warn that a rung could not be scored. No error is raised, so that the sweep still writes its report."""
        if rung in self._under_way:
            self._under_way.remove(rung)
            stage = "test" if isinstance(rung, FrontRung) else "watch"
            self._sweep.display.warn(
                f"{stage}: trial {rung.trial} not scored at rung {rung.step} (reason={reason})"
            )

    def fail_on_node(self, rung: AfterSearch, error: RaisedError) -> None:
        """Requeue a rung after an error if it may be retried on another node; otherwise, give up on it."""
        job = key_of(rung)
        self._sweep.note_error(job, error)
        if self._sweep.nodes.may_retry(job, error.node):
            self._requeue(rung)
        else:
            self.fail(rung, error.exception)

    def lose(self, rung: AfterSearch, loss: Loss) -> None:
        """Requeue a rung that lost its worker, or give up on it after too many losses."""
        if loss.blame == Blame.STORAGE:
            self._sweep.pause(loss)
        if reason := self._failures.count(key_of(rung), loss):
            self.fail(rung, reason)
        else:
            self._requeue(rung)

    def _requeue(self, rung: AfterSearch) -> None:
        self._under_way.remove(rung)
        self._waiting.append(rung)
        self._sweep.num_to_score = len(self._waiting)

    def show(self) -> None:
        """Update the status line if any rungs are left to score."""
        num_left = len(self._waiting) + len(self._under_way)
        if not num_left or self._began is None:
            return
        num_done = self._num_rungs - num_left
        seconds = time.monotonic() - self._began
        stages = " and ".join(sorted(self._stages)) or "test"
        text = f"{stages}: {num_done} of {self._num_rungs} rungs scored, {seconds:.0f} s"
        if num_done != self._last_done[0]:
            self._last_done = (num_done, seconds)
        seconds_at_last = self._last_done[1]
        if num_done:  # the estimate counts down until the next rung is scored
            seconds_left = seconds_at_last * num_left / num_done - (seconds - seconds_at_last)
            text += f", {duration(max(seconds_left, 0.0))} left"
        self._sweep.display.status(text, num_done / self._num_rungs)


def _unwatched(sweep: Sweep) -> Iterator[UnwatchedRung]:
    """Yield the last rung of each resumable trial if the rung has not been measured on watched data."""
    if sweep.config.watch is None:
        return
    for number in sweep.resumable_trials():
        step = sweep.progress.steps_done(number)
        if step and sweep.progress.watched.get(number) != step:
            run = sweep.scheduler.trials[number].run
            yield UnwatchedRung(number, step, sweep.progress.configs[number], run)


def _untested(sweep: Sweep) -> list[FrontRung]:
    """Return the rungs of the front's points that have not been scored on the test split."""
    rungs: dict[tuple[int, int], FrontRung] = {}
    for point in sweep.kept_front():
        if name_of_point(point) in sweep.tested:
            continue
        trial, step = point.trial, point.step
        assert trial is not None and step is not None
        rung = rungs.setdefault((trial, step), FrontRung(trial, step))
        rung.keys.append(point.key)
    return list(rungs.values())
