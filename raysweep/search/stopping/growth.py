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
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import Pair
from raysweep.metrics.staircase import Staircase
from raysweep.search.stopping.base import Standing
from raysweep.search.stopping.learning_curve import Forecaster, LearningCurve
from raysweep.search.stopping.ranking import Ranking
from raysweep.search.stopping.trials import Trial, Trials

NUM_CANDIDATES = 24  # held trials, the most promising, whose promises are kept up to date, beside all without one


MIN_RELATIVE_GAIN = 0.0001  # of the front's area: a trial that promises no more is not resumed


PROMOTED_ONE_IN = 4  # one in so many, by their own area, may go on from its first rung before all are begun


NUM_LATEST = 12  # trials that say what a new one may add


NUM_BEGUN_FIRST = 3  # trials begun before any goes on


NUM_LARGEST = 32  # trials, those of the largest fronts of their own, that stand for all that a new one has to surpass


class _Peers(NamedTuple):
    """Trials that are held after as many examples, of which equally many may go on."""

    budget: int
    is_first_rung: bool
    next_budget: int

    def num_good(self, num_reached: int) -> int:
        """How many of those that reached the budget may go on from it while there are others to begin."""
        if self.is_first_rung:
            return num_reached // PROMOTED_ONE_IN
        return num_reached * self.budget // self.next_budget


@dataclass
class _Trial(Trial[LearningCurve]):
    curve: LearningCurve = field(default_factory=LearningCurve)
    promise: float = math.inf  # as last worked out; infinite from a rung until it is
    peers: _Peers = field(init=False)  # while it is held
    rank: tuple[float, int] = field(init=False)  # among them: minus its area, and its number


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
        self._trials = Trials(_Trial)
        self._areas: dict[int, list[tuple[float, int]]] = {}  # by budget: minus the area of each trial there, rising
        self._worst_good: dict[_Peers, tuple[float, int]] = {}  # the rank of the worst good trial
        self._by_area = Ranking()  # of trials, the places among those begun
        self._places: dict[int, int] = {}  # of trials among those begun
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
        if self._trials.known(trial).running != running:
            self._trials.set_running(trial, running)
            self._update_promises()

    def end(self, trial: int) -> None:
        self._trials.end(trial)
        self._promises = {}

    @property
    def _front(self) -> Staircase:
        return next((front for front in self._fronts if front.area), self._fronts[-1])

    def _take(self, number: int, examples_seen: int, standing: Standing, ahead: Sequence[int]) -> None:
        """Put down what a trial has shown at a rung; it is held for now."""
        trial = self._trials.known(number)
        points = np.asarray(standing.points, dtype=np.float64)
        curve = trial.curve
        curve.budgets_ahead = tuple(ahead)
        self._forecaster.add_rung(curve, examples_seen, points)
        curve.front = standing.front
        curve.area = standing.area
        trial.promise = math.inf
        self._trials.hold(number)
        trial.rank = (-curve.area, number)
        bisect.insort(self._areas.setdefault(examples_seen, []), trial.rank)
        if ahead:
            trial.peers = _Peers(examples_seen, len(curve.points) == 1, ahead[0])
            self._worst_good[trial.peers] = trial.rank
        self._worst_good = {peers: self._worst_of_good(peers) for peers in self._worst_good}
        place = self._places.setdefault(number, len(self._places))
        self._by_area.put(place, curve.area)
        for front in self._fronts:
            front.add_all(points)

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
        all_are_asked = not may_begin and not self._trials.any_runs
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

    def _predicted_front(self) -> Staircase:
        """The front as it will be if all that runs keeps its promise."""
        front = self._front.copy()
        running = self._trials.running_on.values()
        next_points = [self._forecaster.next_points(trial.curve) for trial in running]
        front.add_all(np.concatenate([np.empty((0, 2)), *next_points]))
        return front

    def _held(self, may_begin: bool) -> list[int]:
        """Trials that could go on; with ``may_begin`` the good ones."""
        held = self._trials.held
        if not may_begin:
            return list(held)
        worst_good = self._worst_good
        return [number for number, trial in held.items() if trial.rank <= worst_good[trial.peers]]

    def _held_by_promise(self, may_begin: bool) -> list[int]:
        """Those trials, the one that last promised most first."""
        return sorted(self._held(may_begin), key=lambda number: (-self._trials[number].promise, number))

    def _first_to_go_on(self, may_begin: bool) -> int | None:
        """While nobody has gone on, somebody must, for there to be something to predict from: the best."""
        if may_begin and self._trials.running_on:
            return None
        return max(self._held(may_begin), key=lambda trial: (self._area_of(trial), -trial), default=None)

    def _area_of(self, trial: int) -> float:
        return self._trials[trial].curve.area

    def _is_worth_resuming(self, trial: int, promise: float) -> bool:
        """Whether a trial that promises so much may go on with nothing else to begin."""
        curve = self._trials[trial].curve
        examples_ahead = curve.budgets_ahead[-1] - curve.budgets[-1]
        return promise * examples_ahead > MIN_RELATIVE_GAIN * self._front.area

    def _is_good(self, number: int) -> bool:
        """Whether the trial is among the best that reached its budget."""
        trial = self._trials[number]
        return trial.rank <= self._worst_good[trial.peers]

    def _worst_of_good(self, peers: _Peers) -> tuple[float, int]:
        areas = self._areas[peers.budget]  # of all that reached it, the best first
        return areas[max(1, peers.num_good(len(areas))) - 1]

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
        begun = self._trials.begun
        if not begun:
            return math.inf
        largest = [begun[place] for place in itertools.islice(self._by_area, NUM_LARGEST)]
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
        front = Staircase(self.reference_point)
        points = [pair for trial in trials for pair in self._trials[trial].curve.front]
        front.add_all(np.array(points).reshape(-1, 2))
        return front


def _largest_gain(front: Staircase, rungs: Iterable[tuple[int, Float64Array]], begin: int) -> float:
    """The most area for each example after ``begin`` that the points of rungs, by examples seen, add to a front."""
    all_rungs = list(rungs)
    rises = front.is_surpassed_by(np.concatenate([points for _, points in all_rungs]))
    if not rises.any():
        return 0.0
    front = front.copy()
    added = largest = 0.0
    last = 0
    for examples_seen, points in all_rungs:
        first, last = last, last + len(points)
        for pair in points[rises[first:last]].tolist():
            added += front.add(tuple(pair))
        largest = max(largest, added / (examples_seen - begin))
    return largest
