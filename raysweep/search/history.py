"""What the trials of one of Optuna's studies have shown, as the sampler ``mfgp`` learns from it."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from raysweep.metrics.arrays import Float64Array
from raysweep.search.conditional_space import Code, ConditionalSpace
from raysweep.search.encoding import Params
from raysweep.search.gaussian_process import TrainingSet

# The model learns from so many values, of one or two steps a trial: those of the best half of the trials that it can take,
# of the latest quarter, and of some at random of all others.
NUM_VALUES = 96
BEST_SHARE = 1 / 2
LATEST_SHARE = 1 / 4


WORST = 3.0  # how far below the median a value may lie, in multiples of how far the best lies above it
TINY = 1e-12  # keeps a divisor from 0
FAILED_QUANTILE = 0.1  # of what trials are worth at their first rung: what one that failed without any counts as


@dataclass(frozen=True)
class Shown:
    """A trial and what it is worth at each step it has reported, the more the better.

    None where it failed or was pruned before it had reported anything. A ``final`` value may come on top; it takes the
    place of the one at the last step.
    """

    params: Params
    code: Code
    by_step: Mapping[int, float]
    final: float | None = None

    @cached_property
    def latest(self) -> float:
        """What the trial was worth in the end, or is by now; what has failed comes last."""
        if self.final is not None:
            return self.final
        return self.by_step[max(self.by_step)] if self.by_step else -math.inf

    @cached_property
    def has_failed(self) -> bool:
        return self.final is None and not self.by_step

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The first step and the last, one of them where they are the same, none where there are none."""
        return tuple(sorted({min(self.by_step), max(self.by_step)})) if self.by_step else ()

    def first_and_latest(self, last_of_all: int) -> dict[int, float]:
        """What it was worth at its first step and its latest; a final value without steps stands at the study's last."""
        if not self.by_step:
            return {} if self.final is None else {last_of_all: self.final}
        values = {step: self.by_step[step] for step in self.ends}
        return {**values, self.ends[-1]: self.latest}


class History:
    """The trials of a study under their numbers, as :meth:`read` found them last, in codes of one space."""

    def __init__(self, space: ConditionalSpace) -> None:
        self._space = space
        self._finished: dict[int, Shown] = {}
        self._codes: dict[int, tuple[int, Code]] = {}  # of how many parameters, and the code
        self._left_out: set[int] = set()  # trials that were not asked for all there is
        self.shown: dict[int, Shown] = {}  # trials that have shown what they are worth, or failed
        self.num_with_values = 0  # of these, those that have not failed
        self.pending: dict[int, Code] = {}  # trials that run and have shown nothing yet
        self.running: set[Code] = set()  # what trials that run have
        self.tried: set[Code] = set()  # what a finished trial ever had

    def read(self, trials: Sequence[FrozenTrial], sign: int, current: int) -> None:
        """Learn how trials stand, but for the ``current`` one, which is to be given values.

        ``sign`` is -1 where the study minimises.
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
                else:
                    self.pending[number] = shown.code
        self.num_with_values = sum(not shown.has_failed for shown in self.shown.values())

    def _finish(self, trial: FrozenTrial, sign: int) -> None:
        """Learn what a trial has come to, for good. One that was not asked for all there is says nothing of the rest."""
        has_failed = trial.state == TrialState.FAIL
        if not trial.params or not (has_failed or self._space.is_whole(trial.params)):
            self._left_out.add(trial.number)
            return
        shown = self._shown(trial, sign)
        self._finished[trial.number] = self.shown[trial.number] = shown
        self.tried.add(shown.code)

    def _shown(self, trial: FrozenTrial, sign: int) -> Shown:
        """What a trial has come to. One whose latest value is no finite number has failed, as NaN has for Optuna."""
        code = self._code(trial)
        by_step = {step: sign * value for step, value in trial.intermediate_values.items()}
        final = sign * trial.values[0] if trial.state == TrialState.COMPLETE else None
        shown = Shown(trial.params, code, by_step, final)
        if not math.isfinite(shown.latest):
            return Shown(trial.params, code, {})
        if all(map(math.isfinite, by_step.values())):
            return shown
        finite = {step: value for step, value in by_step.items() if math.isfinite(value)}
        return Shown(trial.params, code, finite, final)

    def _code(self, trial: FrozenTrial) -> Code:
        """The trial's code, made once for as many parameters as it has by now."""
        count, code = self._codes.get(trial.number, (-1, ()))
        if count != len(trial.params):
            code = self._space.code(trial.params)
            self._codes[trial.number] = (len(trial.params), code)
        return code

    @property
    def codes(self) -> list[Code]:
        """Of all trials that have begun."""
        return [*(shown.code for shown in self.shown.values()), *self.pending.values()]

    def best(self, count: int) -> list[int]:
        """The numbers of the trials that are worth most, the best first."""
        numbers = list(self.shown)
        worth = np.array([shown.latest for shown in self.shown.values()])
        order = np.argsort(-worth, kind="stable")  # of equal ones the first
        return [numbers[place] for place in order[:count]]

    def training_set(self, random: np.random.Generator) -> TrainingSet:
        """What the model learns from: of each chosen trial the first step and the latest."""
        steps = set(itertools.chain.from_iterable(shown.ends for shown in self.shown.values())) or {0}
        offset = max(0, 1 - min(steps))  # steps that are counted from 0 are doubled from 1
        smallest, largest = min(steps) + offset, max(steps) + offset
        numbers = sorted(self._to_learn_from(random))
        chosen = [self.shown[number] for number in numbers]
        values_by_step = [shown.first_and_latest(max(steps)) for shown in chosen]
        values_of_failed = {min(steps): _value_of_failed(values_by_step)}

        trial_index, budgets, observed = [], [], []
        for index, values in enumerate(values_by_step):
            for step, value in (values or values_of_failed).items():
                trial_index.append(index)
                budgets.append(step + offset)
                observed.append(value)
        return TrainingSet(
            codes=np.array([shown.code for shown in chosen]),
            categorical=self._space.categorical,
            trial_index=np.array(trial_index),
            doublings=np.log2(np.array(budgets) / smallest),
            values=_standardised(np.array(observed)),
            max_doublings=math.log2(largest / smallest),
        )

    def _to_learn_from(self, random: np.random.Generator) -> set[int]:
        """Trials that have shown something, so many that their values are about NUM_VALUES at most."""
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


def _value_of_failed(values_by_step: Sequence[Mapping[int, float]]) -> float:
    """What trials that failed without any value count as: a low quantile of what the others were worth at their first."""
    first_values = [values[min(values)] for values in values_by_step if values]
    return float(np.quantile(first_values, FAILED_QUANTILE))


def _standardised(values: Float64Array) -> Float64Array:
    """Roots of how far the values lie above the worst, less their mean and over their standard deviation.

    One as far below the median as WORST times the best is above it says no more than that it is bad: a loss that has grown
    without limit would make all others look alike. Roots, because many values are poor and few good, and because an area
    grows with the square of what makes it.
    """
    largest = np.abs(values).max() or 1.0
    scaled = values / largest  # so that nothing grows too large
    median, best = np.median(scaled), scaled.max()
    lifted = np.maximum(scaled, median - WORST * (best - median))
    roots = np.sqrt(lifted - lifted.min())
    standardised: Float64Array = (roots - roots.mean()) / (roots.std() + TINY)
    return standardised
