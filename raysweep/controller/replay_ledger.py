"""Replay of a ledger's events, which restores the state of a sweep."""

from collections.abc import Iterable

from raysweep.config.trial import trial_config
from raysweep.controller.budget import CostTracker
from raysweep.controller.progress import Progress, Verdict
from raysweep.controller.steering import Steering
from raysweep.errors import ReplayError
from raysweep.results.events import (
    Event,
    PaidEvent,
    PointsScored,
    RungFinished,
    SweepSteered,
    TrialContinued,
    TrialEnded,
    TrialInterrupted,
    TrialPaused,
    TrialResumed,
    TrialStarted,
)
from raysweep.results.types import Point, TrialStatus
from raysweep.search.scheduler import Scheduler


class LedgerReplay:
    """A replay of ledger events into a new scheduler, progress and cost tracker. ``steering`` collects the requests.

    With ``adopt``, old trials are taken from the ledger, for a space that has grown. Otherwise, the sampler proposes them
    again, so that it continues as if it had never stopped.

    Raises:
        ReplayError: If the sampler proposes other trials than those in the ledger.
    """

    def __init__(self, scheduler: Scheduler, progress: Progress, costs: CostTracker, *, adopt: bool) -> None:
        self.seconds = 0.0  # running time of the sweep at the last event
        self.steering = Steering()
        self.unfinished: dict[int, Verdict | None] = {}  # trials on a worker, with the verdict after their last rung
        self.points: list[Point] = []  # of all rungs
        self._scheduler, self._progress, self._costs, self._adopt = scheduler, progress, costs, adopt

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
                self._count(event)
            case TrialPaused():
                self._progress.pause(event.trial, event.reason)
                self.unfinished.pop(event.trial, None)
            case TrialEnded():
                self._progress.end(event.trial, Verdict(event.status, event.reason))
                self.unfinished.pop(event.trial, None)
            case TrialResumed() | TrialContinued():
                self._resume_if_paused(event.trial)
                self.unfinished[event.trial] = None
            case TrialInterrupted():  # keeps the verdict after the last rung, if any
                self.unfinished.setdefault(event.trial, None)
            case PointsScored():
                tested = [point for point in event.points if point.split == "test"]
                self._progress.tested |= {(point.trial, point.step, *point.key) for point in tested}
            case SweepSteered():
                self._steer(event)

    def _steer(self, event: SweepSteered) -> None:
        self.steering.take(event)
        if event.config is not None:
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
            raise ReplayError(f"trial {event.trial} is not what the sampler proposes now")
        self._progress.begin(trial, config)
        self.unfinished[event.trial] = None

    def _count(self, event: RungFinished) -> None:
        self._resume_if_paused(event.trial)
        if event.node is not None:
            self._costs.last_node = event.node
        self.points += event.points
        self.unfinished[event.trial] = self._progress.count(event)

    def _resume_if_paused(self, number: int) -> None:
        """Resume a trial that was paused or about to pause: the ledger overrides the current decision."""
        verdict = self.unfinished.get(number)
        has_left = number not in self.unfinished
        if has_left or (verdict is not None and verdict.status == TrialStatus.PAUSED):
            self._scheduler.resume(number)
