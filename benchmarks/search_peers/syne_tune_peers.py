"""Syne Tune's schedulers, called as its Tuner calls them.

Of the model-based searches of several objectives in 0.16.0, only ``EHVI`` can be imported:
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
from raysweep.metrics.scores import Pair
from raysweep.replay.recordings import RecordedSweep

Metrics = dict[str, float]

EHVI_REFERENCE = 2.0
"""Of each metric that is maximized: where 0.16.0's EHVI lets hypervolumes begin, whatever the metrics."""


class SyneTune:
    """A scheduler of Syne Tune's on a recording. ``objective`` selects what it receives: P and S, or the trial's area."""

    def __init__(
        self, recording: RecordedSweep, scheduler: Any, objective: Literal["area", "both"]
    ) -> None:
        self._recording, self._scheduler, self._objective = recording, scheduler, objective
        self._parameters = flat(recording.space)
        self._shown = Shown(recording)
        self._trials: list[Any] = []
        self._results: dict[int, Metrics] = {}
        self._stopped: set[int] = set()

    def ask(self) -> Asked:
        number = len(self._trials)
        if number == len(self._recording.trials):
            return None
        drawn = self._scheduler.suggest().config
        self._trials.append(Trial(number, drawn, datetime.datetime.min))
        self._scheduler.on_trial_add(self._trials[-1])
        return number, self._recording.space.draw(Given(drawn))

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        # What does not exist under the recorded values keeps what was drawn for it: there is no space of theirs without.
        recorded = indexed(self._parameters, params_of(self._recording, values))
        self._trials[trial].config = {**self._trials[trial].config, **recorded}

    def on_rung(self, trial: int, budget: int, points: Points, ahead: Sequence[int]) -> bool:
        self._shown.add(trial, points)
        self._results[trial] = self._metrics(trial) | {
            "time": round(budget / self._recording.first_budget)
        }
        stops: bool = (
            self._scheduler.on_trial_result(self._trials[trial], self._results[trial]) == "STOP"
        )
        if stops:
            self._scheduler.on_trial_remove(self._trials[trial])
            self._stopped.add(trial)
        return stops

    def on_rest(self, trial: int, completed: bool) -> None:
        if trial not in self._stopped:
            self._scheduler.on_trial_complete(self._trials[trial], self._results[trial])

    def _metrics(self, trial: int) -> Metrics:
        if self._objective == "area":
            return {"area": self._shown.area(trial)}
        polarity, similarity = self._shown.best_point(trial)
        return {"P": polarity, "S": similarity}


class Ehvi(SyneTune):
    """Expected hypervolume improvement, with three fixes of 0.16.0.

    It pairs configurations in the order of their suggestion with results in the order in which trials ended, so results are
    sorted. It measures hypervolumes from 2 in each metric, so each metric is passed as 2 plus its distance from the
    recording's reference point. And it mixes 32-bit and 64-bit numbers, which current BoTorch versions reject.
    """

    def __init__(self, recording: RecordedSweep, seed: int) -> None:
        self._searcher = _OrderedEhvi(domains(flat(recording.space)), random_seed=seed)
        scheduler = SingleFidelityScheduler(
            self._searcher.config_space,
            ["P", "S"],
            do_minimize=False,
            searcher=self._searcher,
            random_seed=seed,
        )
        super().__init__(recording, scheduler, "both")

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        super().on_begin(trial, values)
        self._searcher.trial_configs[trial] = self._trials[trial].config

    def _metrics(self, trial: int) -> Metrics:
        polarity, similarity = self._shown.best_point(trial)
        least: Pair = self._recording.reference_point
        return {
            "P": EHVI_REFERENCE + polarity - least[0],
            "S": EHVI_REFERENCE + similarity - least[1],
        }


class _OrderedEhvi(ExpectedHyperVolumeImprovement):  # type: ignore[misc, unused-ignore]
    def objectives(self) -> Any:
        return np.array(
            [self.trial_observations[trial] for trial in sorted(self.trial_observations)]
        )

    def _sample_next_candidate(self) -> Any:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return super()._sample_next_candidate()
        finally:
            torch.set_default_dtype(before)


def moasha(recording: RecordedSweep, factor: int) -> SyneTune:
    """Return MOASHA on P and S, which proposes at random.

    In 0.16.0 its default priority returns the order of the sorted trials instead of ranks; here it returns ranks.
    """
    order = NonDominatedPriority()
    scheduler = MOASHA(
        domains(flat(recording.space)),
        metrics=["P", "S"],
        do_minimize=False,
        time_attr="time",
        max_t=longest(recording),
        reduction_factor=factor,
        multiobjective_priority=lambda scores: np.argsort(order(scores)),
        random_seed=0,  # only noted; it draws from numpy's global generator
    )
    return SyneTune(recording, scheduler, "both")


def bohb(recording: RecordedSweep, seed: int, factor: int) -> SyneTune:
    """Return asynchronous BOHB, ASHA with proposals by kernel densities, on the trial's area."""
    scheduler = baselines.BOHB(
        domains(flat(recording.space)),
        metric="area",
        time_attr="time",
        max_t=longest(recording),
        do_minimize=False,
        reduction_factor=factor,
        random_seed=seed,
    )
    return SyneTune(recording, scheduler, "area")


def regularized_evolution(recording: RecordedSweep, seed: int) -> SyneTune:
    """Return regularized evolution on P and S, with a tenth of the trials as its population."""
    space = domains(flat(recording.space))
    searcher = MultiObjectiveRegularizedEvolution(
        space,
        population_size=max(10, len(recording.trials) // 10),
        multiobjective_priority=_ranks,
        random_seed=seed,
    )
    scheduler = SingleFidelityScheduler(
        space, ["P", "S"], do_minimize=False, searcher=searcher, random_seed=seed
    )
    return SyneTune(recording, scheduler, "both")


def _ranks(scores: Any) -> Any:
    """Return ranks, as in :func:`moasha`."""
    return np.argsort(NonDominatedPriority()(scores))


def domains(parameters: list[Flat]) -> dict[str, Any]:
    """Return a space in Syne Tune's terms: every parameter that may occur by its sampler's name, choices by their index."""
    domains: dict[str, Any] = {}
    for entry in parameters:
        if isinstance(entry.parameter, Choices):
            # Syne Tune asks for choices of one type; indices always are.
            domains[entry.name] = config_space.choice(list(range(len(entry.options))))
        else:
            domains[entry.name] = _domain(entry.parameter)
    return domains


def _domain(parameter: Range) -> Any:
    if parameter.integer:
        kind = config_space.lograndint if parameter.log else config_space.randint
        return kind(int(parameter.low), int(parameter.high))
    kind = config_space.loguniform if parameter.log else config_space.uniform
    return kind(parameter.low, parameter.high)
