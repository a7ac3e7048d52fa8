"""The sampler ``mfgp``: which configuration to try next, by a Gaussian process over configurations and training budgets.

Multi-fidelity: a trial teaches by its first rung and its latest, also while it is held, as in freeze-thaw Bayesian
optimisation (Swersky, Snoek and Adams, 2014), and a configuration is proposed for what it promises at the largest budget
seen so far. The model is in :mod:`raysweep.search.gaussian_process`; here is what it learns from, the pool of
configurations that compete, and the choice among them.
"""

import heapq
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from raysweep.config.space import Space
from raysweep.metrics.arrays import Float64Array
from raysweep.search.encoding import NearbySuggester, Params, RandomSuggester, axes
from raysweep.search.gaussian_process import KernelFitter, Queries, TrainingSet, predict

Code = tuple[float, ...]  # a configuration as numbers, one an axis


NUM_STARTUP_TRIALS = 8  # trials with a rung before the model is asked; until then every choice is tried alike


# The model learns from so many trials: the best half, the latest quarter, and of all others some at random.
MAX_TRAINING_TRIALS = 64
NUM_BEST = MAX_TRAINING_TRIALS // 2
NUM_LATEST = MAX_TRAINING_TRIALS // 4
FAILED_QUANTILE = 0.25  # of what trials are worth at their first rung: what one that failed without any counts as


POOL_SIZE = 256  # random configurations that compete to be proposed
NUM_RENEWED = 64  # of them, before each proposal


# Copies of the best trials with some values changed, which compete too: random ones alone come near an optimum, not to it.
NUM_REFINED = 3  # trials
NUM_COPIES = 24  # of each
STEP_SIZES = (0.01, 0.3)  # how far a number moves in [0, 1]: a standard deviation between these, drawn for each copy


UCB_DEVIATIONS = 0.5  # posterior standard deviations that a candidate may be better by: the upper confidence bound


class MultiFidelitySampler:
    """Proposes configurations of one space. Trials are known by their number; the same calls give the same proposals."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._random = np.random.default_rng(seed)
        self._axes = list(axes(space.parameters, ""))
        self._categorical = np.array([axis.is_categorical for axis in self._axes], dtype=bool)
        self._fitter = KernelFitter(len(self._axes), self._random)
        self._pool: list[tuple[Params, Code]] = []
        self._codes: dict[int, Code] = {}
        self._params: dict[int, Params] = {}
        self._tried: set[Code] = set()
        self._pending: dict[int, None] = {}  # trials that have neither a rung nor failed
        self._values: dict[int, dict[int, float]] = {}  # by examples seen; empty if the trial failed before it had any

    def begin(self, number: int, params: Params) -> None:
        """A trial runs, or ran elsewhere."""
        code = self._code(params)
        self._codes[number] = code
        self._params[number] = params
        self._tried.add(code)
        self._pending[number] = None

    def report(self, number: int, examples_seen: int, value: float) -> None:
        """What a trial is worth at a rung, the more the better; replaces what was said of it before."""
        self._pending.pop(number, None)
        self._values.setdefault(number, {})[examples_seen] = value

    def fail(self, number: int) -> None:
        """The trial failed; if it had no rung, it counts as a poor one, whatever it failed for."""
        self._pending.pop(number, None)
        self._values.setdefault(number, {})

    def propose(self) -> Params | None:
        """The configuration to try next; None where nothing new is found in the space."""
        self._renew_pool()
        candidates = self._pool + self._near_the_best()
        if not candidates:
            return None
        best = self._best_of([code for _, code in candidates])
        params, _ = candidates[best]
        return params

    def complete(self, given: Mapping[str, Any]) -> Params:
        """The configuration to try next of those that have the given values, by the sampler's names."""
        drawn = [self._draw(given) for _ in range(NUM_RENEWED)]
        untried = [params for params in drawn if self._code(params) not in self._tried]
        near = [params for params, _ in self._near_the_best(given)]
        candidates = [*untried, *near] or drawn
        best = self._best_of([self._code(params) for params in candidates])
        return candidates[best]

    def _near_the_best(self, given: Mapping[str, Any] | None = None) -> list[tuple[Params, Code]]:
        """Copies of the best trials, each with some values changed and with those given; none before the model is asked."""
        if not self._model_is_asked:
            return []
        worth = {number: _latest_value(values) for number, values in self._values.items()}
        smallest, largest = map(math.log, STEP_SIZES)
        found: dict[Code, Params] = {}
        for number in heapq.nlargest(NUM_REFINED, worth, key=worth.__getitem__):
            for _ in range(NUM_COPIES):
                size = math.exp(self._random.uniform(smallest, largest))
                suggester = NearbySuggester(self._random, self._params[number], size, given)
                self._space.draw(suggester)
                found[self._code(suggester.params)] = suggester.params
        known = self._tried.union(self._pool_codes())
        return [(params, code) for code, params in found.items() if code not in known]

    @property
    def _model_is_asked(self) -> bool:
        num_with_rungs = sum(map(bool, self._values.values()))
        return num_with_rungs >= NUM_STARTUP_TRIALS

    def _best_of(self, candidates: list[Code]) -> int:
        """The place of the candidate to try next."""
        return self._most_promising(candidates) if self._model_is_asked else self._least_tried(candidates)

    def _most_promising(self, candidates: list[Code]) -> int:
        """The place of the highest upper confidence bound at the largest budget seen."""
        training = self._training_set()
        queries = Queries(training, self._as_array(self._pending_codes()), self._as_array(candidates))
        mean, deviation = predict(self._fitter.fit(training), queries)
        return int(np.argmax(mean + UCB_DEVIATIONS * deviation))

    def _least_tried(self, candidates: list[Code]) -> int:
        """The place of the first whose choices have been tried least, so that a few trials see each of them."""
        tried = self._as_array(list(self._codes.values()))[:, self._categorical]
        competing = self._as_array(candidates)[:, self._categorical]
        num_alike = (competing[:, None] == tried[None]).sum(axis=(1, 2))
        return int(np.argmin(num_alike))

    def _pending_codes(self) -> list[Code]:
        return [self._codes[number] for number in self._pending]

    def _pool_codes(self) -> list[Code]:
        return [code for _, code in self._pool]

    def _as_array(self, codes: list[Code]) -> Float64Array:
        """(codes, axes), also where there are none of either."""
        return np.array(codes, dtype=np.float64).reshape(len(codes), len(self._axes))

    def _code(self, params: Params) -> Code:
        return tuple(axis.code(params) for axis in self._axes)

    def _renew_pool(self) -> None:
        """Let the oldest of the pool, and all that have been tried, give way to new random configurations."""
        num_staying = POOL_SIZE - NUM_RENEWED
        newest = self._pool[-num_staying:]
        self._pool = [(params, code) for params, code in newest if code not in self._tried]
        known = self._tried.union(self._pool_codes())
        num_missing = POOL_SIZE - len(self._pool)
        for _ in range(num_missing):
            params = self._draw()
            code = self._code(params)
            if code not in known:
                known.add(code)
                self._pool.append((params, code))

    def _draw(self, given: Mapping[str, Any] | None = None) -> Params:
        suggester = RandomSuggester(self._random, given)
        self._space.draw(suggester)
        return suggester.params

    def _training_set(self) -> TrainingSet:
        """What the model learns from: of each chosen trial the first rung and the latest."""
        numbers = sorted(self._trials_to_learn_from())
        values_by_budget = [self._values[number] for number in numbers]
        budgets_seen = {budget for values in self._values.values() for budget in values}
        smallest = min(budgets_seen)
        values_of_failed = {smallest: _value_of_failed(values_by_budget)}

        trial_index, budgets, observed = [], [], []
        for index, values in enumerate(values_by_budget):
            own_values = values or values_of_failed
            first_and_latest = {min(own_values), max(own_values)}
            for budget in sorted(first_and_latest):
                trial_index.append(index)
                budgets.append(budget)
                observed.append(own_values[budget])
        return TrainingSet(
            codes=np.array([self._codes[number] for number in numbers]),
            categorical=self._categorical,
            trial_index=np.array(trial_index),
            doublings=np.log2(np.array(budgets) / smallest),
            values=_standardised(np.array(observed)),
            max_doublings=math.log2(max(budgets_seen) / smallest),
        )

    def _trials_to_learn_from(self) -> set[int]:
        """At most MAX_TRAINING_TRIALS of those that have rungs or failed."""
        worth = {number: _latest_value(values) for number, values in self._values.items()}
        best = heapq.nlargest(NUM_BEST, worth, key=worth.__getitem__)
        chosen = set(best)
        others = [number for number in worth if number not in chosen]
        latest = others[-NUM_LATEST:]
        chosen.update(latest)
        older = others[:-NUM_LATEST]
        shuffled = self._random.permutation(older).tolist()
        num_sampled = MAX_TRAINING_TRIALS - len(chosen)
        chosen.update(shuffled[:num_sampled])
        return chosen


def _value_of_failed(values_by_budget: Iterable[dict[int, float]]) -> float:
    """What trials that failed without any rung count as: a low quantile of what the others were worth at their first."""
    first_values = [values[min(values)] for values in values_by_budget if values]
    return float(np.quantile(first_values, FAILED_QUANTILE))


def _latest_value(values: dict[int, float]) -> float:
    """What a trial was worth at its latest rung; those that failed before any come last."""
    return values[max(values)] if values else -math.inf


def _standardised(values: Float64Array) -> Float64Array:
    """The values' square roots, with their signs kept, less their mean and over their standard deviation.

    Roots, because a value is an area, which grows with the square of what makes it.
    """
    roots: Float64Array = np.sign(values) * np.sqrt(np.abs(values))
    standardised: Float64Array = (roots - roots.mean()) / (roots.std() + 1e-9)
    return standardised
