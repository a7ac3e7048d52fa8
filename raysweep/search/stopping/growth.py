"""Early stopping policy ``growth``: run the next rung of the trial that is expected to grow the front most.

After each rung, a trial pauses unless it has the highest expected gain: the hypervolume that it is expected to add to
the front per example of further training. The gain of a paused trial is predicted from how its points, and those of
other trials, moved over the same budgets (:mod:`raysweep.search.stopping.learning_curve`). The gain of a new trial is
the mean over the latest trials, each measured against the front without that trial.

While new trials are left to start, only good trials resume, because early gains are mostly noise: the best quarter
after the first rung, and from any later budget b to the next budget c the best b / c of the trials that reached b. Each
stage thus gets about the same share of training. Once all trials have started, trials resume as long as they have an
expected gain. Before the search ends, good trials without any resume too, because slow starters are easily underrated.
Trials are only compared at equal budgets, and an end of the front counts as much as its middle.
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

NUM_CANDIDATES = 24  # paused trials, best first, with up-to-date expected gains, in addition to those without one


MIN_RELATIVE_GAIN = 0.0001  # of the front's area: trials with a smaller expected gain do not resume


PROMOTED_ONE_IN = 4  # one in N, ranked by their own area, may resume from its first rung before all have started


NUM_LATEST = 12  # trials that estimate the gain of a new one


NUM_BEGUN_FIRST = 3  # trials started before any resumes


NUM_LARGEST = 32  # trials with the largest own fronts, which represent all others in the gain of a new trial


class _Peers(NamedTuple):
    """Trials paused at the same budget with the same next budget, which share a quota for resuming."""

    budget: int
    is_first_rung: bool
    next_budget: int

    def num_good(self, num_reached: int) -> int:
        """Return how many of the trials that reached the budget may resume while new trials are left to start."""
        if self.is_first_rung:
            return num_reached // PROMOTED_ONE_IN
        return num_reached * self.budget // self.next_budget


@dataclass
class _Trial(Trial[LearningCurve]):
    curve: LearningCurve = field(default_factory=LearningCurve)
    expected_gain: float = math.inf  # last computed expected gain; infinite after a rung until it is computed
    peers: _Peers = field(init=False)  # while it is paused
    rank: tuple[float, int] = field(init=False)  # minus its area, and its number


class Growth:
    """The policy ``growth``; see the module docstring.

    Args:
        reference_point: Lower corner of hypervolumes, which constraints may have raised.
        origin: P and S of an untrained trial, or None if unknown.
        wider: Reference point until a point is above ``reference_point``.
        num_candidates: Maximum number of expected gains updated at once, in addition to those of trials without one.
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
        self._areas: dict[int, list[tuple[float, int]]] = {}  # by budget: minus the area of each trial there, ascending
        self._worst_good: dict[_Peers, tuple[float, int]] = {}  # rank of the worst good trial
        self._by_area = Ranking()  # positions in order of first rungs, by own area
        self._places: dict[int, int] = {}  # of trials, in order of first rungs
        # Whether a new trial may start, as of the last rung; and current expected gains, by whether one may start.
        self._may_begin = True
        self._expected_gains: dict[bool, dict[int, float]] = {}
        self._expected_gain_of_new: float | None = None

    @property
    def reference_point(self) -> Pair:
        """The current lower corner of hypervolumes."""
        return self._front.reference_point

    def expected_gains(self, may_begin: bool) -> dict[int, float]:
        """Return the current expected gains of the paused trials that rank highest."""
        if may_begin not in self._expected_gains:
            self._expected_gains[may_begin] = self._expected_gains_of_paused(may_begin)
        return self._expected_gains[may_begin]

    def on_rung(
        self, trial: int, examples_seen: int, standing: Standing, ahead: Sequence[int], may_begin: bool
    ) -> str | None:
        self._may_begin = may_begin
        self._take(trial, examples_seen, standing, ahead)
        self._update_expected_gains()
        if self.next_to_resume(may_begin) == trial:
            self.set_running(trial, running=True)
            return None
        return "lower expected gain"

    def next_to_resume(self, may_begin: bool) -> int | None:
        if may_begin and len(self._trials) < NUM_BEGUN_FIRST:
            return None
        if not self._forecaster.has_learned:
            return self._first_to_go_on(may_begin)
        expected_gains = self.expected_gains(may_begin)
        candidates = list(expected_gains) if may_begin else self._worth_resuming(expected_gains)
        best = self._find_best(candidates, expected_gains)
        if best is None:
            return None
        new_is_better = may_begin and self._expected_gain_of_a_new_trial() > expected_gains[best]
        return None if new_is_better else best

    def _worth_resuming(self, expected_gains: dict[int, float]) -> list[int]:
        """Return the trials with enough expected gain, or else the good ones, which may be slow starters.

        Used when no new trial may start.
        """
        worth_it = [
            trial for trial, expected_gain in expected_gains.items() if self._is_worth_resuming(trial, expected_gain)
        ]
        return worth_it or [trial for trial in expected_gains if self._is_good(trial)]

    def _find_best(self, candidates: list[int], expected_gains: dict[int, float]) -> int | None:
        """Return the trial with the highest expected gain; ties go to the largest own front, then to the earlier trial."""
        return max(candidates, key=lambda trial: (expected_gains[trial], self._area_of(trial), -trial), default=None)

    def set_running(self, trial: int, running: bool) -> None:
        if self._trials.known(trial).running != running:
            self._trials.set_running(trial, running)
            self._update_expected_gains()

    def end(self, trial: int) -> None:
        self._trials.end(trial)
        self._expected_gains = {}

    @property
    def _front(self) -> Staircase:
        return next((front for front in self._fronts if front.area), self._fronts[-1])

    def _take(self, number: int, examples_seen: int, standing: Standing, ahead: Sequence[int]) -> None:
        """Record a trial's rung; the trial is paused for now."""
        trial = self._trials.known(number)
        points = np.asarray(standing.points, dtype=np.float64)
        curve = trial.curve
        curve.budgets_ahead = tuple(ahead)
        self._forecaster.add_rung(curve, examples_seen, points)
        curve.front = standing.front
        curve.area = standing.area
        trial.expected_gain = math.inf
        self._trials.pause(number)
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

    def _update_expected_gains(self) -> None:
        """Update all expected gains after an event. They are stored only here, so queries do not change state."""
        self._expected_gains, self._expected_gain_of_new = {}, None
        for trial, expected_gain in self.expected_gains(self._may_begin).items():
            self._trials[trial].expected_gain = expected_gain

    def _expected_gains_of_paused(self, may_begin: bool) -> dict[int, float]:
        front = self._predicted_front()
        paused = self._paused_by_expected_gain(may_begin)
        last_gains = [self._trials[number].expected_gain for number in paused]
        num_unknown = sum(map(math.isinf, last_gains))
        num_enough = self.num_candidates + num_unknown
        # If no trial runs or may start, check all before the search ends, until one is worth resuming.
        all_are_asked = not may_begin and not self._trials.any_runs
        expected_gains: dict[int, float] = {}
        for number in paused:
            are_enough = len(expected_gains) >= num_enough
            if are_enough and not all_are_asked:
                break
            expected_gain = self._expected_gain(number, front)
            expected_gains[number] = expected_gain
            if self._is_worth_resuming(number, expected_gain):
                all_are_asked = False
        return expected_gains

    def _predicted_front(self) -> Staircase:
        """Return the front as predicted if all running trials reach their predictions."""
        front = self._front.copy()
        running = self._trials.running_on.values()
        next_points = [self._forecaster.next_points(trial.curve) for trial in running]
        front.add_all(np.concatenate([np.empty((0, 2)), *next_points]))
        return front

    def _paused(self, may_begin: bool) -> list[int]:
        """Return the trials that could resume; with ``may_begin``, only the good ones."""
        paused = self._trials.paused
        if not may_begin:
            return list(paused)
        worst_good = self._worst_good
        return [number for number, trial in paused.items() if trial.rank <= worst_good[trial.peers]]

    def _paused_by_expected_gain(self, may_begin: bool) -> list[int]:
        """Return the trials that could resume, by falling last expected gain."""
        return sorted(self._paused(may_begin), key=lambda number: (-self._trials[number].expected_gain, number))

    def _first_to_go_on(self, may_begin: bool) -> int | None:
        """Return the best trial until any has continued past its first rung, since predictions need at least one."""
        if may_begin and self._trials.running_on:
            return None
        return max(self._paused(may_begin), key=lambda trial: (self._area_of(trial), -trial), default=None)

    def _area_of(self, trial: int) -> float:
        return self._trials[trial].curve.area

    def _is_worth_resuming(self, trial: int, expected_gain: float) -> bool:
        """Return whether a trial with this expected gain may resume if no new trial may start."""
        curve = self._trials[trial].curve
        examples_ahead = curve.budgets_ahead[-1] - curve.budgets[-1]
        return expected_gain * examples_ahead > MIN_RELATIVE_GAIN * self._front.area

    def _is_good(self, number: int) -> bool:
        """Return whether the trial is among the best that reached its budget."""
        trial = self._trials[number]
        return trial.rank <= self._worst_good[trial.peers]

    def _worst_of_good(self, peers: _Peers) -> tuple[float, int]:
        areas = self._areas[peers.budget]  # of all trials that reached it, best first
        return areas[max(1, peers.num_good(len(areas))) - 1]

    def _expected_gain(self, trial: int, front: Staircase) -> float:
        """Return the hypervolume per example that a paused trial is expected to add to the front from its last rung on."""
        curve = self._trials[trial].curve
        ahead = zip(curve.budgets_ahead, self._forecaster.points_ahead(curve), strict=True)
        return _largest_gain(front, ahead, curve.budgets[-1])

    def _expected_gain_of_a_new_trial(self) -> float:
        if self._expected_gain_of_new is None:
            self._expected_gain_of_new = self._mean_expected_gain_of_latest()
        return self._expected_gain_of_new

    def _mean_expected_gain_of_latest(self) -> float:
        """Return the mean gain of the latest trials from their start, each measured against the front without that trial."""
        begun = self._trials.begun
        if not begun:
            return math.inf
        largest = [begun[place] for place in itertools.islice(self._by_area, NUM_LARGEST)]
        front_of_largest = self._joint_front(largest)
        expected_gains = []
        for number in begun[-NUM_LATEST:]:
            front = front_of_largest
            if number in largest:
                others = [other for other in largest if other != number]
                front = self._joint_front(others)
            rungs = self._all_rungs(number)
            expected_gain = _largest_gain(front, rungs, 0)
            expected_gains.append(expected_gain)
        return float(np.mean(expected_gains))

    def _all_rungs(self, trial: int) -> Iterator[tuple[int, Float64Array]]:
        """Yield examples seen and points (points, 2) of a trial's rungs so far, then of its predicted rungs."""
        curve = self._trials[trial].curve
        yield from zip(curve.budgets, curve.points, strict=True)
        yield from zip(curve.budgets_ahead, self._forecaster.points_ahead(curve), strict=True)

    def _joint_front(self, trials: Iterable[int]) -> Staircase:
        front = Staircase(self.reference_point)
        points = [pair for trial in trials for pair in self._trials[trial].curve.front]
        front.add_all(np.array(points).reshape(-1, 2))
        return front


def _largest_gain(front: Staircase, rungs: Iterable[tuple[int, Float64Array]], begin: int) -> float:
    """Return the maximum over rungs of the area added to a front per example after ``begin``.

    ``rungs`` yields examples seen and points (points, 2).
    """
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
