"""Proposals of configurations through Optuna's ask-and-tell interface.

Paused trials are reported to Optuna as pruned. If a trial resumes and is reported again, the sampler
sees only the latest report.
"""

import copy
import heapq
import importlib
import inspect
import math
import warnings
from collections import deque
from collections.abc import Collection, Mapping, Sequence
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
from raysweep.metrics.objective import Objective
from raysweep.metrics.scores import Pair
from raysweep.results.types import TrialStatus
from raysweep.search.conditional_space import make_conditional_space
from raysweep.search.encoding import Params
from raysweep.search.history import FRONTS
from raysweep.search.mfgp import MultiFidelitySampler

# weights of P in ParEGO's scalarizations, one study per weight
PAREGO_WEIGHTS = (
    0.1,
    0.3,
    0.5,
    0.7,
    0.9,
)


MAX_SHOWN = 256  # maximum number of reported trials that a sampler sees: the best and the latest
NUM_BEST_SHOWN = 64
# number of trials used to check a sampler; most samplers choose their first ten at random
NUM_TRIED_OUT = 12
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
    # the front so far, keyed by examples seen
    fronts: dict[int, Front] = field(default_factory=dict)

    @property
    def last_front(self) -> Front:
        """The front at the rung with the most examples seen."""
        return self.fronts[max(self.fronts)]


@dataclass(frozen=True)
class Scalarization:
    """The objective of a study: a single number computed from a trial's front, or both P and S."""

    objective: Objective
    aim: Aim
    # weight of P in ParEGO's augmented Tchebycheff value, or None without ParEGO
    weight: float | None = None

    @property
    def names(self) -> list[str]:
        if self.aim == "both":
            return ["P", "S"]
        return ["hypervolume"] if self.aim in ("area", "front") else ["objective"]

    @property
    def reference_point_of_front(self) -> Pair | None:
        """The reference point if the aim is the joint front's hypervolume, otherwise None."""
        return self.objective.feasible_reference_point if self.aim == "front" else None

    def values(self, front: Front) -> list[float]:
        """Return the objective values for a front, one per name."""
        if self.weight is not None:
            return [self.objective.tchebycheff(front, self.weight)]
        if self.aim == "both":
            return list(self.objective.best_point(front))
        if self.aim in ("area", "front"):
            return [self.objective.area(front)]
        return [self.objective.best_value(front)]


class RecentTrialsStorage(optuna.storages.InMemoryStorage):
    """An in-memory storage that hides old trials from the sampler to keep proposals fast.

    It shows at most ``max_shown`` reported trials (None for no limit): the best and the latest.
    Samplers such as TPE give almost no weight to other trials anyway.
    """

    def __init__(self, max_shown: int | None) -> None:
        super().__init__()
        self._max_shown = max_shown
        self._shown: dict[int, None] = {}  # trial numbers, in ascending order
        self._values: dict[int, float] = {}  # keyed by trial number, oldest report first

    def add_report(self, number: int, value: float) -> None:
        """Record the value reported for a trial, and hide an old trial if there are too many."""
        self._values[number] = value
        if self._max_shown is not None and len(self._values) > self._max_shown:
            best = set(heapq.nlargest(NUM_BEST_SHOWN, self._values, key=self._values.__getitem__))
            oldest = next(other for other in self._values if other not in best)
            self.hide(oldest)

    def hide(self, number: int) -> None:
        """Hide a trial from the sampler."""
        self._shown.pop(number, None)
        self._values.pop(number, None)

    def create_new_trial(self, study_id: int, template_trial: Any = None) -> int:
        trial_id = super().create_new_trial(study_id, template_trial)
        self._shown[self.get_trial_number_from_id(trial_id)] = None
        return trial_id

    def get_all_trials(self, study_id: int, deepcopy: bool = True, states: Any = None) -> list[Any]:
        # the base class has a fast path for waiting trials
        if states == (TrialState.WAITING,):
            return super().get_all_trials(study_id, deepcopy, states)
        trials = super().get_all_trials(study_id, False, None)
        shown = [trials[number] for number in self._shown]
        shown = shown if states is None else [trial for trial in shown if trial.state in states]
        return copy.deepcopy(shown) if deepcopy else shown


class ScalarizedStudy:
    """An Optuna study of all the sweep's trials under one scalarization.

    Trials have different numbers in the study than in the sweep. A trial is running in the study until
    it first pauses or ends. If it resumes, each later report replaces its entry with a new one.
    """

    def __init__(self, space: Space, sampler: str, seed: int, scalarization: Scalarization) -> None:
        self.scalarization = scalarization
        max_shown = None if sampler == "mfgp" else MAX_SHOWN
        self.storage = RecentTrialsStorage(max_shown)
        reference_point = scalarization.reference_point_of_front
        self.study = optuna.create_study(
            directions=["maximize"] * len(scalarization.names),
            sampler=make_sampler(sampler, seed, space, reference_point),
            storage=self.storage,
        )
        self._study_id = self.storage.get_study_id_from_name(self.study.study_name)
        self.numbers: dict[int, int] = {}  # number in the study, keyed by number in the sweep
        # trials that have never paused or ended, by number in the sweep
        self._running: set[int] = set()
        self._space = space
        self._num_trials = 0

    def ask(self, number: int, params: Params) -> tuple[KnownTrial, dict[str, Any]]:
        """Ask the sampler for a trial with these parameters, and return it with its configuration values."""
        if params:
            self.study.enqueue_trial(params)
        trial = self.study.ask()
        self.numbers[number] = trial.number
        self._num_trials += 1
        self._running.add(number)
        values = self._space.draw(trial)
        known = KnownTrial(trial.params, trial.distributions)
        return known, values

    def withdraw(self, number: int) -> None:
        """Remove a trial that will not run with the proposed values."""
        self._running.remove(number)
        self.study.tell(self.numbers[number], state=TrialState.FAIL)
        self.storage.hide(self.numbers.pop(number))

    def begin(self, number: int, known: KnownTrial) -> None:
        """Add a running trial that this study did not propose."""
        self._running.add(number)
        self._add(number, known, TrialState.RUNNING)

    def report(self, number: int, known: KnownTrial) -> None:
        """Report a trial's results after another rung or replicate."""
        has_rested = number not in self._running
        if has_rested:
            self._add(number, known, TrialState.PRUNED)
            return
        storage = self.storage
        number_in_study = self.numbers[number]
        trial_id = storage.get_trial_id_from_study_id_trial_number(self._study_id, number_in_study)
        values = self._intermediate_values(known)
        for examples_seen, value in values.items():
            storage.set_trial_intermediate_value(trial_id, examples_seen, value)
        attributes = self._attributes(known)
        for name, attribute in attributes.items():
            storage.set_trial_user_attr(trial_id, name, attribute)

    def tell(self, number: int, known: KnownTrial, state: TrialState) -> None:
        """Report a trial's state, replacing any earlier report."""
        if number in self._running:
            self._running.remove(number)
            number_in_study = self.numbers[number]
            self.study.tell(number_in_study, self._final_values(known, state), state)
            self.storage.add_report(number_in_study, self._ranking_value(known))
        elif known.fronts:
            self._add(number, known, state)

    def _add(self, number: int, known: KnownTrial, state: TrialState) -> None:
        """Add a trial to the study, replacing any earlier entry."""
        if number in self.numbers:
            self.storage.hide(self.numbers[number])
        self.numbers[number] = self._num_trials
        self._num_trials += 1
        trial = optuna.trial.create_trial(
            state=state,
            params=known.params,
            distributions=known.distributions,
            values=self._final_values(known, state),
            intermediate_values=self._intermediate_values(known),
            user_attrs=self._attributes(known),
        )
        self.study.add_trial(trial)
        if state != TrialState.RUNNING:
            self.storage.add_report(self.numbers[number], self._ranking_value(known))

    def _ranking_value(self, known: KnownTrial) -> float:
        """Return the value that decides which old trials stay visible to the sampler."""
        return self.scalarization.values(known.last_front)[0] if known.fronts else -math.inf

    def _attributes(self, known: KnownTrial) -> dict[str, Any]:
        return {FRONTS: dict(known.fronts)} if self.scalarization.aim == "front" else {}

    def _final_values(self, known: KnownTrial, state: TrialState) -> list[float] | None:
        return self.scalarization.values(known.last_front) if state == TrialState.COMPLETE else None

    def _intermediate_values(self, known: KnownTrial) -> dict[int, float]:
        """Return the intermediate values, keyed by examples seen."""
        if self.scalarization.aim == "both":
            return {}  # Optuna supports them only for a single objective
        return {seen: self.scalarization.values(front)[0] for seen, front in known.fronts.items()}


class Proposer:
    """The source of a sweep's new configurations, backed by one or more Optuna studies.

    ``views`` contains the studies: one per weight with ParEGO, otherwise a single one. Each proposal
    comes from a random study. ``limit`` is the maximum number of trials, or None for no limit.
    """

    def __init__(
        self, space: Space, sampler: str, seed: int, objective: Objective, aim: Aim = "combined"
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        self.space = space
        self.objective = objective
        self.limit: int | None = None
        self._scalarization = Scalarization(objective, aim)
        self._random = np.random.default_rng(seed)
        self._known: dict[int, KnownTrial] = {}
        self._queue: deque[Params] = deque()  # configurations to propose first
        if sampler == "grid":
            self._queue.extend(space.grid())
            self.limit = len(self._queue)
        scalarizations = _scalarizations(objective, aim, sampler)
        self.views = tuple(
            ScalarizedStudy(space, sampler, seed + 7919 * index, scalarization)
            for index, scalarization in enumerate(scalarizations)
        )

    @property
    def names(self) -> list[str]:
        """The names of the values that the sampler maximizes."""
        return self._scalarization.names

    def values(self, front: Front) -> list[float]:
        """Return the values to maximize for a trial's front; with ParEGO, the weighted objective."""
        return self._scalarization.values(front)

    def known_trial(self, number: int) -> KnownTrial:
        """Return a proposed or adopted trial and its results.

        Raises:
            KeyError: If the trial was neither proposed nor adopted.
        """
        return self._known[number]

    def try_first(self, number: int) -> None:
        """Move the configuration of an adopted trial to the head of the queue."""
        params = self._known[number].params
        self._remove_from_queue(params)
        self._queue.appendleft(params)

    def _remove_from_queue(self, params: Params) -> None:
        if params in self._queue:
            self._queue.remove(params)

    def ask(self, number: int, preset: Preset | None = None) -> dict[str, Any]:
        """Propose a configuration for a new trial, optionally with the values of a preset."""
        index = int(self._random.integers(len(self.views)))
        view = self.views[index]
        params = {} if preset is None else dict(preset.params)
        matches = (queued for queued in self._queue if params.items() <= queued.items())
        queued = next(matches, None)
        if queued is not None:
            self._queue.remove(queued)
            params = queued
        known, values = view.ask(number, params)
        self._known[number] = known
        for other in self.views:
            if other is not view:
                other.begin(number, known)
        return values

    def has_left(self, preset: Preset) -> bool:
        """Return whether a configuration with the preset's values can still be proposed. Only a grid can run out."""
        values = preset.params.items()
        return self.limit is None or any(values <= params.items() for params in self._queue)

    def trial_with(self, preset: Preset) -> int | None:
        """Return the first trial with the preset's values, or None if no trial matches or the preset is incomplete."""
        if not preset.is_complete:
            return None
        for number, known in self._known.items():
            if number >= 0 and known.params == preset.params:
                return number
        return None

    def amend(self, number: int, values: Mapping[str, Any]) -> None:
        """Replace the values of a trial that was just proposed."""
        params = self.space.suggest_fixed(values).params
        if params != self._known[number].params:
            for view in self.views:
                view.withdraw(number)
            self._replace(number, values)

    def adopt(self, number: int, values: Mapping[str, Any], widened: Collection[str] = ()) -> None:
        """Add a trial that was proposed elsewhere.

        The values of ``widened`` parameters may be outside their ranges.

        Raises:
            ValueError: If the values are not in the space.
        """
        self._replace(number, values, widened)
        if number >= 0:
            self._remove_from_queue(self._known[number].params)

    def _replace(
        self, number: int, values: Mapping[str, Any], widened: Collection[str] = ()
    ) -> None:
        """Add a trial with these values to all studies."""
        fixed = self.space.suggest_fixed(values, widened)
        distributions = {name: _distribution(*kind) for name, kind in fixed.distributions.items()}
        known = self._known[number] = KnownTrial(fixed.params, distributions)
        for view in self.views:
            view.begin(number, known)

    def report(self, number: int, examples_seen: int, front: Front) -> None:
        """Report a trial's front at a rung."""
        known = self._known[number]
        known.fronts[examples_seen] = front
        for view in self.views:
            view.report(number, known)

    def tell(self, number: int, status: TrialStatus) -> None:
        """Report a trial's status.

        The studies record paused and stopped trials as pruned, and trials without any rung as failed.
        """
        known = self._known[number]
        state = STUDY_STATES[status] if known.fronts else TrialState.FAIL
        for view in self.views:
            view.tell(number, known, state)


def _scalarizations(objective: Objective, aim: Aim, sampler: str) -> list[Scalarization]:
    """Return the scalarization of each study.

    Only ``mfgp`` can maximize the hypervolume of the joint front. Other samplers maximize the
    hypervolume of each trial's own front instead. Because ``mfgp`` supports only one objective, it
    maximizes the hypervolume of the joint front if the aim is "both".
    """
    if aim == "both" and sampler == "mfgp":
        return [Scalarization(objective, "front")]
    if aim == "front" and sampler != "mfgp":
        return [Scalarization(objective, "area")]
    weights: Sequence[float | None] = PAREGO_WEIGHTS if aim == "parego" else (None,)
    return [Scalarization(objective, aim, weight) for weight in weights]


def _distribution(kind: str, *details: Any) -> optuna.distributions.BaseDistribution:
    if kind == "categorical":
        return optuna.distributions.CategoricalDistribution(*details)
    low, high, log = details
    if kind == "int":
        return optuna.distributions.IntDistribution(low, high, log=log)
    return optuna.distributions.FloatDistribution(low, high, log=log)


def make_sampler(
    name: str, seed: int, space: Space, reference_point: Pair | None = None
) -> optuna.samplers.BaseSampler:
    """Create a sampler from a short name or an import path such as ``optuna.samplers:QMCSampler``.

    ``reference_point`` is used only by ``mfgp``.
    """
    samplers = optuna.samplers
    if name == "mfgp":
        return MultiFidelitySampler(
            make_conditional_space(space), seed=seed, reference_point=reference_point
        )
    if name == "tpe":
        # Grouped TPE fits a joint density to each group of parameters that occur together.
        return samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)
    if name == "gp":
        return samplers.GPSampler(seed=seed, deterministic_objective=False)
    if name == "nsga2":
        return samplers.NSGAIISampler(seed=seed)
    if name in ("random", "grid"):  # grid points are enqueued
        return samplers.RandomSampler(seed=seed)
    sampler_class = find_sampler(name)
    try:
        parameters = inspect.signature(sampler_class).parameters
        arguments = {"seed": seed} if "seed" in parameters else {}
        with warnings.catch_warnings(
            action="ignore", category=optuna.exceptions.ExperimentalWarning
        ):
            return sampler_class(**arguments)
    except Exception as error:  # third-party code may raise anything
        raise InputError(f"{name!r} cannot be created: {_describe(error)}") from None


def _describe(error: BaseException) -> str:
    """Return an error's type and the first line of its message."""
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def find_sampler(path: str) -> type[optuna.samplers.BaseSampler]:
    """Return the sampler class with the import path ``package.module:Class``.

    Raises:
        InputError: If the path cannot be imported or is not a sampler.
    """
    module, colon, attribute = path.partition(":")
    try:
        sampler_class = getattr(importlib.import_module(module), attribute) if colon else None
    except (Exception, SystemExit) as error:  # importing may raise anything
        raise InputError(f"{path!r} cannot be imported: {_describe(error)}") from None
    if not (
        inspect.isclass(sampler_class) and issubclass(sampler_class, optuna.samplers.BaseSampler)
    ):
        raise InputError(
            f"{path!r} is not a sampler; allowed: {', '.join(SAMPLERS)}, or the import path of an Optuna sampler, such as "
            "optuna.samplers:QMCSampler"
        )
    return sampler_class


def try_out(name: str, space: Space, aim: Aim) -> None:
    """Raise InputError if the sampler ``name`` cannot search this space with this aim.

    The check runs a few trials with synthetic scores.
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
        hint = ""
        if isinstance(error, ModuleNotFoundError) and name.startswith("optuna."):
            hint = f": pip install {error.name}"
        raise InputError(f"{name!r} cannot search this space: {_describe(error)}{hint}") from None


def check_sampler(loaded: LoadedSweep) -> None:
    """Raise InputError with the position in the sweep file if the sampler cannot search the space."""
    config = loaded.config
    try:
        try_out(config.sampler, loaded.space, config.objective.proposals)
    except InputError as error:
        raise loaded.document.error(("sampler",), str(error)) from None
