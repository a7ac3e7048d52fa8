"""Configurations proposed by Optuna through ask-and-tell, over a conditional space, with a seed.

A study is told of a held trial that it was pruned at its rung, never that it is complete. Where the trial goes on later and
the study is told again, the sampler sees only the latest.
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
from raysweep.config.preset import Preset
from raysweep.config.space import Space
from raysweep.config.sweep import SAMPLERS, Aim
from raysweep.errors import InputError
from raysweep.metrics.objective import Objective, Pair
from raysweep.search.encoding import Params
from raysweep.search.history import FRONTS
from raysweep.search.samplers import first_line, make_sampler
from raysweep.trial_status import TrialStatus

PAREGO_WEIGHTS = (0.1, 0.3, 0.5, 0.7, 0.9)  # on P, of the scalarisations that ParEGO draws from


MAX_SHOWN = 256  # trials that a sampler learns from: the latest, and the best among the older
NUM_BEST_SHOWN = 64


NUM_TRIED_OUT = 12  # invented trials; most samplers draw their first ten at random


STUDY_STATES = {
    TrialStatus.COMPLETED: TrialState.COMPLETE,
    TrialStatus.HELD: TrialState.PRUNED,
    TrialStatus.STOPPED: TrialState.PRUNED,
    TrialStatus.FAILED: TrialState.FAIL,
}


Front = tuple[Pair, ...]  # a trial's non-dominated points


@dataclass
class KnownTrial:
    """A trial that was proposed or adopted, and what it has shown."""

    params: Params
    distributions: dict[str, optuna.distributions.BaseDistribution]
    fronts: dict[int, Front] = field(default_factory=dict)  # by examples seen: the front so far

    @property
    def last_front(self) -> Front:
        """The front at the rung of the most examples."""
        return self.fronts[max(self.fronts)]


@dataclass(frozen=True)
class Scalarisation:
    """What a study maximises: one number made of a trial's front, or P and S themselves."""

    objective: Objective
    aim: Aim
    weight: float | None = None  # of P in ParEGO's augmented Tchebycheff value; None for the weighted objective

    @property
    def names(self) -> list[str]:
        if self.aim == "both":
            return ["P", "S"]
        return ["hypervolume"] if self.aim in ("area", "front") else ["objective"]

    @property
    def reference_point_of_front(self) -> Pair | None:
        """Above what the hypervolume of the joint front is maximised, where it is."""
        return self.objective.feasible_reference_point if self.aim == "front" else None

    def values(self, front: Front) -> list[float]:
        """One value a name."""
        if self.weight is not None:
            return [self.objective.tchebycheff(front, self.weight)]
        if self.aim == "both":
            return list(self.objective.best_point(front))
        return [self.objective.area(front) if self.aim in ("area", "front") else self.objective.best_value(front)]


class RecentTrialsStorage(optuna.storages.InMemoryStorage):
    """Shows a sampler only the trials that are still worth learning from.

    It hides those of which the study was told again later. And of thousands it shows at most ``max_shown``, so that
    proposals do not take longer and longer: a sampler such as TPE gives old trials next to no weight anyhow, but for the
    best. With None it shows all.
    """

    def __init__(self, max_shown: int | None) -> None:
        super().__init__()
        self._max_shown = max_shown
        self._shown: dict[int, None] = {}  # numbers, rising
        self._told: dict[int, float] = {}  # what each shown trial that was told is worth, the oldest first

    def tell(self, number: int, worth: float) -> None:
        """The study was told of trial ``number``."""
        self._told[number] = worth
        if self._max_shown is not None and len(self._told) > self._max_shown:
            best = set(heapq.nlargest(NUM_BEST_SHOWN, self._told, key=self._told.__getitem__))
            oldest = next(old for old in self._told if old not in best)
            self.hide(oldest)

    def hide(self, number: int) -> None:
        """Let the sampler learn from this trial no more."""
        self._shown.pop(number, None)
        self._told.pop(number, None)

    def create_new_trial(self, study_id: int, template_trial: Any = None) -> int:
        trial_id = super().create_new_trial(study_id, template_trial)
        self._shown[self.get_trial_number_from_id(trial_id)] = None
        return trial_id

    def get_all_trials(self, study_id: int, deepcopy: bool = True, states: Any = None) -> list[Any]:
        if states == (TrialState.WAITING,):  # the base class finds these without a look at every trial
            return super().get_all_trials(study_id, deepcopy, states)
        trials = super().get_all_trials(study_id, False, None)
        shown = [trials[number] for number in self._shown]
        shown = shown if states is None else [trial for trial in shown if trial.state in states]
        return copy.deepcopy(shown) if deepcopy else shown


class ScalarisedStudy:
    """A study of the sweep's trials under one scalarisation, which numbers them as it comes to know them.

    It knows every trial, whichever study was asked for it. A trial that runs is running there until it rests for the
    first time, and has its values from the rung on. When it goes on later, each rung takes the place of what was told.
    """

    def __init__(self, space: Space, sampler: str, seed: int, scalarisation: Scalarisation) -> None:
        self.scalarisation = scalarisation
        self.storage = RecentTrialsStorage(None if sampler == "mfgp" else MAX_SHOWN)
        self.study = optuna.create_study(
            directions=["maximize" for _ in scalarisation.names],
            sampler=make_sampler(sampler, seed, space, scalarisation.reference_point_of_front),
            storage=self.storage,
        )
        self._study_id = self.storage.get_study_id_from_name(self.study.study_name)
        self.numbers: dict[int, int] = {}  # the study's latest number of each of the sweep's trials
        self._running: set[int] = set()  # the sweep's numbers of trials that have not rested yet
        self._space = space
        self._num_trials = 0

    def ask(self, number: int, params: Params) -> tuple[KnownTrial, dict[str, Any]]:
        """A trial with these parameters and, for the others, what the sampler proposes; also its configuration's values."""
        if params:
            self.study.enqueue_trial(params)
        trial = self.study.ask()
        self._number(number, trial.number)
        self._running.add(number)
        values = self._space.draw(trial)
        return KnownTrial(trial.params, trial.distributions), values

    def withdraw(self, number: int) -> None:
        """The trial does not run with what was proposed."""
        self._running.remove(number)
        self.study.tell(self.numbers[number], state=TrialState.FAIL)
        self.storage.hide(self.numbers.pop(number))

    def begin(self, number: int, known: KnownTrial) -> None:
        """A trial runs that another study was asked for, or that ran elsewhere."""
        self._running.add(number)
        self._add(number, known, TrialState.RUNNING)

    def report(self, number: int, known: KnownTrial) -> None:
        """A trial had another rung, or a mean over its runs has changed."""
        if number not in self._running:
            self._add(number, known, TrialState.PRUNED)
            return
        trial_id = self.storage.get_trial_id_from_study_id_trial_number(self._study_id, self.numbers[number])
        for examples_seen, value in self._intermediate_values(known).items():
            self.storage.set_trial_intermediate_value(trial_id, examples_seen, value)
        for name, value in self._attributes(known).items():
            self.storage.set_trial_user_attr(trial_id, name, value)

    def tell(self, number: int, known: KnownTrial, state: TrialState) -> None:
        """How a trial stands. Where the study had been told before, this takes the place of it."""
        if number in self._running:
            self._running.remove(number)
            self.study.tell(self.numbers[number], self._final_values(known, state), state)
            self.storage.tell(self.numbers[number], self._worth(known))
        elif known.fronts:
            self._add(number, known, state)

    def _add(self, number: int, known: KnownTrial, state: TrialState) -> None:
        """Add the trial as it stands, in place of what the study knew of it."""
        if number in self.numbers:
            self.storage.hide(self.numbers[number])
        self._number(number, self._num_trials)
        self.study.add_trial(self._frozen(known, state))
        if state != TrialState.RUNNING:
            self.storage.tell(self.numbers[number], self._worth(known))

    def _worth(self, known: KnownTrial) -> float:
        """By what the best of the older trials are chosen."""
        return self.scalarisation.values(known.last_front)[0] if known.fronts else -math.inf

    def _number(self, number: int, number_in_study: int) -> None:
        self.numbers[number] = number_in_study
        self._num_trials += 1

    def _frozen(self, known: KnownTrial, state: TrialState) -> optuna.trial.FrozenTrial:
        return optuna.trial.create_trial(
            state=state,
            params=known.params,
            distributions=known.distributions,
            values=self._final_values(known, state),
            intermediate_values=self._intermediate_values(known),
            user_attrs=self._attributes(known),
        )

    def _attributes(self, known: KnownTrial) -> dict[str, Any]:
        """What a sampler that maximises the joint front's hypervolume learns from."""
        return {FRONTS: dict(known.fronts)} if self.scalarisation.aim == "front" else {}

    def _final_values(self, known: KnownTrial, state: TrialState) -> list[float] | None:
        return self.scalarisation.values(known.last_front) if state == TrialState.COMPLETE else None

    def _intermediate_values(self, known: KnownTrial) -> dict[int, float]:
        """By examples seen; none where there are several objectives, since Optuna takes none then."""
        if self.scalarisation.aim == "both":
            return {}
        return {seen: self.scalarisation.values(front)[0] for seen, front in known.fronts.items()}


class Proposer:
    """The studies of one sweep. Trials are known by the number that :meth:`ask` or :meth:`adopt` is given.

    ``limit`` is how many trials there are to propose, None where there is no end. ``views`` are the studies: one, or with
    ParEGO one for each of its weights, of which each proposal asks one at random.
    """

    def __init__(self, space: Space, sampler: str, seed: int, objective: Objective, aim: Aim = "combined") -> None:
        _silence_optuna()
        self.space = space
        self.limit: int | None = None
        self._scalarisation = Scalarisation(objective, aim)
        self._random = np.random.default_rng(seed)
        self._known: dict[int, KnownTrial] = {}
        self._queue: deque[Params] = deque()  # to be proposed before anything else
        if sampler == "grid":
            self._queue.extend(space.grid())
            self.limit = len(self._queue)
        self.views = tuple(
            ScalarisedStudy(space, sampler, seed + 7919 * index, scalarisation)
            for index, scalarisation in enumerate(_scalarisations(objective, aim, sampler))
        )

    @property
    def names(self) -> list[str]:
        """What the sampler maximises."""
        return self._scalarisation.names

    def values(self, front: Front) -> list[float]:
        """What the sampler maximises, of a trial with this front; with ParEGO the weighted objective."""
        return self._scalarisation.values(front)

    def known_trial(self, number: int) -> KnownTrial:
        """A trial as the sampler knows it. KeyError where it was neither asked for nor adopted."""
        return self._known[number]

    def try_first(self, number: int) -> None:
        """Propose what the adopted trial ``number`` had, before all else."""
        params = self._known[number].params
        self._drop(params)
        self._queue.appendleft(params)

    def _drop(self, params: Params) -> None:
        """Leave a configuration that waits in the queue out of it."""
        if params in self._queue:
            self._queue.remove(params)

    def ask(self, number: int, preset: Preset | None = None) -> dict[str, Any]:
        """The configuration of the sweep's trial ``number``, with the values of a preset where one is given."""
        view = self.views[int(self._random.integers(len(self.views)))]
        queued = self._next_queued(preset)
        given = {} if preset is None else dict(preset.params)
        return self._ask(view, number, given if queued is None else queued)

    def _next_queued(self, preset: Preset | None) -> Params | None:
        """The next of the queue, which is no longer in it: with a preset the first that has its values, if any."""
        wanted = {} if preset is None else preset.params
        for params in self._queue:
            if not wanted.items() <= params.items():
                continue
            self._queue.remove(params)
            return params
        return None

    def has_left(self, preset: Preset) -> bool:
        """Whether there is a configuration with a preset's values to propose, of which a grid may have had the last."""
        wanted = preset.params.items()
        return self.limit is None or any(wanted <= params.items() for params in self._queue)

    def trial_with(self, preset: Preset) -> int | None:
        """The first trial of the sweep that has a preset's values, where the preset leaves none to the sampler."""
        if not preset.is_whole:
            return None
        own = ((number, known.params) for number, known in self._known.items() if number >= 0)
        return next((number for number, params in own if params == preset.params), None)

    def amend(self, number: int, values: Mapping[str, Any]) -> None:
        """Trial ``number``, just asked for, runs with these values in place of those proposed."""
        params = self.space.suggest_fixed(values).params
        if params != self._known[number].params:
            for view in self.views:
                view.withdraw(number)
            self._take(number, values)

    def adopt(self, number: int, values: Mapping[str, Any]) -> None:
        """A trial that was proposed elsewhere, and is not proposed again. ValueError when it does not lie in the space."""
        self._take(number, values)
        if number >= 0:
            self._drop(self._known[number].params)

    def _take(self, number: int, values: Mapping[str, Any]) -> None:
        """Let the studies know a trial that runs with these values."""
        recall = self.space.suggest_fixed(values)
        distributions = {name: _distribution(*kind) for name, kind in recall.distributions.items()}
        known = self._known[number] = KnownTrial(recall.params, distributions)
        for view in self.views:
            view.begin(number, known)

    def report(self, number: int, examples_seen: int, front: Front) -> None:
        """A trial's non-dominated points so far, at a rung."""
        known = self._known[number]
        known.fronts[examples_seen] = front
        for view in self.views:
            view.report(number, known)

    def tell(self, number: int, status: TrialStatus) -> None:
        """How a trial stands; for the studies it is complete, or pruned where it stands (held or stopped), or failed."""
        known = self._known[number]
        state = STUDY_STATES[status] if known.fronts else TrialState.FAIL
        for view in self.views:
            view.tell(number, known, state)

    def _ask(self, asked: ScalarisedStudy, number: int, params: Params) -> dict[str, Any]:
        self._known[number], values = asked.ask(number, params)
        for view in self.views:
            if view is not asked:
                view.begin(number, self._known[number])
        return values


def _silence_optuna() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def _scalarisations(objective: Objective, aim: Aim, sampler: str) -> list[Scalarisation]:
    """What the studies of a sweep maximise: with ParEGO one for each of its weights, else one alone.

    ``mfgp`` alone maximises the joint front's hypervolume, for which other samplers take a trial's own; and it takes one
    objective only, so that where P and S are two, the hypervolume of the joint front stands for both.
    """
    if aim == "both" and sampler == "mfgp":
        return [Scalarisation(objective, "front")]
    if aim == "front" and sampler != "mfgp":
        return [Scalarisation(objective, "area")]
    weights: Sequence[float | None] = PAREGO_WEIGHTS if aim == "parego" else (None,)
    return [Scalarisation(objective, aim, weight) for weight in weights]


def _distribution(kind: str, *details: Any) -> optuna.distributions.BaseDistribution:
    if kind == "categorical":
        return optuna.distributions.CategoricalDistribution(*details)
    low, high, log = details
    if kind == "int":
        return optuna.distributions.IntDistribution(low, high, log=log)
    return optuna.distributions.FloatDistribution(low, high, log=log)


def try_out(name: str, space: Space, aim: Aim) -> None:
    """InputError unless ``name`` is a sampler that can search this space with this aim: a few invented trials tell."""
    if name in SAMPLERS:
        return
    random = np.random.default_rng(0)
    scores = random.uniform(0.3, 0.9, (NUM_TRIED_OUT, 2)).tolist()
    objective = Objective(0.5, (0.5, 0.25))
    try:
        proposer = Proposer(space, name, 0, objective, aim)
        for number, (polarity, similarity) in enumerate(scores):
            proposer.ask(number)
            proposer.report(number, 1, ((polarity, similarity),))
            proposer.tell(number, TrialStatus.COMPLETED)
    except InputError:
        raise
    except Exception as error:  # whatever the code of others raises
        to_install = ""
        if isinstance(error, ModuleNotFoundError) and name.startswith("optuna."):
            to_install = f": pip install {error.name}"
        raise InputError(f"{name!r} cannot search this space: {first_line(error)}{to_install}") from None


def check_sampler(loaded: LoadedSweep) -> None:
    """InputError, saying where it was given, unless the sampler that a sweep names can search its space."""
    config = loaded.config
    try:
        try_out(config.sampler, loaded.space, config.objective.proposals)
    except InputError as error:
        raise loaded.document.error(("sampler",), str(error)) from None
