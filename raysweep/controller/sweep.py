"""A sweep as it runs: trials are handed out, rungs are taken in, and each event is in the ledger before it counts. No Ray.

:class:`raysweep.search.scheduler.Scheduler` says what runs and what is held. This keeps the ledger, the weights on disk, the
accounts and the display. A sweep resumes by :meth:`Sweep.replay`, which takes in what its ledger holds.
"""

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from raysweep.config.sweep import SweepConfig
from raysweep.config.trial import TrialConfig, trial_config
from raysweep.controller.budget import CostTracker, ReachedLimit
from raysweep.controller.disk import WeightStore
from raysweep.controller.failures import Blame, Failures, Loss
from raysweep.controller.kept_scores import KeptScores
from raysweep.controller.node_meter import NodeMeter
from raysweep.controller.optuna_study import StudyFile
from raysweep.controller.progress import Progress, Verdict
from raysweep.controller.replay_ledger import LedgerReplay
from raysweep.controller.status import SweepStatus
from raysweep.controller.steering import Steering
from raysweep.errors import InputError
from raysweep.metrics.objective import Pair
from raysweep.results.events import (
    Event,
    NodesCounted,
    ReplicatesAveraged,
    RungFinished,
    SessionFinished,
    StageBegan,
    SweepSteered,
    TrialContinued,
    TrialEnded,
    TrialHeld,
    TrialInterrupted,
    TrialRevived,
    TrialStarted,
)
from raysweep.results.ledger import Ledger, checkpoint_folder, point_folder, write_dependence
from raysweep.results.query_scores import PointName
from raysweep.results.types import Mean, Node, Point, RungProgress, StageName, point_problem
from raysweep.results.views import calibration_text
from raysweep.search.replicates import MeanScores
from raysweep.search.scheduler import Scheduler, TrialState
from raysweep.storage.folder import Folder
from raysweep.terminal import Display, duration
from raysweep.trial_status import TrialStatus

SLOWEST_RUNGS = 10  # so many times the slowest rung so far is too long for a rung
LEAST_RUNG_LIMIT_SECONDS = 1800.0
PAUSED = Verdict(TrialStatus.INTERRUPTED, "the sweep is paused")
STOPPED = Verdict(TrialStatus.STOPPED, "a person asked for it, with raysweep control")
NODES_COUNTED_SECONDS = 300.0  # between two events that say how long nodes were there; a kill loses so much of the bill


@dataclass
class Assignment:
    """A trial's time on a worker, from being handed out to leaving it."""

    node: Node
    paid_until: float | None = None  # on the sweep's clock, in seconds; None while it waits for a worker
    rung_began: float | None = None  # on the same clock
    verdict: Verdict | None = None  # set once the trial is to leave
    progress: RungProgress | None = None  # within the rung that it is in, once that takes long


@dataclass
class Sweep:
    """Hands out trials and takes their rungs. Trials are known by number, from 0 in the order they were proposed."""

    config: SweepConfig
    scheduler: Scheduler
    ledger: Ledger
    display: Display
    costs: CostTracker
    study: StudyFile
    num_queries: int  # of dev
    assignments: dict[int, Assignment] = field(default_factory=dict)
    cause: ReachedLimit | None = None  # why no more trials are handed out before all are done
    given_up: str | None = None  # the same, where too many trials failed
    num_workers: int | None = None  # most trials that this session can run at a time, where that is known
    steering: Steering = field(default_factory=Steering)
    is_over: bool = False  # the search: its front is being scored

    def __post_init__(self) -> None:
        self.progress = Progress(self.config.budget, self.scheduler, self.study)
        max_bytes = int(self.config.storage.max_gib * 2**30)
        self._weights = WeightStore(self.run, max_bytes)
        self._scores = KeptScores(self.run, self.num_queries)
        self._failures = Failures(self.config.resources)
        self._slowest_rung_seconds = 0.0  # of this session
        self.short_of_memory: set[int] = set()  # trials that lost a process of this session for want of it
        self._num_defects = 0  # trials that failed in this session, but for those that diverged
        self._started_at = time.monotonic()  # as if all sessions had run without a break
        self._stopped_at: float | None = None  # since when the sweep's clock stands still, on the same clock
        self.meter = NodeMeter(self.config.budget)  # of the cluster's nodes; whoever joins one has it look there
        self._nodes_counted_at = time.monotonic()
        self._interrupted: deque[int] = deque()  # trials that a budget or a crash cut off: they go on first

    @property
    def run(self) -> Folder:
        """The run's folder, wherever it is."""
        return self.ledger.run

    @property
    def folder(self) -> Path:
        """Where the run's files are on this machine."""
        return self.run.path

    @property
    def seconds(self) -> float:
        """How long the sweep has run, all its sessions together. The time does not count in which it is paused and idle."""
        now = time.monotonic() if self._stopped_at is None else self._stopped_at
        return now - self._started_at

    @contextlib.contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """Within, time does not count: what is measured after a search must not use up a budget that it goes on with."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._started_at += time.monotonic() - began

    def _stop_or_start_clock(self) -> None:
        now, is_idle = time.monotonic(), self.steering.is_paused and not self.assignments
        if is_idle and self._stopped_at is None:
            self._stopped_at = now
        if not is_idle and self._stopped_at is not None:
            self._started_at += now - self._stopped_at
            self._stopped_at = None

    @property
    def front(self) -> list[Point]:
        """The non-dominated points of all rungs on dev, by falling similarity."""
        return self.progress.front

    @property
    def tested(self) -> set[PointName]:
        """The points that an earlier session scored on test."""
        return self.progress.tested

    def kept_front(self) -> list[Point]:
        """The front's members whose weights are on disk."""
        return self._weights.held(self.front)

    # A trial's way: it is handed out, gives rungs, and leaves its worker.

    def ask(self) -> tuple[int, TrialConfig] | None:
        """The next trial to run or to go on with; None when there is none, at least while others run or storage fails."""
        if self.steering.is_paused or self.has_all_workers:
            return None
        self.cause = self.cause or self.costs.reached_limit(self.seconds)
        if self.cause is not None or self.given_up is not None or self.is_paused:
            return None
        if self._interrupted:
            number = self._interrupted.popleft()
            self._log(TrialContinued(trial=number))
        elif (trial := self.scheduler.ask()) is None:
            return None
        elif (number := trial.number) in self.progress.configs:
            self._log(TrialRevived(trial=number))
            self.display.line(f"trial {number}: goes on, since it promises enough by now")
        else:
            self._begin(trial)
        self.assignments[number] = Assignment(self.costs.last_node)
        return number, self.progress.configs[number]

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to hand out, also where no limit is in the way."""
        return not self._interrupted and self.scheduler.is_done

    @property
    def has_all_workers(self) -> bool:
        """Whether as many trials are handed out as a person allows at a time."""
        return self.steering.workers is not None and len(self.assignments) >= self.steering.workers

    @property
    def is_paused(self) -> bool:
        """Whether no trial is handed out for now, since storage failed."""
        return self._failures.pause.until > self.seconds

    def place(self, number: int) -> None:
        """A trial has a worker: from now on it is charged."""
        assignment = self.assignments[number]
        if assignment.paid_until is None:
            assignment.paid_until = assignment.rung_began = self.seconds

    def _begin(self, trial: TrialState) -> None:
        number, original = trial.number, trial.replicate_of
        config = trial_config(dict(trial.values))
        self.progress.begin(trial, config)
        if original is not None:
            self.display.line(f"trial {number}: repeats trial {original} with another seed")
        if trial.wish is not None:
            self.display.line(f"trial {number}: begins, as {describe_wish(trial.wish)}")
        event = TrialStarted(
            trial=number,
            config=config.model_dump(mode="json", exclude_none=True),
            num_rungs=self.progress.num_rungs[number],
            replicate_of=original,
            run=None if original is None else trial.run,
            wish=trial.wish,
        )
        self._log(event)

    def rung(self, number: int, rung: dict[str, Any]) -> bool:
        """Take a rung's result; whether the trial is to leave its worker.

        ``rung`` is a ``rung`` event as JSON, less what the sweep itself knows: the trial, ``may_begin``, the cost and the
        time. A trial that went on from a checkpoint repeats its last rung, which counts once.
        """
        assignment = self.assignments[number]
        assignment.progress = None
        step, steps_done = rung["step"], self.progress.steps_done(number)
        if step <= steps_done:
            return assignment.verdict is not None
        if step > steps_done + 1:
            reason = f"its checkpoint goes on with rung {step}, but the ledger ends at its rung {steps_done}"
            assignment.verdict = Verdict(TrialStatus.FAILED, reason)
            return True
        if problem := _first_problem([*rung["points"], *rung.get("labelled", ())]):
            assignment.verdict = Verdict(TrialStatus.FAILED, f"rung {step} gave {problem}")
            return True
        event = RungFinished.from_json({**rung, "trial": number})
        assignment.verdict = self._verdict_after(event)
        self.show()
        return assignment.verdict is not None

    def take_progress(self, number: int, progress: RungProgress) -> bool:
        """Take note of how far a trial is within its rung; whether it is to leave its worker, as time is up."""
        assignment = self.assignments[number]
        assignment.progress = progress
        limit = self.costs.reached_limit(self.seconds)
        if number in self.steering.stopping:
            assignment.verdict = STOPPED
        elif limit is not None and limit.key == "budget.minutes":
            assignment.verdict = Verdict(TrialStatus.INTERRUPTED, limit.reason)
        elif self._began_while_paused(assignment):
            assignment.verdict = PAUSED
        self.show()
        return assignment.verdict is not None

    def _began_while_paused(self, assignment: Assignment) -> bool:
        """Whether a trial that had to wait for its worker came to it too late to begin a rung."""
        paused_at, began = self.steering.paused_at, assignment.rung_began
        return paused_at is not None and began is not None and began > paused_at

    def overdue(self, number: int) -> str | None:
        """The reason to end the process of a trial whose rung takes too long; None where it does not."""
        assignment = self.assignments[number]
        limit = self._rung_limit_seconds
        if assignment.rung_began is None or limit is None or self.seconds - assignment.rung_began <= limit:
            return None
        return f"its rung took more than {duration(limit)}, and its process was killed"

    @property
    def _rung_limit_seconds(self) -> float | None:
        """What resources say, else many times what the slowest rung has taken; None before there is one."""
        if minutes := self.config.resources.rung_minutes:
            return 60 * minutes
        if not self._slowest_rung_seconds:
            return None
        return max(SLOWEST_RUNGS * self._slowest_rung_seconds, LEAST_RUNG_LIMIT_SECONDS)

    def _verdict_after(self, rung: RungFinished) -> Verdict | None:
        """Take a rung. Whether its trial is to leave its worker, for what it has shown or for what people asked."""
        verdict = self._take_rung(rung)
        may_go_on = verdict is None or verdict.status == TrialStatus.HELD
        if may_go_on and rung.trial in self.steering.stopping:
            return STOPPED
        if verdict is None and self.steering.is_paused:
            return PAUSED
        return verdict or self._verdict_of_budget()

    def _take_rung(self, rung: RungFinished) -> Verdict | None:
        """Log a rung and let it count; what that means for its trial."""
        self._failures.forget(rung.trial)
        self._time_rung(self.assignments[rung.trial])
        if rung.node is not None:
            self._set_node(rung.trial, rung.node)
        self._pay(rung.trial)
        rung = replace(rung, may_begin=self.scheduler.may_begin, cost=self.costs.of(rung.trial))
        self._log(rung)
        for name in (checkpoint_folder(rung.trial), point_folder(rung.trial, rung.step)):
            write_dependence(self.run, name, self.ledger.position)
        front_before = self.front
        verdict = self.progress.count(rung)
        self._scores.take(rung.points, self.front, self.scheduler.trials[rung.trial].replicate_of)
        self._bound_disk([*front_before, *rung.points])
        self._announce(rung)
        return verdict

    def _time_rung(self, assignment: Assignment) -> None:
        now = self.seconds
        if assignment.rung_began is not None:
            self._slowest_rung_seconds = max(self._slowest_rung_seconds, now - assignment.rung_began)
        assignment.rung_began = now

    def _verdict_of_budget(self) -> Verdict | None:
        if self.given_up is not None:
            return Verdict(TrialStatus.INTERRUPTED, self.given_up)
        limit = self.costs.reached_limit(self.seconds)
        return None if limit is None else Verdict(TrialStatus.INTERRUPTED, limit.reason)

    def _announce(self, rung: RungFinished) -> None:
        best = self._best_of(rung.points)
        polarity, similarity = best
        objective = self.scheduler.objective.weighted_sum(best)
        self.display.line(
            f"trial {rung.trial}: rung {rung.step}/{self.progress.num_rungs[rung.trial]}, "
            f"{rung.examples_seen:,} examples, "
            f"P {100 * polarity:.2f}, S {100 * similarity:.2f}, objective {100 * objective:.2f}"
        )
        if rung.calibration is not None:
            self.display.line(
                f"trial {rung.trial}: rung {rung.step}, softmax head: {calibration_text(rung.calibration)}"
            )

    def rest(
        self, number: int, failure: str | None = None, traceback: str | None = None, *, diverged: bool = False
    ) -> None:
        """A trial has left its worker: with ``failure``, because it was told to, or because it was done.

        ``traceback`` is of what it raised, if it failed by that. One that ``diverged`` is a result like any other: it does
        not count where too many trials fail.
        """
        self._pay(number)
        verdict = self.assignments.pop(number).verdict
        if failure:
            verdict = Verdict(TrialStatus.FAILED, failure)
        verdict = verdict or Verdict(TrialStatus.FAILED, "its process ended before its last rung")
        self._num_defects += verdict.status == TrialStatus.FAILED and not diverged
        self._settle(number, verdict, traceback)
        self._stop_or_start_clock()
        self.given_up = self.given_up or self._failures.too_many(self._num_defects, len(self.progress.configs))
        self.show()

    def lose(self, number: int, loss: Loss) -> None:
        """A trial has lost its worker: it goes on elsewhere from its checkpoint, unless that has come to nothing too often.

        Storage that fails pauses the sweep; InputError where it has failed for long.
        """
        assignment = self.assignments[number]
        if number in self.steering.stopping:
            assignment.verdict = assignment.verdict or STOPPED
        if assignment.verdict is not None:  # it was about to leave
            self.rest(number)
            return
        if loss.needs_memory:
            self.short_of_memory.add(number)
        if reason_to_end := self._failures.lose(number, loss):
            self.rest(number, failure=reason_to_end)
            return
        self._pay(number)
        del self.assignments[number]
        self._interrupt(number, loss.reason)
        self._interrupted.append(number)
        self.display.line(f"trial {number}: {loss.reason}; it goes on from its checkpoint")
        if loss.blame == Blame.STORAGE:
            self.pause(loss.reason)
        self._stop_or_start_clock()
        self.show()

    def pause(self, reason: str) -> None:
        """Hand out nothing for a while, as storage fails. InputError where it has failed for long."""
        if self.is_paused:
            return
        pause = self._failures.begin_pause(self.seconds)
        if pause.is_hopeless:
            raise InputError(f"{reason}; once storage works: raysweep run --resume {self.run.location}")
        self.display.warn(f"search: storage fails ({reason}): no trial is handed out for {pause.seconds:g} s")

    def _settle(self, number: int, verdict: Verdict, traceback: str | None = None) -> None:
        """A trial that is on no worker any more gets the status of its verdict."""
        status, reason = verdict
        if status == TrialStatus.INTERRUPTED:
            self._interrupt(number, reason)
            self._interrupted.append(number)
        elif status == TrialStatus.HELD:
            self._log(TrialHeld(trial=number, reason=reason, cost=self.costs.of(number)))
            self.progress.hold(number, reason)
        else:
            self._end(number, verdict, traceback)
        self.display.line(f"trial {number}: {status}: {reason}")

    def _interrupt(self, number: int, reason: str) -> None:
        self._log(TrialInterrupted(trial=number, reason=reason, cost=self.costs.of(number)))

    def _end(self, number: int, verdict: Verdict, traceback: str | None = None) -> None:
        """A trial will not go on."""
        status, reason = verdict
        original = self.scheduler.trials[number].replicate_of
        if original is not None and status != TrialStatus.FAILED:
            self._log_means(original, ending=number)  # first, so that a kill in between repeats it but loses nothing
        cost = self.costs.of(number)
        self._log(TrialEnded(trial=number, status=status, reason=reason, cost=cost, traceback=traceback))
        self.progress.end(number, verdict)
        self._remove_checkpoint(number)

    def _log_means(self, original: int, ending: int) -> None:
        """Log the means over the runs of a trial, of which ``ending`` is about to be one."""
        means = mean_points(original, self.scheduler.replicates.means(original, ending=ending))
        num_runs = max((mean.runs for mean in means), default=1)
        self._log(ReplicatesAveraged(trial=original, runs=num_runs, points=means))

    def begin_stage(self, stage: StageName, count: int) -> None:
        """Note that so many scores of the front are to come, for those who watch the run."""
        self._log(StageBegan(stage=stage, count=count))

    # What people ask of it while it runs.

    def steer(self, event: SweepSteered) -> None:
        """Do what a person asked for, once it is in the ledger; :mod:`raysweep.controller.request_desk` has checked it."""
        event = replace(event, at=self.seconds)
        self.ledger.append(event)
        self.steering.take(event)
        if event.config is not None:
            self.scheduler.try_next(event.request, event.config)
        if event.trial is not None:
            self._stop_at_rest(event.trial)
        self._stop_or_start_clock()
        self.show()

    def _stop_at_rest(self, number: int) -> None:
        """End a trial that is to stop, unless it is on a worker, which it leaves at its next sign of life."""
        is_held = self.scheduler.trials[number].status == TrialStatus.HELD
        if number in self._interrupted:
            self._interrupted.remove(number)
        elif not is_held:
            return
        self._settle(number, STOPPED)

    # The sweep's beginning and end.

    def replay(self, events: Iterable[Event], *, adopt: bool = False) -> None:
        """Come to where these events of a ledger led; :class:`LedgerReplay` says what ``adopt`` means, and what may fail."""
        replayed = LedgerReplay(self.scheduler, self.progress, self.costs, adopt=adopt)
        replayed.take_all(events)
        original_of = {number: trial.replicate_of for number, trial in self.scheduler.trials.items()}
        repeats = {number: original for number, original in original_of.items() if original is not None}
        self._scores.restore(replayed.points, self.front, repeats)
        kept = self.run.names("checkpoints")
        for number, trial in self.scheduler.trials.items():
            if trial.status in self.progress.ended and Path(checkpoint_folder(number)).name in kept:
                self._remove_checkpoint(number)  # a kill has left it
        self._started_at = time.monotonic() - replayed.seconds
        self.steering = replayed.steering
        for number, verdict in replayed.unfinished.items():
            if verdict is None:
                self._interrupted.append(number)
            else:  # the driver died between a rung and what followed from it
                self._settle(number, verdict)
        for number in self.steering.stopping:  # or between being told to stop a trial and its end
            self._stop_at_rest(number)
        self._stop_or_start_clock()

    def finish(self, status: str, reason: str, is_final: bool = False) -> None:
        """The sweep's last event, at least of this session. Unless all trials are done, what a resume needs stays.

        ``is_final`` is as in :class:`SessionFinished`.

        Where an event could not be written nothing changes any more.
        """
        if self.ledger.failure is not None:
            self.ledger.close()
            return
        try:
            if status == "completed":
                self._end_held()
            for number in list(self.assignments):  # what was cut off within a rung is paid for too
                self._pay(number)
                self._interrupt(number, reason)
            self._weights.keep_only(self.front)  # all others, also a rung cut off between its weights and its report
            self._remove_beyond_bound()
            self._scores.tidy()
            if status not in ("interrupted", "failed"):  # which may have to be over soon
                self._scores.pack(self.display.warn)
            self.count_nodes(at_once=True)
            self._log(SessionFinished(status=status, reason=reason, seconds=self.seconds, is_final=is_final or None))
        finally:
            self.ledger.close()

    def _end_held(self) -> None:
        for number in self.progress.held:
            reason_to_hold = self.scheduler.trials[number].reason
            self._end(number, Verdict(TrialStatus.STOPPED, reason_to_hold))

    # Accounts, disk, ledger and display.

    def count_nodes(self, *, at_once: bool = False) -> None:
        """Have the time of the cluster's nodes in the ledger, where that is due."""
        now = time.monotonic()
        if not at_once and now - self._nodes_counted_at < NODES_COUNTED_SECONDS:
            return
        self._nodes_counted_at = now
        if nodes := self.meter.take():
            self._log(NodesCounted(nodes=nodes))

    def _pay(self, number: int) -> None:
        """Charge a trial for its time on the worker since it was last charged."""
        assignment, now = self.assignments[number], self.seconds
        if assignment.paid_until is not None:
            self.costs.spend(number, now - assignment.paid_until, assignment.node)
            assignment.paid_until = now

    def _set_node(self, number: int, node: Node) -> None:
        self.assignments[number].node = self.costs.last_node = node
        if warning := self.costs.unpriced(node):
            self.display.warn(warning)

    def _bound_disk(self, points: Sequence[Point]) -> None:
        """Remove weights of ``points`` that the front does without, and what is beyond the bound."""
        self._weights.keep_only(self.front, among=points)
        self._remove_beyond_bound()

    def _remove_beyond_bound(self) -> None:
        """End paused trials, the worst first, and then remove weights of the front, until ``storage.max_gib`` holds.

        Checkpoints of running and interrupted trials are needed and do not count: otherwise many large ones would cost the
        front its weights.
        """
        reached = f"storage.max_gib, {self.config.storage.max_gib:g}, is reached"
        held = self.progress.held
        if self._weights.is_full(self.front, self._other_bytes(held)):
            held = self._held_from_the_worst()
        while held and self._weights.is_full(self.front, self._other_bytes(held)):
            self._end(held.pop(0), Verdict(TrialStatus.STOPPED, f"{reached}, and it was the worst held trial"))
        for point in self._weights.shrink(self.front, self._other_bytes(held)):
            self.display.warn(
                f"{reached}: the weights of {point.name}, which adds least to the front, are removed; its scores stay"
            )

    def _other_bytes(self, held: Sequence[int]) -> int:
        """Return what counts in addition to the front's weights: per-query scores and the checkpoints of paused trials."""
        return self._scores.num_bytes + self._weights.checkpoint_bytes(held)

    def _held_from_the_worst(self) -> list[int]:
        trials, objective = self.scheduler.trials, self.scheduler.objective
        return sorted(self.progress.held, key=lambda number: objective.area(trials[number].front))

    def _remove_checkpoint(self, number: int) -> None:
        self.run.remove(checkpoint_folder(number))

    def _log(self, event: Event) -> None:
        """Write an event to the ledger, with the time."""
        self.ledger.append(replace(event, at=self.seconds))

    def show(self) -> None:
        """Bring the status line up to date."""
        status = self.status()
        self.display.status(status.text, status.fraction_begun)

    def status(self) -> SweepStatus:
        """How the sweep stands now."""
        scheduler, ended = self.scheduler, self.progress.ended
        num_running = len(self.assignments)
        num_held = len(scheduler.trials) - num_running - sum(ended.values())
        minutes = self.config.budget.minutes
        return SweepStatus(
            num_begun=scheduler.num_begun,
            num_trials=scheduler.num_trials,
            num_replicates=scheduler.replicates.num_begun,
            max_replicates=scheduler.replicates.trials,
            counts={TrialStatus.RUNNING: num_running, TrialStatus.HELD: num_held, **ended},
            best=self._best_of(self.front) if self.front else None,
            front_size=len(self.front),
            seconds=self.seconds,
            limit_seconds=None if minutes is None else 60 * minutes,
            underway=[each.progress for each in self.assignments.values() if each.progress is not None],
            is_paused=self.steering.is_paused,
            max_workers=self.steering.workers,
        )

    def _best_of(self, points: Sequence[Point]) -> Pair:
        """P and S of the best of the points."""
        return self.scheduler.objective.best_point([(point.polarity, point.similarity) for point in points])


def describe_wish(name: str) -> str:
    """Why a configuration is tried that the sampler did not propose."""
    return f"{name} of the sweep's file says" if name.startswith("first[") else "raysweep control asked for"


def mean_points(original: int, means: Mapping[int, Mapping[Any, MeanScores]]) -> tuple[Mean, ...]:
    """A trial's means by examples seen and then by name, which is (step, kind, value): those over several runs."""
    by_name = [(name, scores) for points in means.values() for name, scores in points.items()]
    return tuple(
        Mean(
            trial=original,
            step=step,
            kind=kind,
            value=value,
            runs=scores.runs,
            polarity=scores.mean[0],
            polarity_spread=scores.spread[0],
            similarity=scores.mean[1],
            similarity_spread=scores.spread[1],
        )
        for (step, kind, value), scores in by_name
        if scores.runs > 1
    )


def _first_problem(points: Iterable[Mapping[str, Any]]) -> str | None:
    """What is wrong with the first point, given by its fields, that has scores which are none."""
    problems = (point_problem(point) for point in points)
    return next((problem for problem in problems if problem), None)
