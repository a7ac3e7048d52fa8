"""Seeded proposals of configurations over a conditional space, through Optuna's ask-and-tell interface.

A study receives a paused trial as pruned at its rung, never as complete. If the trial resumes later and is reported
again, the sampler sees only the latest report.
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
from raysweep.results.types import TrialStatus
from raysweep.search.encoding import Params
from raysweep.search.history import FRONTS
from raysweep.search.samplers import first_line, make_sampler

PAREGO_WEIGHTS = (0.1, 0.3, 0.5, 0.7, 0.9)  # weights of P in ParEGO's scalarizations, one study each


MAX_SHOWN = 256  # trials that a sampler learns from: the latest, and the best of the older ones
NUM_BEST_SHOWN = 64


NUM_TRIED_OUT = 12  # invented trials; most samplers choose their first ten at random


STUDY_STATES = {
    TrialStatus.COMPLETED: TrialState.COMPLETE,
    TrialStatus.PAUSED: TrialState.PRUNED,
    TrialStatus.STOPPED: TrialState.PRUNED,
    TrialStatus.FAILED: TrialState.FAIL,
}


Front = tuple[Pair, ...]  # a trial's non-dominated points


@dataclass
class KnownTrial:
    """A proposed or adopted trial and its results."""

    params: Params
    distributions: dict[str, optuna.distributions.BaseDistribution]
    fronts: dict[int, Front] = field(default_factory=dict)  # by examples seen: the front so far

    @property
    def last_front(self) -> Front:
        """Front at the rung with the most examples."""
        return self.fronts[max(self.fronts)]


@dataclass(frozen=True)
class Scalarisation:
    """The objective of a study: one number computed from a trial's front, or P and S themselves."""

    objective: Objective
    aim: Aim
    weight: float | None = None  # of P in ParEGO's augmented Tchebycheff value; None for other objectives

    @property
    def names(self) -> list[str]:
        if self.aim == "both":
            return ["P", "S"]
        return ["hypervolume"] if self.aim in ("area", "front") else ["objective"]

    @property
    def reference_point_of_front(self) -> Pair | None:
        """Reference point of the joint front's hypervolume, or None if that is not the objective."""
        return self.objective.feasible_reference_point if self.aim == "front" else None

    def values(self, front: Front) -> list[float]:
        """Return the objective values of a front, one per name."""
        if self.weight is not None:
            return [self.objective.tchebycheff(front, self.weight)]
        if self.aim == "both":
            return list(self.objective.best_point(front))
        return [self.objective.area(front) if self.aim in ("area", "front") else self.objective.best_value(front)]


class RecentTrialsStorage(optuna.storages.InMemoryStorage):
    """A storage that shows a sampler only the trials that are still worth learning from.

    It hides trials that were reported again later. It also shows at most ``max_shown`` reported trials, so that
    proposals do not get slower and slower; a sampler such as TPE gives almost no weight to old trials anyway, except
    for the best. If ``max_shown`` is None, it shows all.
    """

    def __init__(self, max_shown: int | None) -> None:
        super().__init__()
        self._max_shown = max_shown
        self._shown: dict[int, None] = {}  # trial numbers, ascending
        self._told: dict[int, float] = {}  # value of each shown trial that was reported, the oldest first

    def tell(self, number: int, worth: float) -> None:
        """Record that trial ``number`` was reported to the study."""
        self._told[number] = worth
        if self._max_shown is not None and len(self._told) > self._max_shown:
            best = set(heapq.nlargest(NUM_BEST_SHOWN, self._told, key=self._told.__getitem__))
            oldest = next(old for old in self._told if old not in best)
            self.hide(oldest)

    def hide(self, number: int) -> None:
        """Hide this trial from the sampler."""
        self._shown.pop(number, None)
        self._told.pop(number, None)

    def create_new_trial(self, study_id: int, template_trial: Any = None) -> int:
        trial_id = super().create_new_trial(study_id, template_trial)
        self._shown[self.get_trial_number_from_id(trial_id)] = None
        return trial_id

    def get_all_trials(self, study_id: int, deepcopy: bool = True, states: Any = None) -> list[Any]:
        if states == (TrialState.WAITING,):  # the base class finds these without scanning all trials
            return super().get_all_trials(study_id, deepcopy, states)
        trials = super().get_all_trials(study_id, False, None)
        shown = [trials[number] for number in self._shown]
        shown = shown if states is None else [trial for trial in shown if trial.state in states]
        return copy.deepcopy(shown) if deepcopy else shown


class ScalarisedStudy:
    """A study of the sweep's trials under one scalarization, with its own trial numbers.

    It contains every trial, including those proposed by other studies. A trial is running in the study until it is
    first at rest, and has values from its first rung on. If it resumes later, each rung replaces the previous report.
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
        self.numbers: dict[int, int] = {}  # latest number in the study, by number in the sweep
        self._running: set[int] = set()  # numbers in the sweep of trials that were never at rest
        self._space = space
        self._num_trials = 0

    def ask(self, number: int, params: Params) -> tuple[KnownTrial, dict[str, Any]]:
        """Ask the sampler for a trial that has these parameters; return it with its configuration's values."""
        if params:
            self.study.enqueue_trial(params)
        trial = self.study.ask()
        self._number(number, trial.number)
        self._running.add(number)
        values = self._space.draw(trial)
        return KnownTrial(trial.params, trial.distributions), values

    def withdraw(self, number: int) -> None:
        """Remove a trial that does not run with the proposed values."""
        self._running.remove(number)
        self.study.tell(self.numbers[number], state=TrialState.FAIL)
        self.storage.hide(self.numbers.pop(number))

    def begin(self, number: int, known: KnownTrial) -> None:
        """Add a running trial that another study proposed, or that was proposed elsewhere."""
        self._running.add(number)
        self._add(number, known, TrialState.RUNNING)

    def report(self, number: int, known: KnownTrial) -> None:
        """Report another rung of a trial, or a change in the means over its runs."""
        if number not in self._running:
            self._add(number, known, TrialState.PRUNED)
            return
        trial_id = self.storage.get_trial_id_from_study_id_trial_number(self._study_id, self.numbers[number])
        for examples_seen, value in self._intermediate_values(known).items():
            self.storage.set_trial_intermediate_value(trial_id, examples_seen, value)
        for name, value in self._attributes(known).items():
            self.storage.set_trial_user_attr(trial_id, name, value)

    def tell(self, number: int, known: KnownTrial, state: TrialState) -> None:
        """Report a trial's state, replacing any earlier report."""
        if number in self._running:
            self._running.remove(number)
            self.study.tell(self.numbers[number], self._final_values(known, state), state)
            self.storage.tell(self.numbers[number], self._worth(known))
        elif known.fronts:
            self._add(number, known, state)

    def _add(self, number: int, known: KnownTrial, state: TrialState) -> None:
        """Add the trial in its current state, replacing the study's earlier entry."""
        if number in self.numbers:
            self.storage.hide(self.numbers[number])
        self._number(number, self._num_trials)
        self.study.add_trial(self._frozen(known, state))
        if state != TrialState.RUNNING:
            self.storage.tell(self.numbers[number], self._worth(known))

    def _worth(self, known: KnownTrial) -> float:
        """Return the value that selects the best of the older trials."""
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
        """Return the user attributes with the training data of a sampler that maximizes the joint front's hypervolume."""
        return {FRONTS: dict(known.fronts)} if self.scalarisation.aim == "front" else {}

    def _final_values(self, known: KnownTrial, state: TrialState) -> list[float] | None:
        return self.scalarisation.values(known.last_front) if state == TrialState.COMPLETE else None

    def _intermediate_values(self, known: KnownTrial) -> dict[int, float]:
        """Return values by examples seen, empty for several objectives, for which Optuna does not support them."""
        if self.scalarisation.aim == "both":
            return {}
        return {seen: self.scalarisation.values(front)[0] for seen, front in known.fronts.items()}


class Proposer:
    """The studies of one sweep. Trials have the numbers passed to :meth:`ask` and :meth:`adopt`.

    ``limit`` is the number of trials to propose, or None if unlimited. ``views`` are the studies: one in general, and
    one per weight with ParEGO. Each proposal comes from one of them, chosen at random.
    """

    def __init__(self, space: Space, sampler: str, seed: int, objective: Objective, aim: Aim = "combined") -> None:
        _silence_optuna()
        self.space = space
        self.limit: int | None = None
        self._scalarisation = Scalarisation(objective, aim)
        self._random = np.random.default_rng(seed)
        self._known: dict[int, KnownTrial] = {}
        self._queue: deque[Params] = deque()  # proposed before anything else
        if sampler == "grid":
            self._queue.extend(space.grid())
            self.limit = len(self._queue)
        self.views = tuple(
            ScalarisedStudy(space, sampler, seed + 7919 * index, scalarisation)
            for index, scalarisation in enumerate(_scalarisations(objective, aim, sampler))
        )

    @property
    def names(self) -> list[str]:
        """Names of the values that the sampler maximizes."""
        return self._scalarisation.names

    def values(self, front: Front) -> list[float]:
        """Return the values that the sampler maximizes for a trial with this front; with ParEGO, the weighted objective."""
        return self._scalarisation.values(front)

    def known_trial(self, number: int) -> KnownTrial:
        """Return a trial as the sampler knows it.

        Raises:
            KeyError: If the trial was neither asked for nor adopted.
        """
        return self._known[number]

    def try_first(self, number: int) -> None:
        """Propose the configuration of the adopted trial ``number`` before all others."""
        params = self._known[number].params
        self._drop(params)
        self._queue.appendleft(params)

    def _drop(self, params: Params) -> None:
        """Remove a configuration from the queue if it is there."""
        if params in self._queue:
            self._queue.remove(params)

    def ask(self, number: int, preset: Preset | None = None) -> dict[str, Any]:
        """Return the configuration of the sweep's trial ``number``, with the values of a preset if one is given."""
        view = self.views[int(self._random.integers(len(self.views)))]
        queued = self._next_queued(preset)
        given = {} if preset is None else dict(preset.params)
        return self._ask(view, number, given if queued is None else queued)

    def _next_queued(self, preset: Preset | None) -> Params | None:
        """Remove and return the next queued configuration, with a preset the first one with its values, or None."""
        wanted = {} if preset is None else preset.params
        for params in self._queue:
            if not wanted.items() <= params.items():
                continue
            self._queue.remove(params)
            return params
        return None

    def has_left(self, preset: Preset) -> bool:
        """Return whether a configuration with a preset's values can still be proposed; a grid may have none left."""
        wanted = preset.params.items()
        return self.limit is None or any(wanted <= params.items() for params in self._queue)

    def trial_with(self, preset: Preset) -> int | None:
        """Return the first trial of the sweep with a preset's values, or None, also if the preset is incomplete."""
        if not preset.is_whole:
            return None
        own = ((number, known.params) for number, known in self._known.items() if number >= 0)
        return next((number for number, params in own if params == preset.params), None)

    def amend(self, number: int, values: Mapping[str, Any]) -> None:
        """Run trial ``number``, which was just proposed, with these values instead."""
        params = self.space.suggest_fixed(values).params
        if params != self._known[number].params:
            for view in self.views:
                view.withdraw(number)
            self._take(number, values)

    def adopt(self, number: int, values: Mapping[str, Any]) -> None:
        """Add a trial that was proposed elsewhere, and do not propose its configuration again.

        Raises:
            ValueError: If the values are not in the space.
        """
        self._take(number, values)
        if number >= 0:
            self._drop(self._known[number].params)

    def _take(self, number: int, values: Mapping[str, Any]) -> None:
        """Add a trial that runs with these values to all studies."""
        recall = self.space.suggest_fixed(values)
        distributions = {name: _distribution(*kind) for name, kind in recall.distributions.items()}
        known = self._known[number] = KnownTrial(recall.params, distributions)
        for view in self.views:
            view.begin(number, known)

    def report(self, number: int, examples_seen: int, front: Front) -> None:
        """Report a trial's non-dominated points so far, at a rung."""
        known = self._known[number]
        known.fronts[examples_seen] = front
        for view in self.views:
            view.report(number, known)

    def tell(self, number: int, status: TrialStatus) -> None:
        """Report a trial's status.

        To the studies, paused and stopped trials are pruned, and trials without a rung have failed.
        """
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
    """Return the objectives of a sweep's studies: one per weight with ParEGO, otherwise a single one.

    Only ``mfgp`` can maximize the joint front's hypervolume; other samplers maximize that of each trial's own front.
    ``mfgp`` supports a single objective, so the joint front's hypervolume replaces P and S as separate objectives.
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
    """Raise InputError unless ``name`` is a sampler that can search this space with this aim.

    The check runs a few invented trials.
    """
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
    except Exception as error:  # third-party code may raise anything
        to_install = ""
        if isinstance(error, ModuleNotFoundError) and name.startswith("optuna."):
            to_install = f": pip install {error.name}"
        raise InputError(f"{name!r} cannot search this space: {first_line(error)}{to_install}") from None


def check_sampler(loaded: LoadedSweep) -> None:
    """Raise InputError, with the position in the file, unless the sweep's sampler can search its space."""
    config = loaded.config
    try:
        try_out(config.sampler, loaded.space, config.objective.proposals)
    except InputError as error:
        raise loaded.document.error(("sampler",), str(error)) from None
