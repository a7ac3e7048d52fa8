"""Spend the next rung where the front is expected to grow most: raysweep's own policy of early stopping.

After each rung a trial is held, unless it is the one to go on with. What a held trial would add is predicted from how its
points and those of others moved over the same training budgets; what a new trial would add is measured on the latest ones,
each taken as if it were not there yet. Whichever promises more hypervolume for each example it costs comes next. While
there are new trials to begin, only the best quarter goes on from its first rung, since much of what looks like growth
early on is noise, and from any later budget so many of those that reached it that each stretch of training gets about as
much as any other: the fewer, the further it is to the next rung. Once all are begun, trials go on while they promise any
growth; before the search ends, so do the good ones that promise none, for slow starters are easily underrated. So budgets
are never compared unequal, and an end of the front counts as much as its middle.

Curves and predictions are in :mod:`raysweep.search.stopping.learning_curve`. A trial's promise is the hypervolume that it is
expected to add to the front, for each example of its further training.
"""

import bisect
import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import Pair
from raysweep.metrics.staircase import Staircase
from raysweep.search.stopping.base import Standing
from raysweep.search.stopping.learning_curve import Forecaster, LearningCurve

NUM_CANDIDATES = (
    24  # held trials, the most promising, whose promises are kept up to date, beside all that have none yet
)


MIN_RELATIVE_GAIN = 0.0001  # of the front's area: a trial that promises no more is not resumed


PROMOTED_ONE_IN = 4  # one in so many, by their own area, may go on from its first rung before all are begun


NUM_LATEST = 12  # trials that say what a new one may add


NUM_BEGUN_FIRST = 3  # trials begun before any goes on


NUM_LARGEST = 32  # trials, those of the largest fronts of their own, that stand for all that a new one has to surpass


@dataclass
class _Trial:
    curve: LearningCurve = field(default_factory=LearningCurve)
    promise: float = math.inf  # as last worked out; infinite from a rung until it is
    running: bool = True
    ended: bool = False

    @property
    def is_held(self) -> bool:
        return bool(self.curve.budgets_ahead) and not (self.running or self.ended)

    @property
    def runs_on(self) -> bool:
        """Whether it runs, has had a rung, and will have another."""
        return self.running and bool(self.curve.points) and bool(self.curve.budgets_ahead)


class Growth:
    """An EarlyStopper; see the module's docstring.

    Hypervolumes begin at ``reference_point``, which constraints may have raised; until a point lies above it, at ``wider``.
    An untrained trial scores ``origin``, None if that is not known. ``num_candidates`` bounds how many
    promises are worked out at once, beside those of trials that have none yet.
    """

    def __init__(
        self,
        reference_point: Pair,
        origin: Pair | None,
        wider: Pair | None = None,
        num_candidates: int = NUM_CANDIDATES,
    ) -> None:
        reference_points = dict.fromkeys((reference_point, wider or reference_point))
        self._fronts = [Staircase(each) for each in reference_points]
        self.num_candidates = num_candidates
        self._forecaster = Forecaster(origin)
        self._trials: dict[int, _Trial] = {}
        self._areas: dict[int, list[tuple[float, int]]] = {}  # by budget: minus the area of each trial there, rising
        # Whether a new trial may begin, as of the last rung; and promises as things stand, by whether one may begin.
        self._may_begin = True
        self._promises: dict[bool, dict[int, float]] = {}
        self._promise_of_new: float | None = None

    @property
    def reference_point(self) -> Pair:
        """Where hypervolumes begin for now."""
        return self._front.reference_point

    def promises(self, may_begin: bool) -> dict[int, float]:
        """What the most promising of the held trials promise as things stand."""
        if may_begin not in self._promises:
            self._promises[may_begin] = self._promises_of_held(may_begin)
        return self._promises[may_begin]

    def on_rung(
        self, trial: int, examples_seen: int, standing: Standing, ahead: Sequence[int], may_begin: bool
    ) -> str | None:
        self._may_begin = may_begin
        self._take(trial, examples_seen, standing, ahead)
        self._update_promises()
        if self.next_to_resume(may_begin) == trial:
            self.set_running(trial, running=True)
            return None
        return f"after {examples_seen:,} examples the front promises to grow more elsewhere"

    def next_to_resume(self, may_begin: bool) -> int | None:
        if may_begin and len(self._trials) < NUM_BEGUN_FIRST:
            return None
        if not self._forecaster.has_learnt:
            return self._first_to_go_on(may_begin)
        promises = self.promises(may_begin)
        candidates = list(promises) if may_begin else self._worth_resuming(promises)
        best = self._most_promising(candidates, promises)
        if best is None:
            return None
        new_is_better = may_begin and self._promise_of_a_new_trial() > promises[best]
        return None if new_is_better else best

    def _worth_resuming(self, promises: dict[int, float]) -> list[int]:
        """With nothing else to begin: the trials that promise enough, or else the good ones, which may start slowly."""
        worth_it = [trial for trial, promise in promises.items() if self._is_worth_resuming(trial, promise)]
        return worth_it or [trial for trial in promises if self._is_good(trial)]

    def _most_promising(self, candidates: list[int], promises: dict[int, float]) -> int | None:
        """Of equal promises the one of the largest front of its own, then the earlier."""
        return max(candidates, key=lambda trial: (promises[trial], self._area_of(trial), -trial), default=None)

    def set_running(self, trial: int, running: bool) -> None:
        known = self._trials.setdefault(trial, _Trial())
        if known.running != running:
            known.running = running
            self._update_promises()

    def end(self, trial: int) -> None:
        known = self._trials.setdefault(trial, _Trial())
        known.ended, known.running = True, False
        self._promises = {}

    @property
    def _front(self) -> Staircase:
        return next((front for front in self._fronts if front.area), self._fronts[-1])

    def _take(self, number: int, examples_seen: int, standing: Standing, ahead: Sequence[int]) -> None:
        """Put down what a trial has shown at a rung; it is held for now."""
        trial = self._trials.setdefault(number, _Trial())
        points = np.asarray(standing.points, dtype=np.float64)
        curve = trial.curve
        self._forecaster.add_rung(curve, examples_seen, points)
        curve.budgets_ahead = tuple(ahead)
        curve.front = standing.front
        curve.area = standing.area
        trial.promise = math.inf
        trial.running = False
        areas = self._areas.setdefault(examples_seen, [])
        bisect.insort(areas, (-curve.area, number))
        for front in self._fronts:
            _add(front, points)

    def _update_promises(self) -> None:
        """Something has happened, so promises have changed. Only here they are kept: asking changes nothing."""
        self._promises, self._promise_of_new = {}, None
        for trial, promise in self.promises(self._may_begin).items():
            self._trials[trial].promise = promise

    def _promises_of_held(self, may_begin: bool) -> dict[int, float]:
        front = self._predicted_front()
        held = self._held_by_promise(may_begin)
        last_promises = [self._trials[number].promise for number in held]
        num_unknown = sum(map(math.isinf, last_promises))
        num_enough = self.num_candidates + num_unknown
        # Where nobody runs or may begin, all are asked until one is worth it, before the search ends.
        all_are_asked = not may_begin and not self._any_runs
        promises: dict[int, float] = {}
        for number in held:
            are_enough = len(promises) >= num_enough
            if are_enough and not all_are_asked:
                break
            promise = self._promise(number, front)
            promises[number] = promise
            if self._is_worth_resuming(number, promise):
                all_are_asked = False
        return promises

    @property
    def _any_runs(self) -> bool:
        return any(trial.running for trial in self._trials.values())

    def _predicted_front(self) -> Staircase:
        """The front as it will be if all that runs keeps its promise."""
        front = self._front.copy()
        for trial in self._trials.values():
            if trial.runs_on:
                next_points = self._forecaster.points_ahead(trial.curve)[0]
                _add(front, next_points)
        return front

    def _held(self, may_begin: bool) -> list[int]:
        """Trials that could go on; with ``may_begin`` the good ones."""
        held = [number for number, trial in self._trials.items() if trial.is_held]
        return [number for number in held if self._is_good(number)] if may_begin else held

    def _held_by_promise(self, may_begin: bool) -> list[int]:
        """Those trials, the one that last promised most first."""
        return sorted(self._held(may_begin), key=lambda number: (-self._trials[number].promise, number))

    def _first_to_go_on(self, may_begin: bool) -> int | None:
        """While nobody has gone on, somebody must, for there to be something to predict from: the best."""
        if may_begin and any(trial.runs_on for trial in self._trials.values()):
            return None
        return max(self._held(may_begin), key=lambda trial: (self._area_of(trial), -trial), default=None)

    def _area_of(self, trial: int) -> float:
        return self._trials[trial].curve.area

    def _is_worth_resuming(self, trial: int, promise: float) -> bool:
        """Whether a trial that promises so much may go on with nothing else to begin."""
        curve = self._trials[trial].curve
        examples_ahead = curve.budgets_ahead[-1] - curve.budgets[-1]
        return promise * examples_ahead > MIN_RELATIVE_GAIN * self._front.area

    def _is_good(self, trial: int) -> bool:
        """Whether the trial is among the best that reached its budget."""
        curve = self._trials[trial].curve
        areas = self._areas[curve.budgets[-1]]  # of all that reached it, the best first
        num_good = _num_good(curve, len(areas))
        worst_good = areas[max(1, num_good) - 1]
        return (-curve.area, trial) <= worst_good

    def _promise(self, trial: int, front: Staircase) -> float:
        """What a held trial is expected to add to the front from its last rung on, for each example."""
        curve = self._trials[trial].curve
        ahead = zip(curve.budgets_ahead, self._forecaster.points_ahead(curve), strict=True)
        return _largest_gain(front, ahead, curve.budgets[-1])

    def _promise_of_a_new_trial(self) -> float:
        if self._promise_of_new is None:
            self._promise_of_new = self._mean_promise_of_latest()
        return self._promise_of_new

    def _mean_promise_of_latest(self) -> float:
        """What the latest trials would have promised when they began, had all others been there."""
        begun = [number for number, trial in self._trials.items() if trial.curve.points]
        if not begun:
            return math.inf
        largest = heapq.nlargest(NUM_LARGEST, begun, key=self._area_of)
        front_of_largest = self._joint_front(largest)
        promises = []
        for number in begun[-NUM_LATEST:]:
            front = front_of_largest
            if number in largest:
                others = [other for other in largest if other != number]
                front = self._joint_front(others)
            rungs = self._all_rungs(number)
            promise = _largest_gain(front, rungs, 0)
            promises.append(promise)
        return float(np.mean(promises))

    def _all_rungs(self, trial: int) -> Iterator[tuple[int, Float64Array]]:
        """A trial's rungs so far and those ahead: examples seen, and points (points, 2) as they were or are predicted."""
        curve = self._trials[trial].curve
        yield from zip(curve.budgets, curve.points, strict=True)
        yield from zip(curve.budgets_ahead, self._forecaster.points_ahead(curve), strict=True)

    def _joint_front(self, trials: Iterable[int]) -> Staircase:
        points = (pair for trial in trials for pair in self._trials[trial].curve.front)
        return Staircase(self.reference_point, points)


def _num_good(curve: LearningCurve, num_reached: int) -> int:
    """How many of the trials that reached a curve's budget may go on from it while there are others to begin."""
    budget = curve.budgets[-1]
    is_first_rung = len(curve.budgets) == 1
    return num_reached // PROMOTED_ONE_IN if is_first_rung else num_reached * budget // curve.budgets_ahead[0]


def _largest_gain(front: Staircase, rungs: Iterable[tuple[int, Float64Array]], begin: int) -> float:
    """The most area for each example after ``begin`` that the points of rungs, by examples seen, add to a front."""
    front = front.copy()
    added = largest = 0.0
    for examples_seen, points in rungs:
        for pair in points.tolist():
            added += front.add(tuple(pair))
        largest = max(largest, added / (examples_seen - begin))
    return largest


def _add(front: Staircase, points: Float64Array) -> None:
    for pair in points.tolist():
        front.add(tuple(pair))
