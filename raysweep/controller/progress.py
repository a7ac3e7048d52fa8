"""Tracking of the progress of trials, and replay of a ledger to restore it.

This module never writes to the ledger.
"""

import contextlib
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple, cast

from raysweep.config.preset import ParameterError
from raysweep.config.sweep import BudgetConfig
from raysweep.config.trial import TrialConfig, trial_config
from raysweep.controller.budget import CostTracker
from raysweep.controller.optuna_study import StudyFile
from raysweep.controller.steering import Steering
from raysweep.errors import ReplayError
from raysweep.results.events import (
    CheckpointsRemoved,
    Event,
    PaidEvent,
    PointsScored,
    RungFinished,
    RungWatched,
    SweepSteered,
    TrialContinued,
    TrialEnded,
    TrialInterrupted,
    TrialPaused,
    TrialResumed,
    TrialStarted,
)
from raysweep.results.query_scores import PointName, name_of_point
from raysweep.results.types import Point, TrialStatus
from raysweep.results.views import front_points
from raysweep.search.scheduler import Scheduler, TrialState


class Verdict(NamedTuple):
    """The decision to remove a trial from its worker, with the trial's new status and the reason."""

    status: TrialStatus
    reason: str


class Progress:
    """Tracks the progress of trials and reports it to the scheduler and the Optuna study."""

    def __init__(self, budget: BudgetConfig, scheduler: Scheduler, study: StudyFile) -> None:
        self.configs: dict[
            int, TrialConfig
        ] = {}  # keyed by trial, in the order in which trials started
        self.num_rungs: dict[int, int] = {}  # planned number of rungs, keyed by trial
        self.front: list[Point] = []
        self.tested: set[PointName] = set()  # points that an earlier session scored on test
        # last rung that was measured on watched data, keyed by trial
        self.watched: dict[int, int] = {}
        self.ended = dict.fromkeys(
            (TrialStatus.COMPLETED, TrialStatus.STOPPED, TrialStatus.FAILED), 0
        )
        self._budget = budget
        self._scheduler = scheduler
        self._study = study
        self._steps: dict[int, int] = {}

    def steps_done(self, number: int) -> int:
        """Return the number of a trial's recorded rungs."""
        return self._steps.get(number, 0)

    @property
    def paused(self) -> list[int]:
        """Return the paused trials."""
        trials = self._scheduler.trials.items()
        return [
            number for number, trial in trials if TrialStatus(trial.status) == TrialStatus.PAUSED
        ]

    def begin(self, trial: TrialState, config: TrialConfig) -> None:
        """Record that a trial has started."""
        self.configs[trial.number] = config
        if trial.replicate_of is None:
            self.num_rungs[trial.number] = self._budget.rungs_of(config.examples_per_rung)
        else:  # a replicate ends at its original's last rung so far, but uses the schedule of a full trial
            self.num_rungs[trial.number] = self.steps_done(trial.replicate_of)
        self._study.begin(trial)

    def record(self, rung: RungFinished) -> Verdict | None:
        """Record a rung that is already in the ledger, and return the trial's verdict, or None if it continues."""
        number = rung.trial
        self._steps[number] = rung.step
        if rung.watched is not None:
            self.watched[number] = rung.step
        self.front = front_points([*self.front, *rung.points], self._scheduler.objective.goals)
        reason_to_pause = None
        if rung.points:  # rungs before the last data set of a sequence have no points
            reason_to_pause = self._report_to_scheduler(rung)
            trial = self._scheduler.trials[number]
            self._study.rung(number, rung.examples_seen, trial, self._scheduler.objective)
        num_rungs = self.num_rungs[number]
        if rung.step == num_rungs:
            if num_rungs < self._budget.rungs_of(self.configs[number].examples_per_rung):
                original = self._scheduler.trials[number].replicate_of
                reason = f"reached the last rung of trial {original}, which it repeats"
                return Verdict(TrialStatus.STOPPED, reason)
            reason = (
                "its only rung is done" if num_rungs == 1 else f"all {num_rungs} rungs are done"
            )
            return Verdict(TrialStatus.COMPLETED, reason)
        if rung.stop:
            return Verdict(TrialStatus.STOPPED, rung.stop)
        if reason_to_pause:
            return Verdict(TrialStatus.PAUSED, reason_to_pause)
        return None

    def _report_to_scheduler(self, rung: RungFinished) -> str | None:
        """Report a rung to the scheduler, and return the reason to pause the trial, or None if it continues."""
        goals = self._scheduler.objective.goals
        pairs = [point.pair(goals) for point in rung.points]
        names: list[Hashable] = [(point.step, *point.key) for point in rung.points]
        budgets_ahead: list[int] = []  # examples seen at each remaining rung
        if not rung.stop:
            examples_per_rung = self.configs[rung.trial].examples_per_rung
            num_rungs = self.num_rungs[rung.trial]
            steps_ahead = range(rung.step + 1, num_rungs + 1)
            budgets_ahead = [step * examples_per_rung for step in steps_ahead]
        return self._scheduler.rung(
            rung.trial, rung.examples_seen, pairs, budgets_ahead, names, rung.may_begin
        )

    def pause(self, number: int, reason: str) -> None:
        """Record that a trial is paused."""
        self._scheduler.trials[number].reason = reason
        self._scheduler.pause(number)

    def end(self, number: int, verdict: Verdict) -> None:
        """Record the end of a trial."""
        self.ended[verdict.status] += 1
        self._scheduler.end(number, cast(Any, verdict.status))
        self._study.end(
            number, verdict.status, verdict.reason, self._scheduler.trials[number].front
        )


class LedgerReplay:
    """Replays ledger events into a new scheduler, progress and cost tracker.

    If ``adopt`` is True, trials are taken from the ledger, which is required if the space has changed. Otherwise, the
    sampler proposes them again, which restores its state.

    Raises:
        ReplayError: If the sampler proposes trials that differ from those in the ledger.
    """

    def __init__(
        self, scheduler: Scheduler, progress: Progress, costs: CostTracker, *, adopt: bool
    ) -> None:
        self.seconds = 0.0  # the sweep's running time at the last event
        self.steering = Steering()
        self.unfinished: dict[
            int, Verdict | None
        ] = {}  # verdict after the last rung, keyed by trial, for trials on a worker
        self.points: list[Point] = []  # the points of all rungs
        self._scheduler = scheduler
        self._progress = progress
        self._costs = costs
        self._adopt = adopt

    def take_all(self, events: Iterable[Event]) -> None:
        """Replay the events in order."""
        for event in events:
            if isinstance(event, PaidEvent) and event.cost is not None:
                self._costs.restore(event.trial, event.cost)
            self._take(event)
            if event.at is not None:
                self.seconds = event.at

    def _take(self, event: Event) -> None:
        match event:
            case TrialStarted():
                self._start(event)
            case RungFinished():
                self._record(event)
            case TrialPaused():
                self._progress.pause(event.trial, event.reason)
                self.unfinished.pop(event.trial, None)
            case TrialEnded() | CheckpointsRemoved():
                self._end(event)
            case TrialResumed() | TrialContinued():
                self._resume_if_paused(event.trial)
                self.unfinished[event.trial] = None
            case TrialInterrupted():  # keep the verdict after the last rung, if any
                self.unfinished.setdefault(event.trial, None)
            case RungWatched():
                self._progress.watched[event.trial] = event.step
            case PointsScored():
                tested = [point for point in event.points if point.split == "test"]
                self._progress.tested.update(map(name_of_point, tested))
            case SweepSteered():
                self._steer(event)

    def _end(self, event: TrialEnded | CheckpointsRemoved) -> None:
        numbers = [event.trial] if isinstance(event, TrialEnded) else event.trials
        for number in numbers:
            self._progress.end(number, Verdict(event.status, event.reason))
            self.unfinished.pop(number, None)

    def _steer(self, event: SweepSteered) -> None:
        self.steering.take(event)
        if event.config is not None:
            # the space may have been narrowed since the request
            with contextlib.suppress(ParameterError):
                self._scheduler.try_next(event.request, event.config)

    def _start(self, event: TrialStarted) -> None:
        config = trial_config(dict(event.config))
        if event.replicate_of is not None:
            trial = self._scheduler.replicate(event.replicate_of)
        elif self._adopt:
            trial = self._scheduler.adopt(event.config, event.origin)
        else:
            trial = self._scheduler.propose()
        is_same = self._adopt or trial_config(dict(trial.values)) == config
        if trial.number != event.trial or not is_same:
            raise ReplayError(
                f"trial {event.trial} differs from the trial that the sampler proposes now"
            )
        self._progress.begin(trial, config)
        self.unfinished[event.trial] = None

    def _record(self, event: RungFinished) -> None:
        self._resume_if_paused(event.trial)
        if event.node is not None:
            self._costs.last_node = event.node
        self.points += event.points
        self.unfinished[event.trial] = self._progress.record(event)

    def _resume_if_paused(self, number: int) -> None:
        """Resume a trial that is paused or about to be paused. The ledger overrides the scheduler's decision."""
        verdict = self.unfinished.get(number)
        has_left_worker = number not in self.unfinished
        is_about_to_pause = verdict is not None and verdict.status == TrialStatus.PAUSED
        if has_left_worker or is_about_to_pause:
            self._scheduler.resume(number)
