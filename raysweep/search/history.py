"""The training data of the ``mfgp`` sampler: the results of a study's trials and their joint front."""

import itertools
import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.pareto import front_indices
from raysweep.search.conditional_space import Code, ConditionalSpace
from raysweep.search.encoding import Params
from raysweep.search.gaussian_process import TrainingSet

# The model is fitted to about NUM_VALUES values, one or two per trial. Half of the selected trials are
# the best ones, a quarter are the latest, and a quarter are sampled from the rest.
NUM_VALUES = 96
BEST_SHARE = 1 / 2
LATEST_SHARE = 1 / 4
# user attribute that maps each step to the list of the trial's points [P, S] so far
FRONTS = "raysweep:fronts"
# trials that failed before reporting a value get this quantile of the other trials' first values
FAILED_QUANTILE = 0.1


@dataclass(frozen=True)
class TrialResults:
    """A trial and its values, keyed by step; higher is better.

    The ``final`` value, if there is one, replaces the value at the last step. If the trial reports
    points, ``fronts`` maps each step to the points (n, 2) so far.
    """

    params: Params
    code: Code
    by_step: Mapping[int, float]
    final: float | None = None
    fronts: Mapping[int, Float64Array] = field(default_factory=dict)

    @cached_property
    def latest(self) -> float:
        """The final value, or else the latest reported one, or else minus infinity."""
        if self.final is not None:
            return self.final
        return self.by_step[max(self.by_step)] if self.by_step else -math.inf

    @cached_property
    def has_failed(self) -> bool:
        return self.final is None and not self.by_step

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The first and last step, without duplicates."""
        return tuple(sorted({min(self.by_step), max(self.by_step)})) if self.by_step else ()

    def first_and_latest(self, last_of_all: int) -> dict[int, float]:
        """Return the values at the first and latest step.

        If there are no steps, the final value is assigned to the step ``last_of_all``.
        """
        if not self.by_step:
            return {} if self.final is None else {last_of_all: self.final}
        values = {step: self.by_step[step] for step in self.ends}
        values[self.ends[-1]] = self.latest
        return values


@dataclass(frozen=True)
class Row:
    """A trial's step as training data. ``value`` is None if the trial failed before reporting one."""

    trial: int  # index among the trials used for training
    step: int
    value: float | None
    front: Float64Array | None  # (n, 2), if the study reports points


class JointFront:
    """The non-dominated points (P, S) of all trials, computed lazily.

    Each trial's own front is kept, because its points may join the joint front when other points are
    removed.
    """

    def __init__(self) -> None:
        self._points = np.empty((0, 2))  # each trial's own front
        self._owners = np.empty(0, dtype=np.int64)
        # Indices of the points on the joint front, by descending P.
        self._front: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._changed: dict[int, Float64Array] = {}  # own fronts not merged yet, keyed by trial

    def put(self, trial: int, points: Float64Array) -> None:
        """Replace a trial's points (n, 2)."""
        # Move the trial to the end, because the earlier of two equal points is on the front.
        self._changed.pop(trial, None)
        self._changed[trial] = points[front_indices(points)]

    @property
    def points(self) -> Float64Array:
        """The points (n, 2) on the front, by descending P."""
        self._merge_changes()
        return self._points[self._front]

    @property
    def owners(self) -> NDArray[np.int64]:
        """The trial of each point on the front, (n,)."""
        self._merge_changes()
        return self._owners[self._front]

    def _merge_changes(self) -> None:
        if not self._changed:
            return
        changed = np.array(list(self._changed), dtype=np.int64)
        new_points = list(self._changed.values())
        num_points = [len(points) for points in new_points]
        new_owners = np.repeat(changed, num_points)

        stays = ~np.isin(self._owners, changed)
        front = self._front_of(stays)
        staying_points = self._points[stays]
        staying_owners = self._owners[stays]
        self._points = np.concatenate([staying_points, *new_points])
        self._owners = np.concatenate([staying_owners, new_owners])

        index_after = np.cumsum(stays) - 1
        front_after = index_after[front]
        new = np.arange(len(staying_owners), len(self._owners))
        self._front = self._join(front_after, new)
        self._changed = {}

    def _front_of(self, stays: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the front of the remaining points, by descending P."""
        is_staying = stays[self._front]
        staying = self._front[is_staying]
        leaving = self._front[~is_staying]
        leaving_points = self._points[leaving]
        polarity, similarity = self._points.T
        is_dominated = np.zeros(len(stays), dtype=np.bool_)  # by a leaving point, or equal to one
        for leaving_polarity, leaving_similarity in leaving_points.tolist():
            is_left = polarity <= leaving_polarity
            is_below = similarity <= leaving_similarity
            is_dominated |= is_left & is_below
        candidates = np.flatnonzero(is_dominated & stays)
        return self._join(staying, candidates)

    def _join(self, front: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the joint front of ``others`` and ``front``, which is sorted by descending P."""
        polarity, similarity = self._points[front].T
        other_polarity, other_similarity = self._points[others].T
        # number of front points with at least the same P, and the highest S among them
        num_higher = np.searchsorted(-polarity, -other_polarity, side="right")
        highest_by_count = np.append(-np.inf, similarity)
        highest = highest_by_count[num_higher]
        uncovered = others[other_similarity > highest]
        candidates = np.concatenate([front, uncovered])
        on_front = front_indices(self._points[candidates])
        joint_front: NDArray[np.int64] = candidates[on_front]
        return joint_front


class History:
    """The encoded trials of a study, keyed by number.

    If the study ``has_points``, steps without finite points in the user attribute FRONTS are ignored,
    and ``joint_front`` is the front of all trials' points at their latest steps.
    """

    def __init__(self, space: ConditionalSpace, *, has_points: bool = False) -> None:
        self._space = space
        self._has_points = has_points
        self._finished: dict[int, TrialResults] = {}
        self._codes: dict[
            int, tuple[int, Code]
        ] = {}  # number of parameters and code, keyed by trial
        self._left_out: set[int] = set()  # trials that did not suggest all parameters
        self._on_front: dict[
            int, Float64Array
        ] = {}  # points passed to the joint front, keyed by trial
        self.joint_front = JointFront()
        self.results: dict[int, TrialResults] = {}  # trials that have values or failed
        self.num_with_values = 0  # number of trials that have not failed
        self.pending: dict[int, Code] = {}  # running trials without values
        self.running: set[Code] = set()  # codes of running trials
        self.tried: set[Code] = set()  # codes of all finished trials

    def read(self, trials: Sequence[FrozenTrial], sign: int, current: int) -> None:
        """Read the current state of all trials except ``current``, whose parameters are being sampled.

        ``sign`` is -1 if the study is minimized, or else 1.
        """
        self.results.clear()
        self.pending.clear()
        self.running.clear()
        for trial in trials:
            number = trial.number
            if number in self._finished:
                self.results[number] = self._finished[number]
            elif number in self._left_out:
                continue
            elif trial.state.is_finished():
                self._finish(trial, sign)
            elif trial.state == TrialState.RUNNING and number != current and trial.params:
                results = self._read_results(trial, sign)
                self.running.add(results.code)
                if results.by_step:
                    self.results[number] = results
                    self._put_on_front(number, results)
                else:
                    self.pending[number] = results.code
        self.num_with_values = sum(not results.has_failed for results in self.results.values())
        # trials that are no longer in the storage
        for number in self._on_front.keys() - self.results.keys():
            del self._on_front[number]
            self._finished.pop(number, None)
            self.joint_front.put(number, np.empty((0, 2)))

    def _finish(self, trial: FrozenTrial, sign: int) -> None:
        """Record a finished trial, unless it did not suggest all parameters."""
        number = trial.number
        params = trial.params
        has_failed = trial.state == TrialState.FAIL
        is_usable = has_failed or self._space.is_complete(params)
        if not is_usable or not params:
            self._left_out.add(number)
            return
        results = self._read_results(trial, sign)
        self._finished[number] = results
        self.results[number] = results
        self.tried.add(results.code)
        self._put_on_front(number, results)

    def _put_on_front(self, number: int, results: TrialResults) -> None:
        """Add the points at the trial's latest step to the joint front if they have changed."""
        if not results.fronts:
            return
        points = results.fronts[max(results.fronts)]
        if number not in self._on_front or not np.array_equal(points, self._on_front[number]):
            self._on_front[number] = points
            self.joint_front.put(number, points)

    def _read_results(self, trial: FrozenTrial, sign: int) -> TrialResults:
        """Return a trial's results. A trial whose latest value is not finite is treated as failed."""
        params = trial.params
        num_encoded, code = self._codes.get(trial.number, (-1, ()))
        if num_encoded != len(params):  # the trial has suggested another parameter
            code = self._space.code(params)
            self._codes[trial.number] = (len(params), code)
        by_step = {step: sign * value for step, value in trial.intermediate_values.items()}
        if self._has_points:
            results = TrialResults(params, code, by_step)
            fronts = trial.user_attrs.get(FRONTS, {})
            try:
                return _add_points(results, fronts)
            except (AttributeError, OverflowError, TypeError, ValueError):
                raise ValueError(
                    f"trial {trial.number}: {FRONTS!r} is {reprlib.repr(fronts)}; allowed: a mapping from "
                    "steps to lists of points with two scores each"
                ) from None
        final = sign * trial.values[0] if trial.state == TrialState.COMPLETE else None
        results = TrialResults(params, code, by_step, final)
        if not math.isfinite(results.latest):
            return TrialResults(params, code, {})
        finite = {step: value for step, value in by_step.items() if math.isfinite(value)}
        return TrialResults(params, code, finite, final)

    @property
    def codes_with_values(self) -> list[Code]:
        """The codes of running trials that have values."""
        return [
            results.code for number, results in self.results.items() if number not in self._finished
        ]

    @property
    def codes(self) -> list[Code]:
        """The codes of all trials that have started."""
        return [*(results.code for results in self.results.values()), *self.pending.values()]

    def best(self, count: int) -> list[int]:
        """Return the numbers of the ``count`` best trials, best first."""
        numbers = list(self.results)
        worth = np.array([results.latest for results in self.results.values()])
        # a stable sort breaks ties in favor of the first trial
        order = np.argsort(-worth, kind="stable")
        return [numbers[place] for place in order[:count]]

    def training_data(self, random: np.random.Generator) -> tuple[TrainingSet, list[Row]]:
        """Return training data with the first and latest step of selected trials."""
        ends = [results.ends for results in self.results.values()]
        steps = set(itertools.chain.from_iterable(ends)) or {0}
        first, last = min(steps), max(steps)
        numbers = sorted(self._choose_trials(random))
        chosen = [self.results[number] for number in numbers]
        rows = []
        for index, results in enumerate(chosen):
            values = results.first_and_latest(last)
            if not values:  # a failed trial
                rows.append(Row(index, first, None, None))
            for step, value in values.items():
                front = results.fronts.get(step)
                row = Row(index, step, value, front)
                rows.append(row)
        # shift steps to start at 1 or higher, because 0 cannot be doubled
        offset = max(0, 1 - first)
        budgets = np.array([row.step for row in rows]) + offset
        smallest, largest = first + offset, last + offset
        training = TrainingSet(
            codes=np.array([results.code for results in chosen]),
            categorical=self._space.categorical,
            trial_index=np.array([row.trial for row in rows]),
            doublings=np.log2(budgets / smallest),
            max_doublings=math.log2(largest / smallest),
        )
        return training, rows

    def _choose_trials(self, random: np.random.Generator) -> set[int]:
        """Return the trials to train on, which have roughly NUM_VALUES values in total."""
        num_values = sum(len(results.ends) or 1 for results in self.results.values())
        count = NUM_VALUES * len(self.results) // num_values
        num_best = int(count * BEST_SHARE)
        num_latest = int(count * LATEST_SHARE)
        chosen = set(self.best(num_best))
        others = [number for number in self.results if number not in chosen]
        latest = others[-num_latest:]
        older = others[:-num_latest]
        chosen.update(latest)
        shuffled = random.permutation(older).tolist()
        num_sampled = count - len(chosen)
        chosen.update(shuffled[:num_sampled])
        return chosen


def _add_points(results: TrialResults, fronts: Mapping[Any, Any]) -> TrialResults:
    """Add the reported points to the trial's results, keeping only steps that have points."""
    points_by_step: dict[int, Float64Array] = {}
    for key, front in fronts.items():
        if not len(front):
            continue
        step = int(key)  # the storage may have converted it to a string
        points = np.array(front, dtype=np.float64)
        if points.shape[1:] != (2,):
            raise ValueError("a point does not have two scores")
        is_finite = np.isfinite(points)
        if is_finite.all():
            points_by_step[step] = points
    by_step = {}
    for step, value in results.by_step.items():
        has_points = step in points_by_step
        if has_points and math.isfinite(value):
            by_step[step] = value
    fronts_by_step = {step: points_by_step[step] for step in by_step}
    return replace(results, by_step=by_step, fronts=fronts_by_step)


def row_values(rows: Sequence[Row]) -> Float64Array:
    """Return the values of the rows, (rows, 1)."""
    values = [[row.value] for row in rows if row.value is not None]
    return fill_failed(rows, np.array(values))


def fill_failed(rows: Sequence[Row], entries: Float64Array) -> Float64Array:
    """Return one entry per row, (rows, ...), given the entries (n, ...) of the rows with a value.

    Failed rows get a low quantile of the entries of the trials' first rows.
    """
    has_failed = np.array([row.value is None for row in rows])
    if not has_failed.any():
        return entries
    has_value = ~has_failed
    trials = [row.trial for row in rows]
    is_first = np.diff(trials, prepend=-1) > 0
    first_entries = entries[is_first[has_value]]
    filled = np.empty((len(rows), *entries.shape[1:]))
    filled[has_failed] = np.quantile(first_entries, FAILED_QUANTILE, axis=0)
    filled[has_value] = entries
    return filled
