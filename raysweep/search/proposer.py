"""Configurations proposed by Optuna through ask-and-tell: a conditional space, seeded, told how each trial stands.

A study is told of a trial that was held back as pruned at its rung, never as complete. Where the trial goes on later and is
told again, only the latest word counts towards the sampler.
"""

import copy
import heapq
import math
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState

from raysweep.config.load import LoadedSweep
from raysweep.config.space import Space
from raysweep.config.sweep import SAMPLERS, Aim
from raysweep.errors import InputError
from raysweep.metrics.objective import Objective, Pair
from raysweep.search.mfgp import MultiFidelitySampler
from raysweep.search.samplers import _said, make_sampler


def check_sampler(loaded: LoadedSweep) -> None:
    """InputError, saying where it was given, unless the sampler that a sweep names can search its space."""
    config = loaded.config
    try:
        try_out(config.sampler, loaded.space, config.objective.proposals)
    except InputError as error:
        raise loaded.document.error(("sampler",), str(error)) from None


PAREGO_WEIGHTS = (0.1, 0.3, 0.5, 0.7, 0.9)


MEMORY = 256  # trials that a sampler learns from: the latest, and the best among the older


BEST = 64


TRIED = 12  # invented trials; most samplers draw their first ten at random


class RecentTrialsStorage(optuna.storages.InMemoryStorage):
    """Shows a sampler the trials that are still worth learning from.

    Not those that a later word on the same trial has replaced. And of thousands only so many that a proposal takes no
    longer and longer: a sampler such as TPE gives old trials next to no weight anyhow, but for the best.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[int, None] = {}  # numbers, rising
        self._told: dict[int, float] = {}  # what each shown trial that rests is worth, the oldest first

    def tell(self, number: int, worth: float, replaces: int | None) -> None:
        """A trial of the study was told."""
        if replaces is not None:
            self.hide(replaces)
        self._told[number] = worth
        if len(self._told) > MEMORY:
            best = set(heapq.nlargest(BEST, self._told, key=self._told.__getitem__))
            self.hide(next(old for old in self._told if old not in best))

    def hide(self, number: int) -> None:
        """The trial is learnt from no more."""
        self._shown.pop(number, None)
        self._told.pop(number, None)

    def create_new_trial(self, study_id: int, template_trial: Any = None) -> int:
        trial_id = super().create_new_trial(study_id, template_trial)
        self._shown[self.get_trial_number_from_id(trial_id)] = None
        return trial_id

    def get_all_trials(self, study_id: int, deepcopy: bool = True, states: Any = None) -> list[Any]:
        if states == (TrialState.WAITING,):  # which the storage finds without looking at every trial
            return super().get_all_trials(study_id, deepcopy, states)
        trials = super().get_all_trials(study_id, False, None)
        shown = [trials[number] for number in self._shown]
        shown = shown if states is None else [trial for trial in shown if trial.state in states]
        return copy.deepcopy(shown) if deepcopy else shown


@dataclass
class ScalarisedStudy:
    """One view of the trials: a study whose values are theirs under one scalarisation, or P and S themselves."""

    study: optuna.Study
    storage: RecentTrialsStorage
    weight: float | None = None  # of Tchebycheff's
    surrogate: MultiFidelitySampler | None = None  # what proposes in place of the study's sampler
    told: dict[int, int] = field(default_factory=dict)  # the study's number of each of the sweep's trials
    num_trials: int = 0


@dataclass
class KnownTrial:
    params: dict[str, Any]
    distributions: dict[str, Any]
    asked: tuple[ScalarisedStudy, Any] | None = None  # while the study waits to be told
    standings: dict[int, tuple[Pair, ...]] = field(default_factory=dict)  # by examples seen: the front so far


class Proposer:
    """The studies of one sweep. Trials are known by the number that :meth:`ask` is given."""

    def __init__(self, space: Space, sampler: str, seed: int, objective: Objective, aim: Aim = "combined") -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        self.space, self.objective, self.aim = space, objective, aim
        self.limit: int | None = None
        self._queue: deque[dict[str, Any]] = deque()
        self._random = np.random.default_rng(seed)
        weights: Sequence[float | None] = PAREGO_WEIGHTS if aim == "parego" else (None,)
        self._views = [self._make_view(sampler, seed + 7919 * i, weight) for i, weight in enumerate(weights)]
        self._known: dict[int, KnownTrial] = {}
        if sampler == "grid":
            self._queue.extend(space.grid())
            self.limit = len(self._queue)

    def _make_view(self, sampler: str, seed: int, weight: float | None) -> ScalarisedStudy:
        storage = RecentTrialsStorage()
        study = optuna.create_study(
            directions=["maximize" for _ in self.names], sampler=make_sampler(sampler, seed), storage=storage
        )
        return ScalarisedStudy(
            study, storage, weight, MultiFidelitySampler(self.space, seed) if sampler == "mfgp" else None
        )

    def try_first(self, number: int) -> None:
        """Propose what the adopted trial ``number`` had, before any of the sampler's own."""
        self._queue.append(self._known[number].params)

    def ask(self, number: int) -> dict[str, Any]:
        """The configuration of the sweep's trial ``number``."""
        view = self._views[int(self._random.integers(len(self._views)))]
        params = self._queue.popleft() if self._queue else view.surrogate.propose() if view.surrogate else None
        return self._ask(view, number, params)

    def amend(self, number: int, values: Mapping[str, Any]) -> None:
        """Trial ``number``, just asked for, runs with these values in place of those proposed."""
        known = self._known[number]
        assert known.asked is not None
        view, trial = known.asked
        params = self.space.recall(values).params
        if params != known.params:
            view.study.tell(trial.number, state=TrialState.FAIL)
            view.storage.hide(trial.number)
            self._ask(view, number, params)

    def _ask(self, view: ScalarisedStudy, number: int, params: dict[str, Any] | None) -> dict[str, Any]:
        if params is not None:
            view.study.enqueue_trial(params)
        trial = view.study.ask()
        view.told[number] = trial.number
        view.num_trials += 1
        values = self.space.draw(trial)
        self._begin(number, KnownTrial(trial.params, trial.distributions, (view, trial)))
        return values

    def _begin(self, number: int, known: KnownTrial) -> None:
        self._known[number] = known
        for view in self._views:
            if view.surrogate:
                view.surrogate.begin(number, known.params)

    def report(self, number: int, examples_seen: int, front: tuple[Pair, ...]) -> None:
        """A trial's non-dominated points so far, at a rung."""
        self._known[number].standings[examples_seen] = front
        for view in self._views:
            if view.surrogate:
                # With both objectives apart there is no one value: the area stands for them.
                value = self.objective.area(front) if self.aim == "both" else self._values(view, front)[0]
                view.surrogate.report(number, examples_seen, value)

    def tell(self, number: int, status: str) -> None:
        """How a trial stands: completed, stopped (for now or for good: pruned where it stands), or else failed."""
        known = self._known[number]
        state = {"completed": TrialState.COMPLETE, "stopped": TrialState.PRUNED}.get(status, TrialState.FAIL)
        if not known.standings:
            state = TrialState.FAIL
        asked, known.asked = known.asked, None
        for view in self._views:
            if view.surrogate and state == TrialState.FAIL:
                view.surrogate.fail(number)
            if asked is not None and asked[0] is view:
                if self.aim != "both":
                    for seen, front in known.standings.items():
                        asked[1].report(self._values(view, front)[0], seen)
                values = self._values(view, self._last(known)) if state == TrialState.COMPLETE else None
                view.study.tell(asked[1].number, values, state)
                replaces = None
            elif known.standings:
                replaces = view.told.get(number)
                view.told[number] = view.num_trials
                view.num_trials += 1
                view.study.add_trial(self._frozen(view, known, state))
            else:
                continue
            worth = self._values(view, self._last(known))[0] if known.standings else -math.inf
            view.storage.tell(view.told[number], worth, replaces)

    def adopt(self, number: int, values: Mapping[str, Any]) -> None:
        """A trial that was proposed elsewhere. ValueError when it does not lie in the space."""
        recall = self.space.recall(values)
        distributions = {name: _distribution(*kind) for name, kind in recall.distributions.items()}
        self._begin(number, KnownTrial(recall.params, distributions))

    @property
    def names(self) -> list[str]:
        """What the sampler maximises."""
        return {"both": ["P", "S"], "area": ["hypervolume"]}.get(self.aim, ["objective"])

    def known(self, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """A trial's parameters as the sampler calls them, and their distributions."""
        return self._known[number].params, self._known[number].distributions

    def values(self, front: tuple[Pair, ...]) -> list[float]:
        """What the sampler maximises, of a trial with this front; of ParEGO's scalarisations the weighted objective."""
        if self.aim == "both":
            return list(self.objective.best_point(front))
        return [self.objective.area(front) if self.aim == "area" else self.objective.best_value(front)]

    def _frozen(self, view: ScalarisedStudy, known: KnownTrial, state: TrialState) -> Any:
        several = self.aim == "both"
        return optuna.trial.create_trial(
            state=state,
            params=known.params,
            distributions=known.distributions,
            values=self._values(view, self._last(known)) if state == TrialState.COMPLETE else None,
            intermediate_values={}
            if several
            else {seen: self._values(view, front)[0] for seen, front in known.standings.items()},
        )

    @staticmethod
    def _last(known: KnownTrial) -> tuple[Pair, ...]:
        return known.standings[max(known.standings)]

    def _values(self, view: ScalarisedStudy, front: tuple[Pair, ...]) -> list[float]:
        return self.values(front) if view.weight is None else [self.objective.tchebycheff(front, view.weight)]


def _distribution(kind: str, *details: Any) -> optuna.distributions.BaseDistribution:
    if kind == "categorical":
        return optuna.distributions.CategoricalDistribution(*details)
    low, high, log = details
    if kind == "int":
        return optuna.distributions.IntDistribution(low, high, log=log)
    return optuna.distributions.FloatDistribution(low, high, log=log)


def try_out(name: str, space: Space, aim: Aim) -> None:
    """InputError where a sampler is none, or cannot search this space with this aim: a few invented trials tell."""
    if name in SAMPLERS:
        return
    scores = np.random.default_rng(0).uniform(0.3, 0.9, (TRIED, 2)).tolist()
    try:
        proposals = Proposer(space, name, 0, Objective(0.5, (0.5, 0.25)), aim)
        for number, (polarity, similarity) in enumerate(scores):
            proposals.ask(number)
            proposals.report(number, 1, ((polarity, similarity),))
            proposals.tell(number, "completed")
    except InputError:
        raise
    except Exception as error:  # of somebody else's code
        raise InputError(f"{name!r} cannot search this space: {_said(error)}") from None
