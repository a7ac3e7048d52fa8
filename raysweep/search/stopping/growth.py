"""The ``growth`` early stopping policy, which continues the trial with the highest expected gain.

The expected gain is the hypervolume that a trial is expected to add to the front per example of further
training. After each rung, a trial pauses unless its expected gain is the highest. The gain of a paused
trial is predicted from the past movement of its points and the movement of other trials' points after
the same budget (:mod:`raysweep.search.stopping.learning_curve`). The gain of a new trial is estimated as
the mean gain of the latest trials, each measured against the front of the other trials.

While new trials are left to start, only good trials resume, because early gains are mostly noise. After
the first rung, these are the best quarter by area. After a later rung at budget b, they are the best
b / c of the trials that reached b, where c is the next budget. Each rung level thus gets about the same
share of the training. Once all trials have started, any trial with an expected gain may resume. If there
is none, good trials resume anyway, because slow starters are easily underestimated. Trials are compared
only at equal budgets.
"""

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.scores import Pair
from raysweep.metrics.staircase import Staircase
from raysweep.search.stopping.base import Standing
from raysweep.search.stopping.learning_curve import Forecaster, LearningCurve

# number of paused trials whose expected gains are updated, in addition to those that have none yet
NUM_CANDIDATES = 24
# A trial is worth resuming if the front's area is expected to grow by more than this fraction.
MIN_RELATIVE_GAIN = 0.0001
# Until all trials have started, only the best 1 in N trials may resume after the first rung.
PROMOTED_ONE_IN = 4
NUM_LATEST = 12  # number of latest trials used to estimate the gain of a new one
NUM_STARTED_FIRST = 3  # number of trials started before any resumes
# The gain of a new trial is measured against the front of this many trials with the largest areas.
NUM_LARGEST = 32


class _Peers(NamedTuple):
    """The budgets of a group of paused trials that share a quota for resuming."""

    budget: int
    is_first_rung: bool
    next_budget: int

    def num_good(self, num_reached: int) -> int:
        """Return how many of the trials that reached the budget may resume while new trials are left to start."""
        if self.is_first_rung:
            return num_reached // PROMOTED_ONE_IN
        return num_reached * self.budget // self.next_budget


@dataclass
class _Trial:
    """A trial and its learning curve."""

    curve: LearningCurve = field(default_factory=LearningCurve)
    is_running: bool = True
    has_ended: bool = False
    expected_gain: float = math.inf  # infinite after a rung until it is computed
    peers: _Peers = field(init=False)  # set while the trial is paused
    rank: tuple[float, int] = field(init=False)  # negated area, then trial number

    @property
    def is_paused(self) -> bool:
        """Whether the trial could resume."""
        return bool(self.curve.budgets_ahead) and not (self.is_running or self.has_ended)

    @property
    def has_next_rung(self) -> bool:
        """Whether the trial is running, has completed a rung, and has another one ahead."""
        return self.is_running and bool(self.curve.points) and bool(self.curve.budgets_ahead)


class _Trials:
    """All trials by number, with indices of the paused and running ones."""

    def __init__(self) -> None:
        self.paused: dict[int, _Trial] = {}
        self.running: dict[int, _Trial] = {}  # only trials between two rungs
        self.with_rungs: list[int] = []  # trials with a completed rung, by time of the first one
        self._all: dict[int, _Trial] = {}

    def __getitem__(self, number: int) -> _Trial:
        return self._all[number]

    def __len__(self) -> int:
        return len(self._all)

    def add(self, number: int) -> _Trial:
        """Return the trial with this number, creating it if it is unknown."""
        return self._all.setdefault(number, _Trial())

    @property
    def has_running(self) -> bool:
        """Whether any trial is running, including those before their first rung."""
        return any(trial.is_running for trial in self._all.values())

    def pause(self, number: int) -> None:
        """Pause a trial after a rung."""
        if len(self._all[number].curve.points) == 1:
            self.with_rungs.append(number)
        self.set_running(number, running=False)

    def set_running(self, number: int, *, running: bool) -> None:
        self._all[number].is_running = running
        self._update_indices(number)

    def end(self, number: int) -> None:
        trial = self.add(number)
        trial.has_ended = True
        trial.is_running = False
        self._update_indices(number)

    def _update_indices(self, number: int) -> None:
        trial = self._all[number]
        for index, belongs in ((self.paused, trial.is_paused), (self.running, trial.has_next_rung)):
            if belongs:
                index[number] = trial
            else:
                index.pop(number, None)


class Ranking:
    """Numbers sorted by value, largest first; ties go to the lower number."""

    def __init__(self) -> None:
        self._keys: dict[int, tuple[float, int]] = {}
        self._sorted: list[tuple[float, int]] = []

    def __iter__(self) -> Iterator[int]:
        return (number for _, number in self._sorted)

    def put(self, number: int, value: float) -> None:
        """Set or replace the value of a number."""
        previous = self._keys.get(number)
        if previous is not None:
            del self._sorted[bisect.bisect_left(self._sorted, previous)]
        key = self._keys[number] = (-value, number)
        bisect.insort(self._sorted, key)


class Growth:
    """The ``growth`` policy; see the module docstring.

    Args:
        reference_point: Reference point for hypervolumes, including any constraints.
        origin: P and S of an untrained trial, or None if unknown.
        wider: Lower reference point, used until a point exceeds ``reference_point``.
    """

    def __init__(
        self, reference_point: Pair, origin: Pair | None, wider: Pair | None = None
    ) -> None:
        reference_points = dict.fromkeys((reference_point, wider or reference_point))
        self._fronts = [Staircase(point) for point in reference_points]
        self._forecaster = Forecaster(origin)
        self._trials = _Trials()
        self._ranks: dict[int, list[tuple[float, int]]] = {}  # sorted ranks, keyed by budget
        self._worst_good: dict[_Peers, tuple[float, int]] = {}  # rank of the worst good trial
        self._by_area = Ranking()  # trials' places (see `_places`), ranked by area
        self._places: dict[int, int] = {}  # place in the order of first rungs, keyed by trial
        self._can_start = True  # whether a new trial could start when the latest rung was recorded
        self._expected_gains: dict[bool, dict[int, float]] = {}  # keyed by can_start, then by trial
        self._expected_gain_of_new: float | None = None

    @property
    def reference_point(self) -> Pair:
        """The reference point currently used to compute hypervolumes."""
        return self._front.reference_point

    def expected_gains(self, can_start: bool) -> dict[int, float]:
        """Return the expected gains of paused trials, limited to those with the highest previous gains."""
        if can_start in self._expected_gains:
            return self._expected_gains[can_start]
        last_gains = {
            number: self._trials[number].expected_gain for number in self._resumable(can_start)
        }
        candidates = sorted(last_gains, key=lambda number: (-last_gains[number], number))
        num_unknown = sum(map(math.isinf, last_gains.values()))
        num_enough = NUM_CANDIDATES + num_unknown
        # If no trial is running or can start, the search ends unless some trial is worth resuming.
        must_check_all = not can_start and not self._trials.has_running
        # Assume that all running trials reach their predicted points.
        next_points = [np.empty((0, 2))]
        for trial in self._trials.running.values():
            next_points.append(self._forecaster.next_points(trial.curve))
        front = self._front.copy()
        front.add_all(np.concatenate(next_points))
        expected_gains: dict[int, float] = {}
        for number in candidates:
            if len(expected_gains) >= num_enough and not must_check_all:
                break
            curve = self._trials[number].curve
            points_ahead = self._forecaster.points_ahead(curve)
            rungs = zip(curve.budgets_ahead, points_ahead, strict=True)
            gain = _largest_gain(front, rungs, curve.budgets[-1])
            expected_gains[number] = gain
            if self._is_worth_resuming(number, gain):
                must_check_all = False
        self._expected_gains[can_start] = expected_gains
        return expected_gains

    def on_rung(
        self,
        trial: int,
        examples_seen: int,
        standing: Standing,
        ahead: Sequence[int],
        can_start: bool,
    ) -> str | None:
        self._can_start = can_start
        self._record_rung(trial, examples_seen, standing, ahead)
        self._update_expected_gains()
        if self.next_to_resume(can_start) == trial:
            self.set_running(trial, running=True)
            return None
        return "lower expected gain"

    def next_to_resume(self, can_start: bool) -> int | None:
        if can_start and len(self._trials) < NUM_STARTED_FIRST:
            return None
        # predictions require a trial that has completed two rungs
        if not self._forecaster.has_learned:
            if can_start and self._trials.running:
                return None
            resumable = self._resumable(can_start)
            return max(resumable, key=lambda trial: (self._area_of(trial), -trial), default=None)
        expected_gains = self.expected_gains(can_start)
        candidates = list(expected_gains)
        if not can_start:
            worth_resuming = [
                trial
                for trial, gain in expected_gains.items()
                if self._is_worth_resuming(trial, gain)
            ]
            # Good trials with no expected gain may be slow starters.
            candidates = worth_resuming or [trial for trial in candidates if self._is_good(trial)]
        if not candidates:
            return None
        # Ties go to the trial with the larger area, then to the earlier one.
        best = max(
            candidates, key=lambda trial: (expected_gains[trial], self._area_of(trial), -trial)
        )
        new_is_better = can_start and self._expected_gain_of_new_trial() > expected_gains[best]
        return None if new_is_better else best

    def set_running(self, trial: int, running: bool) -> None:
        if self._trials.add(trial).is_running != running:
            self._trials.set_running(trial, running=running)
            self._update_expected_gains()

    def end(self, trial: int) -> None:
        self._trials.end(trial)
        self._expected_gains = {}

    @property
    def _front(self) -> Staircase:
        return next((front for front in self._fronts if front.area), self._fronts[-1])

    def _record_rung(
        self, number: int, examples_seen: int, standing: Standing, ahead: Sequence[int]
    ) -> None:
        """Record a rung and pause the trial."""
        trial = self._trials.add(number)
        curve = trial.curve
        points = np.asarray(standing.points, dtype=np.float64)
        curve.budgets_ahead = tuple(ahead)
        self._forecaster.add_rung(curve, examples_seen, points)
        curve.front = standing.front
        curve.area = standing.area
        trial.expected_gain = math.inf
        self._trials.pause(number)
        trial.rank = (-curve.area, number)
        ranks_at_budget = self._ranks.setdefault(examples_seen, [])
        bisect.insort(ranks_at_budget, trial.rank)
        if ahead:
            is_first_rung = len(curve.points) == 1
            trial.peers = _Peers(examples_seen, is_first_rung, ahead[0])
            self._worst_good[trial.peers] = trial.rank
        for peers in self._worst_good:
            ranks = self._ranks[peers.budget]
            num_good = max(1, peers.num_good(len(ranks)))
            self._worst_good[peers] = ranks[num_good - 1]
        place = self._places.setdefault(number, len(self._places))
        self._by_area.put(place, curve.area)
        for front in self._fronts:
            front.add_all(points)

    def _update_expected_gains(self) -> None:
        """Update the trials' expected gains after an event."""
        self._expected_gains, self._expected_gain_of_new = {}, None
        for trial, expected_gain in self.expected_gains(self._can_start).items():
            self._trials[trial].expected_gain = expected_gain

    def _resumable(self, can_start: bool) -> list[int]:
        """Return the trials that could resume; with ``can_start``, only the good ones."""
        return [number for number in self._trials.paused if not can_start or self._is_good(number)]

    def _area_of(self, trial: int) -> float:
        return self._trials[trial].curve.area

    def _is_worth_resuming(self, trial: int, expected_gain: float) -> bool:
        """Return whether a trial with this expected gain may resume once no new trials can start."""
        curve = self._trials[trial].curve
        examples_ahead = curve.budgets_ahead[-1] - curve.budgets[-1]
        return expected_gain * examples_ahead > MIN_RELATIVE_GAIN * self._front.area

    def _is_good(self, number: int) -> bool:
        """Return whether the trial is among the best of those that reached its budget."""
        trial = self._trials[number]
        return trial.rank <= self._worst_good[trial.peers]

    def _expected_gain_of_new_trial(self) -> float:
        """Return the mean gain of the latest trials, each measured against the front of the other trials."""
        if self._expected_gain_of_new is not None:
            return self._expected_gain_of_new
        with_rungs = self._trials.with_rungs
        if not with_rungs:
            return math.inf
        largest = [with_rungs[place] for place in itertools.islice(self._by_area, NUM_LARGEST)]
        front_of_largest = self._joint_front(largest)
        gains = []
        for number in with_rungs[-NUM_LATEST:]:
            front = front_of_largest
            if number in largest:
                front = self._joint_front(other for other in largest if other != number)
            curve = self._trials[number].curve
            budgets = (*curve.budgets, *curve.budgets_ahead)
            points = (*curve.points, *self._forecaster.points_ahead(curve))
            rungs = zip(budgets, points, strict=True)
            gains.append(_largest_gain(front, rungs, 0))
        self._expected_gain_of_new = float(np.mean(gains))
        return self._expected_gain_of_new

    def _joint_front(self, trials: Iterable[int]) -> Staircase:
        front = Staircase(self.reference_point)
        fronts = [self._trials[trial].curve.front for trial in trials]
        points = np.array(list(itertools.chain.from_iterable(fronts)))
        front.add_all(points.reshape(-1, 2))
        return front


def _largest_gain(front: Staircase, rungs: Iterable[tuple[int, Float64Array]], begin: int) -> float:
    """Return the largest gain at any rung: the area added to the front per example seen after ``begin``.

    ``rungs`` yields pairs of examples seen and points (points, 2).
    """
    all_rungs = list(rungs)
    are_above = front.is_surpassed_by(np.concatenate([points for _, points in all_rungs]))
    if not are_above.any():
        return 0.0
    front = front.copy()
    added = largest = 0.0
    last = 0
    for examples_seen, points in all_rungs:
        first = last
        last += len(points)
        for pair in points[are_above[first:last]].tolist():
            added += front.add(tuple(pair))
        largest = max(largest, added / (examples_seen - begin))
    return largest
