"""The results of a study's trials, as the sampler ``mfgp`` learns from them."""

import itertools
import math
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from raysweep.metrics.arrays import Float64Array
from raysweep.search.conditional_space import Code, ConditionalSpace
from raysweep.search.encoding import Params
from raysweep.search.gaussian_process import TrainingSet
from raysweep.search.joint_front import JointFront

# The model is fitted to about NUM_VALUES values, one or two steps per trial: half of the trials used are the best ones,
# a quarter the latest, and the rest are sampled from the others.
NUM_VALUES = 96
BEST_SHARE = 1 / 2
LATEST_SHARE = 1 / 4


FRONTS = "raysweep:fronts"  # user attribute of a trial: by step, the list of its points [P, S] so far


FAILED_QUANTILE = 0.1  # of the trials' first values; assigned to a trial that failed without any


@dataclass(frozen=True)
class Shown:
    """A trial and its value at each reported step, the higher the better.

    ``by_step`` is empty if the trial failed or was pruned before it reported anything. A ``final`` value, if any,
    replaces the value at the last step. ``fronts`` holds the trial's points (n, 2) so far at each step, if it reports
    them.
    """

    params: Params
    code: Code
    by_step: Mapping[int, float]
    final: float | None = None
    fronts: Mapping[int, Float64Array] = field(default_factory=dict)

    @cached_property
    def latest(self) -> float:
        """Final or latest value; minus infinity if the trial failed."""
        if self.final is not None:
            return self.final
        return self.by_step[max(self.by_step)] if self.by_step else -math.inf

    @cached_property
    def has_failed(self) -> bool:
        return self.final is None and not self.by_step

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """First and last step: one entry if they are equal, empty without steps."""
        return tuple(sorted({min(self.by_step), max(self.by_step)})) if self.by_step else ()

    def first_and_latest(self, last_of_all: int) -> dict[int, float]:
        """Return the values at the first and latest step; a final value without steps is assigned to ``last_of_all``."""
        if not self.by_step:
            return {} if self.final is None else {last_of_all: self.final}
        values = {step: self.by_step[step] for step in self.ends}
        return {**values, self.ends[-1]: self.latest}


@dataclass(frozen=True)
class Row:
    """One step of a trial as training data; without a value if the trial failed before it reported any."""

    trial: int  # index among the trials used for training
    step: int
    value: float | None
    front: Float64Array | None  # (n, 2), if the study reports points


class History:
    """The trials of a study by number, as of the last :meth:`read`, encoded in one space.

    If the study ``tells_points``, a step counts only if the trial's attribute FRONTS has finite points for it, and
    ``joint_front`` is the front of all trials' points at their latest steps.
    """

    def __init__(self, space: ConditionalSpace, *, tells_points: bool = False) -> None:
        self._space = space
        self._tells_points = tells_points
        self._finished: dict[int, Shown] = {}
        self._codes: dict[int, tuple[int, Code]] = {}  # number of parameters, and the code
        self._left_out: set[int] = set()  # trials that did not suggest all parameters
        self._on_front: dict[int, Float64Array] = {}  # by trial, its points on the joint front
        self.joint_front = JointFront()
        self.shown: dict[int, Shown] = {}  # trials with values, or failed
        self.num_with_values = 0  # number of these that have not failed
        self.pending: dict[int, Code] = {}  # running trials without values
        self.running: set[Code] = set()  # codes of running trials
        self.tried: set[Code] = set()  # codes of all finished trials

    def read(self, trials: Sequence[FrozenTrial], sign: int, current: int) -> None:
        """Update the state of all trials except the ``current`` one, which is about to be sampled.

        ``sign`` is -1 if the study minimizes.
        """
        self.shown.clear()
        self.pending.clear()
        self.running.clear()
        for trial in trials:
            number = trial.number
            if number in self._finished:
                self.shown[number] = self._finished[number]
            elif number in self._left_out:
                continue
            elif trial.state.is_finished():
                self._finish(trial, sign)
            elif trial.state == TrialState.RUNNING and number != current and trial.params:
                shown = self._shown(trial, sign)
                self.running.add(shown.code)
                if shown.by_step:
                    self.shown[number] = shown
                    self._put_on_front(number, shown)
                else:
                    self.pending[number] = shown.code
        self.num_with_values = sum(not shown.has_failed for shown in self.shown.values())
        for number in self._on_front.keys() - self.shown.keys():
            self._forget(number)

    def _forget(self, number: int) -> None:
        """Remove a trial with points that the storage no longer shows."""
        del self._on_front[number]
        self._finished.pop(number, None)
        self.joint_front.put(number, np.empty((0, 2)))

    def _finish(self, trial: FrozenTrial, sign: int) -> None:
        """Record a finished trial for good, or leave it out if it did not suggest all parameters."""
        has_failed = trial.state == TrialState.FAIL
        if not trial.params or not (has_failed or self._space.is_whole(trial.params)):
            self._left_out.add(trial.number)
            return
        shown = self._shown(trial, sign)
        self._finished[trial.number] = self.shown[trial.number] = shown
        self.tried.add(shown.code)
        self._put_on_front(trial.number, shown)

    def _put_on_front(self, number: int, shown: Shown) -> None:
        """Update the joint front with the points of the trial's latest step, if they changed."""
        if not shown.fronts:
            return
        points = shown.fronts[max(shown.fronts)]
        if number not in self._on_front or not np.array_equal(points, self._on_front[number]):
            self._on_front[number] = points
            self.joint_front.put(number, points)

    def _shown(self, trial: FrozenTrial, sign: int) -> Shown:
        """Return the results of a trial, which counts as failed if its latest value is not finite, like NaN in Optuna."""
        code = self._code(trial)
        by_step = {step: sign * value for step, value in trial.intermediate_values.items()}
        final = sign * trial.values[0] if trial.state == TrialState.COMPLETE else None
        if self._tells_points:
            told = trial.user_attrs.get(FRONTS, {})
            try:
                return _with_points(Shown(trial.params, code, by_step), told)
            except (AttributeError, OverflowError, TypeError, ValueError):
                is_this = f"trial {trial.number}: {FRONTS!r} is {reprlib.repr(told)}"
                raise ValueError(f"{is_this}; allowed: by step, a list of points of two scores each") from None
        shown = Shown(trial.params, code, by_step, final)
        if not math.isfinite(shown.latest):
            return Shown(trial.params, code, {})
        if all(map(math.isfinite, by_step.values())):
            return shown
        finite = {step: value for step, value in by_step.items() if math.isfinite(value)}
        return Shown(trial.params, code, finite, final)

    def _code(self, trial: FrozenTrial) -> Code:
        """Return the trial's code, cached until its number of parameters changes."""
        count, code = self._codes.get(trial.number, (-1, ()))
        if count != len(trial.params):
            code = self._space.code(trial.params)
            self._codes[trial.number] = (len(trial.params), code)
        return code

    @property
    def rising(self) -> list[Code]:
        """Codes of running trials with values."""
        return [shown.code for number, shown in self.shown.items() if number not in self._finished]

    @property
    def codes(self) -> list[Code]:
        """Codes of all trials that have started."""
        return [*(shown.code for shown in self.shown.values()), *self.pending.values()]

    def best(self, count: int) -> list[int]:
        """Return the numbers of the ``count`` trials with the highest values, best first."""
        numbers = list(self.shown)
        worth = np.array([shown.latest for shown in self.shown.values()])
        order = np.argsort(-worth, kind="stable")  # stable: the first of equal values
        return [numbers[place] for place in order[:count]]

    def lessons(self, random: np.random.Generator) -> tuple[TrainingSet, list[Row]]:
        """Return the training data: the first and the latest step of each chosen trial."""
        steps = set(itertools.chain.from_iterable(shown.ends for shown in self.shown.values())) or {0}
        first, last = min(steps), max(steps)
        chosen = [self.shown[number] for number in sorted(self._to_learn_from(random))]
        rows = [row for place, shown in enumerate(chosen) for row in _rows_of(place, shown, first, last)]
        offset = max(0, 1 - first)  # steps counted from 0 are doubled from 1
        budgets = np.array([row.step for row in rows]) + offset
        smallest, largest = first + offset, last + offset
        training = TrainingSet(
            codes=np.array([shown.code for shown in chosen]),
            categorical=self._space.categorical,
            trial_index=np.array([row.trial for row in rows]),
            doublings=np.log2(budgets / smallest),
            max_doublings=math.log2(largest / smallest),
        )
        return training, rows

    def _to_learn_from(self, random: np.random.Generator) -> set[int]:
        """Return the trials to train on, chosen so that they have at most about NUM_VALUES values."""
        num_values = sum(len(shown.ends) or 1 for shown in self.shown.values())
        count = NUM_VALUES * len(self.shown) // num_values
        chosen = set(self.best(int(count * BEST_SHARE)))
        others = [number for number in self.shown if number not in chosen]
        num_latest = int(count * LATEST_SHARE)
        latest, older = others[-num_latest:], others[:-num_latest]
        chosen.update(latest)
        shuffled = random.permutation(older).tolist()
        num_sampled = count - len(chosen)
        chosen.update(shuffled[:num_sampled])
        return chosen


def _with_points(shown: Shown, told: Mapping[Any, Any]) -> Shown:
    """Return the trial with its reported points, at the steps that have any.

    A storage may have converted the steps to text.
    """
    fronts = {int(step): _points(front) for step, front in told.items() if len(front)}
    fronts = {step: front for step, front in fronts.items() if step in shown.by_step and np.isfinite(front).all()}
    by_step = {step: value for step, value in shown.by_step.items() if step in fronts and math.isfinite(value)}
    return replace(shown, by_step=by_step, fronts={step: fronts[step] for step in by_step})


def _points(front: Any) -> Float64Array:
    points = np.array(front, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError("not two scores each")
    return points


def _rows_of(place: int, shown: Shown, first: int, last: int) -> Iterator[Row]:
    """Yield the first and the latest step of a trial; a failed trial is assigned to the first step of all."""
    values = shown.first_and_latest(last)
    for step, value in values.items():
        yield Row(place, step, value, shown.fronts.get(step))
    if not values:
        yield Row(place, first, None, None)


def values_of(rows: Sequence[Row]) -> Float64Array:
    """Return the value of each row, (rows, 1)."""
    return with_failed(rows, np.array([[row.value] for row in rows if row.value is not None]))


def with_failed(rows: Sequence[Row], found: Float64Array) -> Float64Array:
    """Return one entry per row, (rows, ...), filling failed rows with a low quantile over trials' first rows.

    ``found`` (n, ...) are the entries of the rows that have a value.
    """
    have_failed = np.array([row.value is None for row in rows])
    if not have_failed.any():
        return found
    is_first = np.diff([row.trial for row in rows], prepend=-1) > 0
    of_failed = np.quantile(found[is_first[~have_failed]], FAILED_QUANTILE, axis=0)
    everything = np.empty((len(rows), *found.shape[1:]))
    everything[have_failed], everything[~have_failed] = of_failed, found
    return everything
