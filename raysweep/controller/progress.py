"""Progress of a sweep's trials: configurations, rungs, the front, and the number of ended trials.

Rungs come from a worker, through :class:`raysweep.controller.sweep.Sweep`, or from a ledger, through
:mod:`raysweep.controller.replay_ledger`. This module never writes to the ledger.
"""

from collections.abc import Hashable
from typing import Any, NamedTuple, cast

from raysweep.config.sweep import BudgetConfig
from raysweep.config.trial import TrialConfig
from raysweep.controller.optuna_study import StudyFile
from raysweep.results.events import RungFinished
from raysweep.results.query_scores import PointName
from raysweep.results.types import Point, TrialStatus
from raysweep.results.views import front_points
from raysweep.search.scheduler import Scheduler, TrialState


class Verdict(NamedTuple):
    """The decision that a trial must leave its worker, with its new status and the reason."""

    status: TrialStatus
    reason: str


class Progress:
    """Progress by trial number, which it forwards to the scheduler and the study."""

    def __init__(self, budget: BudgetConfig, scheduler: Scheduler, study: StudyFile) -> None:
        self.configs: dict[int, TrialConfig] = {}  # by trial, in order of start
        self.num_rungs: dict[int, int] = {}  # rungs of a completed trial
        self.front: list[Point] = []
        self.tested: set[PointName] = set()  # points scored on test by an earlier session
        self.ended = dict.fromkeys((TrialStatus.COMPLETED, TrialStatus.STOPPED, TrialStatus.FAILED), 0)
        self._budget, self._scheduler, self._study = budget, scheduler, study
        self._steps: dict[int, int] = {}

    def steps_done(self, number: int) -> int:
        """Return the number of recorded rungs of a trial."""
        return self._steps.get(number, 0)

    @property
    def paused(self) -> list[int]:
        """Return the paused trials."""
        trials = self._scheduler.trials.items()
        return [number for number, trial in trials if TrialStatus(trial.status) == TrialStatus.PAUSED]

    def begin(self, trial: TrialState, config: TrialConfig) -> None:
        """Record the start of a trial."""
        self.configs[trial.number] = config
        if trial.replicate_of is None:
            self.num_rungs[trial.number] = self._budget.rungs_of(config.examples_per_rung)
        else:  # compared at an equal budget, under the schedule of a complete trial
            self.num_rungs[trial.number] = self.steps_done(trial.replicate_of)
        self._study.begin(trial)

    def count(self, rung: RungFinished) -> Verdict | None:
        """Record a rung that is in the ledger, and return the verdict on its trial, or None if the trial continues."""
        self._steps[rung.trial] = rung.step
        self.front = front_points([*self.front, *rung.points])
        reason_to_pause = self._tell_scheduler(rung)
        trial, objective = self._scheduler.trials[rung.trial], self._scheduler.objective
        self._study.rung(rung.trial, rung.examples_seen, trial, objective)
        if rung.step == self.num_rungs[rung.trial]:
            return self._verdict_at_last_rung(rung.trial)
        if rung.stop:
            return Verdict(TrialStatus.STOPPED, rung.stop)
        if reason_to_pause:
            return Verdict(TrialStatus.PAUSED, reason_to_pause)
        return None

    def _tell_scheduler(self, rung: RungFinished) -> str | None:
        """Report a rung to the scheduler, and return the reason to pause the trial, or None."""
        pairs = [(point.polarity, point.similarity) for point in rung.points]
        names: list[Hashable] = [(point.step, *point.key) for point in rung.points]
        ahead = self._budgets_ahead(rung)
        return self._scheduler.rung(rung.trial, rung.examples_seen, pairs, ahead, names, rung.may_begin)

    def _budgets_ahead(self, rung: RungFinished) -> list[int]:
        """Return the number of examples seen at each remaining rung."""
        if rung.stop:
            return []
        examples_per_rung = self.configs[rung.trial].examples_per_rung
        further = range(rung.step + 1, self.num_rungs[rung.trial] + 1)
        return [step * examples_per_rung for step in further]

    def _verdict_at_last_rung(self, number: int) -> Verdict:
        num_rungs = self.num_rungs[number]
        if num_rungs < self._budget.rungs_of(self.configs[number].examples_per_rung):
            original = self._scheduler.trials[number].replicate_of
            return Verdict(TrialStatus.STOPPED, f"trial {original}, which it repeats, went no further")
        done = "its only rung is done" if num_rungs == 1 else f"all {num_rungs} rungs are done"
        return Verdict(TrialStatus.COMPLETED, done)

    def pause(self, number: int, reason: str) -> None:
        """Record that a trial is paused."""
        self._scheduler.trials[number].reason = reason
        self._scheduler.pause(number)

    def end(self, number: int, verdict: Verdict) -> None:
        """Record the end of a trial."""
        self.ended[verdict.status] += 1
        self._scheduler.end(number, cast(Any, verdict.status))
        self._study.end(number, verdict.status, verdict.reason, self._scheduler.trials[number].front)
