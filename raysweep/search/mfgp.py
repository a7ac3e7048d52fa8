"""The ``mfgp`` sampler, which uses a Gaussian process over configurations and training budgets.

As in freeze-thaw Bayesian optimization (Swersky, Snoek and Adams, 2014), the model also learns from
running and pruned trials. It uses the first and latest intermediate value of each trial.
Configurations are compared by their predicted values at the largest step seen so far. See
:mod:`raysweep.search.gaussian_process` for the model and :mod:`raysweep.search.history` for its
training data.
"""

import math
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.scores import Pair
from raysweep.search.acquisition import (
    Acquisition,
    FrontImprovement,
    UpperConfidenceBound,
    as_array,
)
from raysweep.search.conditional_space import Code, ConditionalSpace, SuggestedParams, infer_space
from raysweep.search.encoding import Params
from raysweep.search.history import FRONTS, History

POOL_SIZE = 256  # random candidates
NUM_RENEWED = 64  # number of candidates replaced before each proposal


# Modified copies of the best trials are also candidates, because random candidates alone come
# close to an optimum but do not reach it.
NUM_REFINED = 3  # trials that are copied
NUM_COPIES = 24  # copies per trial
# range of the step size: the standard deviation of changes to numbers in [0, 1]
STEP_SIZES = (
    0.01,
    0.3,
)


# warn after this many completed trials without points
NUM_WITHOUT_POINTS = 4
STARTUP_DEVIATION = 0.25  # standard deviation of startup proposals around 0.5, if the acquisition starts in the middle


Candidate = tuple[Params, Code]
FixedParams = Mapping[str, Any]  # values that a proposal must have


class MultiFidelitySampler(BaseSampler):
    """A multi-fidelity Optuna sampler for single-objective studies.

    The sampler learns from the intermediate values (:meth:`optuna.Trial.report`) of complete, pruned
    and running trials, and from the final value if a trial has no intermediate ones. Steps must be
    proportional to the amount of training. Trials that fail before reporting a value and trials with
    non-finite values are treated as poor. Running trials are treated as if they had reached their
    predicted values, so several processes or threads can share a study.

    Parameters may be conditional. If ``space`` is None, the sampler infers the conditions from the
    trials (:func:`raysweep.search.conditional_space.infer_space`). Parameters that it has not seen
    yet are sampled at random.

    With a ``reference_point``, the sampler maximizes the hypervolume of the joint front of all
    trials. Each trial must set the user attribute "raysweep:fronts", which maps each step to the list
    of points so far. A point is a pair of scores; higher is better.

    The same ``seed`` and trials give the same proposals.

    Raises:
        ValueError: If the study has several objectives, or the reference point or points are invalid.
    """

    def __init__(
        self,
        space: ConditionalSpace | None = None,
        *,
        seed: int | None = None,
        reference_point: Pair | None = None,
    ) -> None:
        if not isinstance(space, ConditionalSpace | None):
            raise ValueError(
                f"space is {space!r}; allowed: a ConditionalSpace, or None to infer it from the trials"
            )
        self._space = space
        self._reference_point = None if reference_point is None else _finite_pair(reference_point)
        self._has_warned = False
        self._random = np.random.default_rng(seed)
        self._random_sampler = RandomSampler(seed)
        self._study_name: str | None = None
        self._search: _Search | None = None
        self._completed: dict[
            int, SuggestedParams
        ] = {}  # trials that suggested all their parameters
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the lock, which cannot be pickled."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())

    def reseed_rng(self) -> None:
        """Reseed the random number generators."""
        with self._lock:
            self._random = np.random.default_rng()
            self._random_sampler.reseed_rng()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Reset the search at a study's first trial, because an earlier study may have had the same name."""
        if trial.number == 0:
            with self._lock:
                self._study_name = None

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return all known parameters that can have more than one value, including conditional ones."""
        self._raise_error_if_multi_objective(study)
        with self._lock:
            search = self._update_search(
                study, [] if self._space else study.get_trials(deepcopy=False)
            )
            return dict(search.space.distributions) if search else {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the remaining values of the trial's configuration, or {} if the space is exhausted."""
        if not search_space:
            return {}
        with self._lock:
            trials = study.get_trials(deepcopy=False)
            search = self._update_search(study, trials)
            if search is None:
                return {}
            sign = 1 if study.direction == StudyDirection.MAXIMIZE else -1
            search.history.read(trials, sign, trial.number)
            self._warn_of_missing_points(trials, search.history)
            enqueued = trial.system_attrs.get("fixed_params", {})
            known = {**enqueued, **trial.params}
            fixed = {
                name: value for name, value in known.items() if name in search.space.distributions
            }
            params = search.complete(fixed, self._random) if fixed else search.propose(self._random)
        new_names = search_space.keys() - fixed.keys()
        return {name: value for name, value in params.items() if name in new_names}

    def _warn_of_missing_points(self, trials: Sequence[FrozenTrial], history: History) -> None:
        """Warn once if completed trials have no points; the user attribute may be misspelled."""
        if self._reference_point is None or self._has_warned or history.num_with_values:
            return
        complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        num_complete = sum(trial.number in history.results for trial in complete)
        if num_complete >= NUM_WITHOUT_POINTS:
            self._has_warned = True
            warnings.warn(
                f"user attribute {FRONTS!r}: none of {num_complete} completed trials has finite points at a reported step; "
                "a sampler with a reference_point requires them",
                stacklevel=2,
            )

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a random value for a parameter that the search space does not contain."""
        self._raise_error_if_multi_objective(study)
        return self._random_sampler.sample_independent(study, trial, param_name, param_distribution)

    def _update_search(self, study: Study, trials: Sequence[FrozenTrial]) -> "_Search | None":
        """Return the current search, or None if the space is not known yet.

        A new search starts if the study or the space has changed.
        """
        if study.study_name != self._study_name:
            self._study_name = study.study_name
            self._search = None
            self._completed = {}
        if self._space is not None:
            if self._search is None:
                self._search = _Search(self._space, self._reference_point)
            return self._search
        # Trials in other states may not have suggested all their parameters.
        has_all = (TrialState.COMPLETE, TrialState.PRUNED)
        completed = [trial for trial in trials if trial.state in has_all]
        new = [trial for trial in completed if trial.number not in self._completed]
        for trial in new:
            self._completed[trial.number] = trial
        if not self._completed:
            return self._search
        # Keep the current space if it is consistent with the new trials.
        if self._search is None or not all(map(self._search.space.explains, new)):
            numbers = sorted(self._completed)
            in_order = [self._completed[number] for number in numbers]
            space = infer_space(in_order)
            self._search = _Search(space, self._reference_point)
        return self._search


def _finite_pair(reference_point: Pair) -> Pair:
    try:
        x, y = map(float, reference_point)
    except (OverflowError, TypeError, ValueError):
        x = y = math.nan
    if not (math.isfinite(x) and math.isfinite(y)):
        raise ValueError(
            f"reference_point is {reference_point!r}; allowed: two finite numbers, or None"
        )
    return x, y


class _Search:
    """The search of one space, with its history and candidates."""

    def __init__(self, space: ConditionalSpace, reference_point: Pair | None) -> None:
        self.space = space
        self.history = History(space, has_points=reference_point is not None)
        num_axes = len(space.free)
        self._acquisition: Acquisition
        if reference_point is None:
            self._acquisition = UpperConfidenceBound(num_axes)
        else:
            self._acquisition = FrontImprovement(num_axes, reference_point)
        self._pool: list[Candidate] = []
        self._proposed: set[Code] = set()

    def propose(self, random: np.random.Generator) -> Params:
        """Return the next configuration to try, or {} if the space is exhausted."""
        # Replace the oldest candidates and those already tried with new random configurations.
        num_staying = POOL_SIZE - NUM_RENEWED
        newest = self._pool[-num_staying:]
        self._pool = [(params, code) for params, code in newest if self._is_new(code)]
        pool_codes = {code for _, code in self._pool}
        num_missing = POOL_SIZE - len(self._pool)
        for _ in range(num_missing):
            params, code = self._draw({}, random)
            if code not in pool_codes and self._is_new(code):
                pool_codes.add(code)
                self._pool.append((params, code))
        copies = self._draw_near_best({}, random)
        return self._choose([*self._pool, *copies], random)

    def complete(self, fixed: FixedParams, random: np.random.Generator) -> Params:
        """Return the next configuration to try that has the values in ``fixed``."""
        candidates = [self._draw(fixed, random) for _ in range(NUM_RENEWED)]
        new = [(params, code) for params, code in candidates if self._is_new(code)]
        new += self._draw_near_best(fixed, random)
        return self._choose(new or candidates, random)

    def _is_new(self, code: Code) -> bool:
        return not (
            code in self.history.tried or code in self.history.running or code in self._proposed
        )

    def _choose(self, candidates: Sequence[Candidate], random: np.random.Generator) -> Params:
        """Return the best candidate and mark it as proposed."""
        if not candidates:
            return {}
        num_axes = len(self.space.free)
        codes = as_array([code for _, code in candidates], num_axes)
        if self._uses_model:
            scores = self._acquisition.scores(self.history, codes, random)
            best = int(np.argmax(scores))
        else:
            best = self._choose_without_model(codes, random)
        params, code = candidates[best]
        self._proposed.add(code)
        return params

    @property
    def _uses_model(self) -> bool:
        return self.history.num_with_values >= self._acquisition.num_startup_trials

    def _choose_without_model(self, codes: Float64Array, random: np.random.Generator) -> int:
        """Return the index of a candidate whose categorical values have been tried the least.

        If several candidates qualify, an acquisition that starts in the middle prefers numbers near the
        middle of their ranges. Otherwise, the first one is returned; the candidates are in random order.
        """
        num_axes = len(self.space.free)
        tried = as_array(self.history.codes, num_axes)
        categorical = self.space.categorical
        is_alike = codes[:, None, categorical] == tried[:, categorical]
        num_alike = is_alike.sum(axis=(1, 2))
        least_tried = np.flatnonzero(num_alike == num_alike.min())
        if not self._acquisition.starts_in_middle:
            return int(least_tried[0])
        numbers = codes[np.ix_(least_tried, ~categorical)]
        distances = numbers - 0.5
        squared_distances = np.sum(distances**2, axis=1)
        if not len(tried):
            nearest = np.argmin(squared_distances)
            return int(least_tried[nearest])
        log_densities = -0.5 * squared_distances / STARTUP_DEVIATION**2
        # With many axes, all weights could otherwise underflow to 0.
        weights = np.exp(log_densities - log_densities.max())
        probabilities = weights / weights.sum()
        chosen = random.choice(least_tried, p=probabilities)
        return int(chosen)

    def _draw_near_best(self, fixed: FixedParams, random: np.random.Generator) -> list[Candidate]:
        """Return modified copies of good trials; empty during startup."""
        if not self._uses_model:
            return []
        smallest, largest = map(math.log, STEP_SIZES)
        copies: dict[Code, Params] = {}
        pool_codes = {code for _, code in self._pool}
        numbers = self._acquisition.to_refine(self.history, NUM_REFINED, random)
        for number in numbers:
            original = self.history.results[number].params
            for _ in range(NUM_COPIES):
                size = math.exp(random.uniform(smallest, largest))
                params = self.space.draw_near(original, size, random, fixed)
                code = self.space.code(params)
                if code not in pool_codes and self._is_new(code):
                    copies[code] = params
        return [(params, code) for code, params in copies.items()]

    def _draw(self, fixed: FixedParams, random: np.random.Generator) -> Candidate:
        params = self.space.draw(random, fixed)
        return params, self.space.code(params)
