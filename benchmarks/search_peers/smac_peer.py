"""SMAC3's multi-fidelity search (Hyperband with a random forest) and ParEGO, through its ask-and-tell."""

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ConfigSpace import (
    CategoricalHyperparameter,
    Configuration,
    ConfigurationSpace,
    EqualsCondition,
    UniformFloatHyperparameter,
    UniformIntegerHyperparameter,
)
from smac import HyperparameterOptimizationFacade, MultiFidelityFacade, Scenario
from smac.main.config_selector import ConfigSelector
from smac.multi_objective import ParEGO
from smac.runhistory.dataclasses import TrialValue

from benchmarks.search_peers.flat import Flat, Given, flat, indexed
from benchmarks.search_peers.shown import Asked, Points, Shown, params_of
from raysweep.config.space import Choices
from raysweep.metrics.scores import Pair
from raysweep.replay.recordings import RecordedSweep
from raysweep.replay.simulator import FreeTrials

NUM_RUNS = 100_000  # of a configuration at a budget, more than any recording holds
TOLERANCE = 1e-6  # of budgets, which SMAC divides by its reduction factor
BOUND_MARGIN = 1e-6


class Smac:
    """SMAC's Hyperband; a promoted trial resumes where it was paused. Without rungs, SMAC's search of one fidelity is used.

    SMAC receives results under the values that it proposed, so its selection is mapped to the nearest free recorded
    configuration at once, before Hyperband sees it.
    """

    def __init__(self, recording: RecordedSweep, seed: int) -> None:
        logging.getLogger("smac").setLevel(logging.ERROR)
        self._recording, self._shown = recording, Shown(recording)
        self._names = Names(flat(recording.space))
        self._folder = tempfile.TemporaryDirectory(prefix="smac-")
        self._smac = self._facade(seed)
        self._numbers: dict[Configuration, int] = {}
        self._running: dict[int, Any] = {}  # by trial, what SMAC asked for
        self._rungs: dict[int, dict[float, Pair]] = {}  # by trial and rung, the best point so far

    def _facade(self, seed: int) -> Any:
        recording = self._recording
        has_rungs = recording.num_rungs > 1
        budgets = {"min_budget": 1, "max_budget": recording.num_rungs} if has_rungs else {}
        scenario = Scenario(
            self._names.space,
            objectives=["P", "S"],
            deterministic=True,
            n_trials=NUM_RUNS,
            output_directory=Path(self._folder.name),
            seed=seed,
            **budgets,
        )
        facade = MultiFidelityFacade if has_rungs else HyperparameterOptimizationFacade
        # An initial design is sized by the number of trials, which is not NUM_RUNS.
        design = facade.get_initial_design(scenario, n_configs=max(1, len(recording.trials) // 10))
        # With several objectives incumbents of different budgets cannot be compared, and the facade's own choice fails.
        intensifier = facade.get_intensifier(
            scenario, **({"incumbent_selection": "highest_budget"} if has_rungs else {})
        )
        return facade(
            scenario,
            _never_called_with_budget if has_rungs else _never_called,
            initial_design=design,
            config_selector=_RecordedSelector(scenario, recording, self._names),
            multi_objective_algorithm=ParEGO(scenario),
            logging_level=False,
            intensifier=intensifier,
            overwrite=True,
        )

    def ask(self) -> Asked:
        while True:
            try:
                info = self._smac.ask()
            except StopIteration:  # every recorded configuration was begun
                return None
            number = self._numbers.setdefault(info.config, len(self._numbers))
            if (known := self._known(number, info.budget)) is None:
                self._running[number] = info
                return number, self._names.values(self._recording, info.config)
            self._tell(info, known)  # another bracket had it trained so far

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        """Ignore the recorded values: the trial already has recorded ones."""

    def on_rung(self, trial: int, budget: int, points: Points, ahead: Sequence[int]) -> bool:
        self._shown.add(trial, points)
        rung = budget / self._recording.first_budget
        self._rungs.setdefault(trial, {})[rung] = self._shown.best_point(trial)
        return self._known(trial, self._running[trial].budget) is not None

    def on_rest(self, trial: int, completed: bool) -> None:
        if completed:  # maybe before the budget that was asked for: it was recorded no further
            self._rungs[trial][float("inf")] = self._shown.best_point(trial)
        self._tell(self._running.pop(trial), self._shown.best_point(trial))

    def _known(self, trial: int, budget: float | None) -> Pair | None:
        """Return the best point of a trial's rungs up to the first with this budget, or None before it."""
        for rung, best in self._rungs.get(trial, {}).items():
            if budget is not None and rung >= budget - TOLERANCE:
                return best
        return None

    def _tell(self, info: Any, point: Pair) -> None:
        polarity, similarity = point
        self._smac.tell(info, TrialValue(cost=[1 - polarity, 1 - similarity]), save=False)


def _never_called(config: Configuration, seed: int) -> float:
    raise AssertionError("SMAC is asked and told")


def _never_called_with_budget(config: Configuration, seed: int, budget: float) -> float:
    raise AssertionError("SMAC is asked and told")


class _RecordedSelector(ConfigSelector):  # type: ignore[misc, unused-ignore]
    """Yields the nearest recorded configuration that it has not yielded before.

    When none is left, it yields all of them once more: they are not evaluated again, but they fill Hyperband's last
    brackets, which otherwise would not be evaluated at all.
    """

    def __init__(self, scenario: Scenario, recording: RecordedSweep, names: "Names") -> None:
        super().__init__(scenario, retrain_after=1)
        self._recording, self._names = recording, names
        self._free_trials = FreeTrials(recording)
        self._num_free = len(recording.trials)

    def __iter__(self) -> Iterator[Configuration]:
        for config in super().__iter__():
            if not self._num_free:
                break
            index = self._free_trials.take_nearest(self._names.values(self._recording, config))
            self._num_free -= 1
            recorded = self._names.configuration(
                self._recording, self._recording.trials[index].values
            )
            self._processed_configs.append(recorded)
            yield recorded
        for trial in self._recording.trials:
            yield self._names.configuration(self._recording, trial.values)


class Names:
    """A space as a ConfigurationSpace, whose names must be plain: parameters by their number, choices by their index."""

    def __init__(self, parameters: list[Flat]) -> None:
        self._parameters = parameters
        self._plain = {entry.name: f"p{number}" for number, entry in enumerate(parameters)}
        self.space = ConfigurationSpace()
        for entry in parameters:
            self.space.add(self._hyperparameter(entry))
        for entry in parameters:
            if entry.parent is not None:
                self.space.add(self._condition(entry))

    def _hyperparameter(self, entry: Flat) -> Any:
        name, parameter = self._plain[entry.name], entry.parameter
        if isinstance(parameter, Choices):
            return CategoricalHyperparameter(name, list(range(len(entry.options))))
        if parameter.integer:
            return UniformIntegerHyperparameter(
                name, int(parameter.low), int(parameter.high), log=parameter.log
            )
        # Its bounds are rounded to a dozen digits, which would leave out what was recorded at them.
        margin = BOUND_MARGIN * (parameter.high - parameter.low)
        low = parameter.low * (1 - BOUND_MARGIN) if parameter.log else parameter.low - margin
        return UniformFloatHyperparameter(name, low, parameter.high + margin, log=parameter.log)

    def _condition(self, entry: Flat) -> Any:
        parent = next(other for other in self._parameters if other.name == entry.parent)
        child = self.space[self._plain[entry.name]]
        return EqualsCondition(
            child, self.space[self._plain[parent.name]], parent.options.index(entry.option)
        )

    def configuration(self, recording: RecordedSweep, values: Mapping[str, Any]) -> Configuration:
        params = indexed(self._parameters, params_of(recording, values))
        return Configuration(
            self.space, values={self._plain[name]: value for name, value in params.items()}
        )

    def values(self, recording: RecordedSweep, config: Configuration) -> dict[str, Any]:
        given = dict(config)
        params = {name: given[plain] for name, plain in self._plain.items() if plain in given}
        return recording.space.draw(Given(params))
