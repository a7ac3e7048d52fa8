"""Syne Tune's schedulers, called as its Tuner calls them.

Of 0.16.0's model-based searches of several objectives, ``EHVI`` is the one that can be imported:
``MultiObjectiveMultiSurrogateSearcher`` needs modules that the package no longer has.
"""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from syne_tune import config_space
from syne_tune.backend.trial_status import Trial
from syne_tune.optimizer import baselines
from syne_tune.optimizer.schedulers.multiobjective import MultiObjectiveRegularizedEvolution
from syne_tune.optimizer.schedulers.multiobjective.expected_hyper_volume_improvement import (
    ExpectedHyperVolumeImprovement,
)
from syne_tune.optimizer.schedulers.multiobjective.moasha import MOASHA, NonDominatedPriority
from syne_tune.optimizer.schedulers.single_fidelity_scheduler import SingleFidelityScheduler

from benchmarks.search_peers.flat import Flat, Given, flat, indexed
from benchmarks.search_peers.shown import Asked, Points, Shown, longest, params_of
from raysweep.config.space import Choices, Range
from raysweep.metrics.objective import Pair
from raysweep.replay.recordings import RecordedSweep

Metrics = dict[str, float]

EHVI_REFERENCE = 2.0
"""Of each metric that is maximized: where 0.16.0's EHVI lets hypervolumes begin, whatever the metrics."""


class SyneTune:
    """A scheduler of Syne Tune's over a table. ``told`` is what it is told: P and S, or the trial's area."""

    def __init__(self, table: RecordedSweep, scheduler: Any, told: Literal["area", "both"]) -> None:
        self._table, self._scheduler, self._told = table, scheduler, told
        self._parameters = flat(table.space)
        self._shown = Shown(table)
        self._trials: list[Any] = []
        self._results: dict[int, Metrics] = {}
        self._stopped: set[int] = set()

    def ask(self) -> Asked:
        number = len(self._trials)
        if number == len(self._table.trials):
            return None
        drawn = self._scheduler.suggest().config
        self._trials.append(Trial(number, drawn, datetime.datetime.min))
        self._scheduler.on_trial_add(self._trials[-1])
        return number, self._table.space.draw(Given(drawn))

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        # What does not exist under the recorded values keeps what was drawn for it: there is no space of theirs without.
        recorded = indexed(self._parameters, params_of(self._table, values))
        self._trials[trial].config = {**self._trials[trial].config, **recorded}

    def on_rung(self, trial: int, budget: int, points: Points, ahead: Sequence[int]) -> bool:
        self._shown.add(trial, points)
        self._results[trial] = self._metrics(trial) | {"time": round(budget / self._table.first_budget)}
        stops: bool = self._scheduler.on_trial_result(self._trials[trial], self._results[trial]) == "STOP"
        if stops:
            self._scheduler.on_trial_remove(self._trials[trial])
            self._stopped.add(trial)
        return stops

    def on_rest(self, trial: int, completed: bool) -> None:
        if trial not in self._stopped:
            self._scheduler.on_trial_complete(self._trials[trial], self._results[trial])

    def _metrics(self, trial: int) -> Metrics:
        if self._told == "area":
            return {"area": self._shown.area(trial)}
        polarity, similarity = self._shown.best_point(trial)
        return {"P": polarity, "S": similarity}


class Ehvi(SyneTune):
    """Expected hypervolume improvement, with three things mended that 0.16.0 would do wrong.

    It pairs configurations in the order in which they were suggested with results in the order in which trials ended, so
    results are ordered. It measures hypervolumes from 2 in each metric, so each is told as 2 and how far it lies above the
    table's reference point. And it mixes numbers of 32 and of 64 bits, which today's BoTorch refuses.
    """

    def __init__(self, table: RecordedSweep, seed: int) -> None:
        self._searcher = _OrderedEhvi(domains(flat(table.space)), random_seed=seed)
        scheduler = SingleFidelityScheduler(
            self._searcher.config_space, ["P", "S"], do_minimize=False, searcher=self._searcher, random_seed=seed
        )
        super().__init__(table, scheduler, "both")

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        super().on_begin(trial, values)
        self._searcher.trial_configs[trial] = self._trials[trial].config

    def _metrics(self, trial: int) -> Metrics:
        polarity, similarity = self._shown.best_point(trial)
        least: Pair = self._table.reference_point
        return {"P": EHVI_REFERENCE + polarity - least[0], "S": EHVI_REFERENCE + similarity - least[1]}


class _OrderedEhvi(ExpectedHyperVolumeImprovement):  # type: ignore[misc, unused-ignore]
    def objectives(self) -> Any:
        return np.array([self.trial_observations[trial] for trial in sorted(self.trial_observations)])

    def _sample_next_candidate(self) -> Any:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return super()._sample_next_candidate()
        finally:
            torch.set_default_dtype(before)


def moasha(table: RecordedSweep, factor: int) -> SyneTune:
    """MOASHA on P and S, which proposes at random.

    In 0.16.0 its default priority hands out the order of the sorted trials where ranks are meant; here it is turned into
    ranks.
    """
    order = NonDominatedPriority()
    scheduler = MOASHA(
        domains(flat(table.space)),
        metrics=["P", "S"],
        do_minimize=False,
        time_attr="time",
        max_t=longest(table),
        reduction_factor=factor,
        multiobjective_priority=lambda scores: np.argsort(order(scores)),
        random_seed=0,  # only noted; it draws from numpy's global generator
    )
    return SyneTune(table, scheduler, "both")


def bohb(table: RecordedSweep, seed: int, factor: int) -> SyneTune:
    """Asynchronous BOHB, ASHA with proposals by kernel densities, on the trial's area."""
    scheduler = baselines.BOHB(
        domains(flat(table.space)),
        metric="area",
        time_attr="time",
        max_t=longest(table),
        do_minimize=False,
        reduction_factor=factor,
        random_seed=seed,
    )
    return SyneTune(table, scheduler, "area")


def regularized_evolution(table: RecordedSweep, seed: int) -> SyneTune:
    """Regularized evolution on P and S, a tenth of the trials as its population."""
    space = domains(flat(table.space))
    searcher = MultiObjectiveRegularizedEvolution(
        space,
        population_size=max(10, len(table.trials) // 10),
        multiobjective_priority=_ranks,
        random_seed=seed,
    )
    scheduler = SingleFidelityScheduler(space, ["P", "S"], do_minimize=False, searcher=searcher, random_seed=seed)
    return SyneTune(table, scheduler, "both")


def _ranks(scores: Any) -> Any:
    """The same mending as in :func:`moasha`."""
    return np.argsort(NonDominatedPriority()(scores))


def domains(parameters: list[Flat]) -> dict[str, Any]:
    """A space in Syne Tune's terms: every parameter that may occur by its sampler's name, choices by their index."""
    found: dict[str, Any] = {}
    for each in parameters:
        if isinstance(each.parameter, Choices):
            # Syne Tune asks for choices of one type; indices always are.
            found[each.name] = config_space.choice(list(range(len(each.options))))
        else:
            found[each.name] = _domain(each.parameter)
    return found


def _domain(parameter: Range) -> Any:
    if parameter.integer:
        kind = config_space.lograndint if parameter.log else config_space.randint
        return kind(int(parameter.low), int(parameter.high))
    kind = config_space.loguniform if parameter.log else config_space.uniform
    return kind(parameter.low, parameter.high)
