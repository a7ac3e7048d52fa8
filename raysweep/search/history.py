"""The results of a study's trials, from which the ``mfgp`` sampler learns, and their joint front."""

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

# The model is fitted to about NUM_VALUES values, from one or two steps per trial: half of the trials used are the best
# ones, a quarter are the latest ones, and a quarter are sampled from the rest.
NUM_VALUES = 96
BEST_SHARE = 1 / 2
LATEST_SHARE = 1 / 4
# user attribute of a trial that maps each step to the trial's points [P, S] up to then
FRONTS = "raysweep:fronts"
# trials that failed before reporting a value are assigned this quantile of the trials' first values
FAILED_QUANTILE = 0.1


@dataclass(frozen=True)
class TrialResults:
    """A trial and its value at each reported step; higher is better.

    ``by_step`` is empty if the trial failed or was pruned before it reported anything. The ``final`` value, if there is
    one, replaces the value at the last step. If the trial reports points, ``fronts`` maps each step to the points (n, 2)
    up to then.
    """

    params: Params
    code: Code
    by_step: Mapping[int, float]
    final: float | None = None
    fronts: Mapping[int, Float64Array] = field(default_factory=dict)

    @cached_property
    def latest(self) -> float:
        """The final value, or else the latest reported one; minus infinity if the trial failed."""
        if self.final is not None:
            return self.final
        return self.by_step[max(self.by_step)] if self.by_step else -math.inf

    @cached_property
    def has_failed(self) -> bool:
        return self.final is None and not self.by_step

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The first and last step; a single entry if they are the same, and empty if there are no steps."""
        return tuple(sorted({min(self.by_step), max(self.by_step)})) if self.by_step else ()

    def first_and_latest(self, last_of_all: int) -> dict[int, float]:
        """Return the values at the first and latest step; without steps, a final value is assigned to ``last_of_all``."""
        if not self.by_step:
            return {} if self.final is None else {last_of_all: self.final}
        values = {step: self.by_step[step] for step in self.ends}
        values[self.ends[-1]] = self.latest
        return values


@dataclass(frozen=True)
class Row:
    """One step of a trial as training data; ``value`` is None if the trial failed before reporting a value."""

    trial: int  # index among the trials used for training
    step: int
    value: float | None
    front: Float64Array | None  # (n, 2), if the study reports points


class JointFront:
    """The non-dominated points (P, S) of all trials.

    The front is computed lazily. A point that leaves it may uncover others, so every trial's points are kept. An update
    examines only the points that a leaving point dominated, and sorts only those that the rest of the front does not
    dominate.
    """

    def __init__(self) -> None:
        self._points = np.empty((0, 2))  # every trial's own front
        self._owners = np.empty(0, dtype=np.int64)
        # Indices of the points on the joint front, by descending P.
        self._front: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._changed: dict[
            int, Float64Array
        ] = {}  # trials' own fronts that have not been merged yet

    def put(self, trial: int, points: Float64Array) -> None:
        """Replace a trial's points (n, 2)."""
        # moves the trial to the end: of two trials with equal points, the earlier entry is on the front
        self._changed.pop(trial, None)
        self._changed[trial] = points[front_indices(points)]

    @property
    def points(self) -> Float64Array:
        """The points on the front (n, 2), by descending P."""
        self._merge_changes()
        return self._points[self._front]

    @property
    def owners(self) -> NDArray[np.int64]:
        """The trials (n,) that the points belong to."""
        self._merge_changes()
        return self._owners[self._front]

    def _merge_changes(self) -> None:
        """Merge the points of trials that have changed."""
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
        """Return the front of the points that stay, by descending P."""
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
        """Return the joint front of ``front``, which is sorted by descending P, and other points."""
        polarity, similarity = self._points[front].T
        other_polarity, other_similarity = self._points[others].T
        # The number of front points with at least this P, and the highest S among them.
        num_higher = np.searchsorted(-polarity, -other_polarity, side="right")
        highest_by_count = np.append(-np.inf, similarity)
        highest = highest_by_count[num_higher]
        uncovered = others[other_similarity > highest]
        candidates = np.concatenate([front, uncovered])
        on_front = front_indices(self._points[candidates])
        joint_front: NDArray[np.int64] = candidates[on_front]
        return joint_front


class History:
    """The trials of a study, keyed by number and encoded in one space; :meth:`read` updates them.

    If the study ``has_points``, a step counts only if the trial's attribute FRONTS has finite points for it, and
    ``joint_front`` is the front of all trials' points at their latest steps.
    """

    def __init__(self, space: ConditionalSpace, *, has_points: bool = False) -> None:
        self._space = space
        self._has_points = has_points
        self._finished: dict[int, TrialResults] = {}
        self._codes: dict[
            int, tuple[int, Code]
        ] = {}  # keyed by trial: number of parameters, and code
        self._left_out: set[int] = set()  # trials that did not suggest all parameters
        self._on_front: dict[
            int, Float64Array
        ] = {}  # keyed by trial: its points on the joint front
        self.joint_front = JointFront()
        self.results: dict[int, TrialResults] = {}  # trials that have values or failed
        self.num_with_values = 0  # number of these trials that have not failed
        self.pending: dict[int, Code] = {}  # running trials without values
        self.running: set[Code] = set()  # codes of running trials
        self.tried: set[Code] = set()  # codes of all finished trials

    def read(self, trials: Sequence[FrozenTrial], sign: int, current: int) -> None:
        """Read the current state of all trials except ``current``, whose parameters are about to be sampled.

        ``sign`` is -1 if the study minimizes.
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
        # trials that the storage no longer shows
        for number in self._on_front.keys() - self.results.keys():
            del self._on_front[number]
            self._finished.pop(number, None)
            self.joint_front.put(number, np.empty((0, 2)))

    def _finish(self, trial: FrozenTrial, sign: int) -> None:
        """Record a finished trial permanently, or leave it out if it did not suggest all parameters."""
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
        """Update the joint front with the points at the trial's latest step, if they changed."""
        if not results.fronts:
            return
        points = results.fronts[max(results.fronts)]
        if number not in self._on_front or not np.array_equal(points, self._on_front[number]):
            self._on_front[number] = points
            self.joint_front.put(number, points)

    def _read_results(self, trial: FrozenTrial, sign: int) -> TrialResults:
        """Return a trial's results; like NaN in Optuna, a latest value that is not finite counts as a failure."""
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
        """The codes of running trials with values."""
        return [
            results.code for number, results in self.results.items() if number not in self._finished
        ]

    @property
    def codes(self) -> list[Code]:
        """The codes of all trials that have started."""
        return [*(results.code for results in self.results.values()), *self.pending.values()]

    def best(self, count: int) -> list[int]:
        """Return the numbers of the ``count`` trials with the highest values, best first."""
        numbers = list(self.results)
        worth = np.array([results.latest for results in self.results.values()])
        # a stable sort breaks ties in favor of the first trial
        order = np.argsort(-worth, kind="stable")
        return [numbers[place] for place in order[:count]]

    def training_data(self, random: np.random.Generator) -> tuple[TrainingSet, list[Row]]:
        """Return the training data: the first and latest step of each chosen trial."""
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
        # steps counted from 0 are shifted to start at 1, since 0 cannot be doubled
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
        """Return the trials to train on, limited so that they have roughly NUM_VALUES values in total."""
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
    """Add the reported points to the trial's results, keeping only steps that have points.

    The storage may have converted the steps to text.
    """
    points_by_step: dict[int, Float64Array] = {}
    for key, front in fronts.items():
        if not len(front):
            continue
        step = int(key)
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
    """Return the value of each row, (rows, 1)."""
    values = [[row.value] for row in rows if row.value is not None]
    return fill_failed(rows, np.array(values))


def fill_failed(rows: Sequence[Row], entries: Float64Array) -> Float64Array:
    """Return one entry per row, (rows, ...); failed rows get a low quantile of the entries of the trials' first rows.

    ``entries`` (n, ...) contains the entries of the rows that have a value.
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
