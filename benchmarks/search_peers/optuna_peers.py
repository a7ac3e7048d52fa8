"""Optuna's samplers and pruners through its ask-and-tell."""

from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.trial import TrialState

from benchmarks.search_peers.shown import Asked, Points, Shown, longest, params_of
from raysweep.replay.recordings import RecordedSweep


def multivariate_tpe(seed: int) -> optuna.samplers.TPESampler:
    """Return TPE with one density over the parameters that exist together and a constant liar, as in the manual."""
    return optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)


class _Study:
    """A study whose trials receive other values if their own are not recorded."""

    def __init__(self, recording: RecordedSweep, study: optuna.Study) -> None:
        self._recording, self._study = recording, study
        self._shown = Shown(recording)
        self._proposals: list[optuna.Trial] = []

    def ask(self) -> Asked:
        if len(self._proposals) == len(self._recording.trials):
            return None
        self._proposals.append(self._study.ask())
        return len(self._proposals) - 1, self._recording.space.draw(self._proposals[-1])

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        params = params_of(self._recording, values)
        if params != self._proposals[trial].params:
            self._study.tell(self._proposals[trial], state=TrialState.FAIL)
            self._study.enqueue_trial(params)
            self._proposals[trial] = self._study.ask()
            self._recording.space.draw(self._proposals[trial])


class OptunaTwoObjectives(_Study):
    """Two objectives, which Optuna does not prune: every trial runs to its end and counts with its best point."""

    def __init__(self, recording: RecordedSweep, sampler: optuna.samplers.BaseSampler) -> None:
        super().__init__(
            recording, optuna.create_study(directions=["maximize", "maximize"], sampler=sampler)
        )

    def on_rung(self, trial: int, budget: int, points: Points, ahead: Sequence[int]) -> bool:
        self._shown.add(trial, points)
        return False

    def on_rest(self, trial: int, completed: bool) -> None:
        self._study.tell(self._proposals[trial], self._shown.best_point(trial))


class OptunaPruned(_Study):
    """One objective, the trial's area, reported at every rung to a pruner."""

    def __init__(
        self,
        recording: RecordedSweep,
        sampler: optuna.samplers.BaseSampler,
        pruner: optuna.pruners.BasePruner,
    ) -> None:
        # Hyperband tells its brackets by the study's name, which would be another in every run.
        study = optuna.create_study(
            direction="maximize", sampler=sampler, pruner=pruner, study_name="search"
        )
        super().__init__(recording, study)

    def on_rung(self, trial: int, budget: int, points: Points, ahead: Sequence[int]) -> bool:
        self._shown.add(trial, points)
        step = round(budget / self._recording.first_budget)
        self._proposals[trial].report(self._shown.area(trial), step)
        return bool(ahead) and self._proposals[trial].should_prune()

    def on_rest(self, trial: int, completed: bool) -> None:
        state = TrialState.COMPLETE if completed else TrialState.PRUNED
        self._study.tell(
            self._proposals[trial], self._shown.area(trial) if completed else None, state=state
        )


def halving(factor: int) -> optuna.pruners.BasePruner:
    return optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=factor)


def hyperband(recording: RecordedSweep, factor: int) -> optuna.pruners.BasePruner:
    """Return Optuna's Hyperband. With TPE it resembles BOHB: the sampler learns from each bracket's trials separately."""
    return optuna.pruners.HyperbandPruner(
        min_resource=1, max_resource=longest(recording), reduction_factor=factor
    )
