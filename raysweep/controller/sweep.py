"""Assign a running sweep's trials, record their rungs and track their costs.

Every event is written to the ledger before it takes effect. :class:`raysweep.search.scheduler.Scheduler` decides which
trials run and which are paused. This module does not depend on Ray.
"""

import contextlib
import itertools
import math
import time
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from raysweep.config.sweep import SweepConfig
from raysweep.config.trial import TrialConfig, trial_config
from raysweep.controller.budget import CostTracker, ReachedLimit
from raysweep.controller.failures import Blame, Failures, Loss, RaisedError
from raysweep.controller.kept_files import CHECKPOINTS, KeptScores, WeightStore
from raysweep.controller.node_health import NodeHealth
from raysweep.controller.node_meter import NodeMeter
from raysweep.controller.optuna_study import StudyFile
from raysweep.controller.progress import LedgerReplay, Progress, Verdict
from raysweep.controller.status import Activity, RunningRung, SweepStatus, Workload
from raysweep.controller.status_view import StatusView
from raysweep.controller.steering import Steering
from raysweep.errors import TemporaryError
from raysweep.metrics.scores import Goals, Pair
from raysweep.output import counted
from raysweep.results.commands import format_resume
from raysweep.results.events import (
    CheckpointsRemoved,
    Event,
    NodeExcluded,
    NodesCounted,
    ReplicatesAveraged,
    RungFinished,
    SessionFinished,
    StageBegan,
    SweepSteered,
    TrialContinued,
    TrialEnded,
    TrialInterrupted,
    TrialPaused,
    TrialResumed,
    TrialStarted,
)
from raysweep.results.ledger import Ledger, checkpoint_folder
from raysweep.results.query_scores import PointName
from raysweep.results.scores import Score
from raysweep.results.types import (
    Mean,
    Node,
    Point,
    RungProgress,
    StageName,
    TrialStatus,
    nested_point,
    scores_problem,
)
from raysweep.results.views import calibration_text, measures_text
from raysweep.search.replicates import MeanScores
from raysweep.search.scheduler import Scheduler, TrialState
from raysweep.storage.folder import Folder
from raysweep.terminal import Display, duration

SLOWEST_RUNGS = 10  # a rung's time limit, as a multiple of the slowest rung's time so far
MIN_RUNG_LIMIT_SECONDS = 1800.0
PAUSED = Verdict(TrialStatus.INTERRUPTED, "the sweep is paused")
STOPPED = Verdict(TrialStatus.STOPPED, "requested with raysweep control")
# interval at which node time is logged
NODES_COUNTED_SECONDS = 300.0


@dataclass
class RunningTrial:
    """The state of a trial that is assigned to a worker."""

    node: Node
    # seconds on the sweep's clock; None while the trial waits for a worker
    paid_until: float | None = None
    rung_began: float | None = None  # seconds on the same clock
    verdict: Verdict | None = None  # set when the trial must leave its worker
    previous_rung_seconds: float | None = None  # in this assignment
    progress: RungProgress | None = None  # within the current rung; only for long rungs
    # time of the last report, in seconds on the sweep's clock
    reported_at: float = 0.0
    activity: Activity = Activity.WAITING  # for display


@dataclass
class Sweep:
    """A running sweep. Trials are numbered from 0 in the order in which they are proposed."""

    config: SweepConfig
    scheduler: Scheduler
    ledger: Ledger
    display: Display
    costs: CostTracker
    study: StudyFile
    num_queries: int  # on dev
    assignments: dict[int, RunningTrial] = field(default_factory=dict)
    cause: ReachedLimit | None = None  # the limit that was reached, if any
    given_up: str | None = None  # the reason for giving up, if too many trials failed
    num_workers: int | None = None  # maximum number of concurrent trials in this session, if known
    steering: Steering = field(default_factory=Steering)
    is_over: bool = False  # True once the search has ended and the front is being scored
    num_to_score: int = 0  # number of rungs waiting to be scored once the search has ended

    def __post_init__(self) -> None:
        config = self.config
        self.progress = Progress(config.budget, self.scheduler, self.study)
        max_bytes = int(config.storage.max_gib * 2**30)
        goals = self.scheduler.objective.goals
        self._weights = WeightStore(self.run, max_bytes, goals)
        self._scores = KeptScores(self.run, self.num_queries, goals)
        self._failures = Failures(config.resources)
        # cluster code replaces list_usable
        self.nodes = NodeHealth(config.resources.max_node_errors, list_usable=set)
        self._slowest_rung_seconds = 0.0  # in this session
        self.short_of_memory: set[int] = set()  # trials that ran out of memory in this session
        # trials that failed in this session, not counting those that diverged
        self._num_defects = 0
        self._started_at = time.monotonic()  # adjusted to exclude breaks between sessions
        # monotonic time at which the sweep's clock was stopped
        self._stopped_at: float | None = None
        self._frozen_at: float | None = None  # when `off_the_clock` stopped the clock
        self.meter = NodeMeter(config.budget)  # updated by the cluster connection code
        self._nodes_counted_at = time.monotonic()
        # trials interrupted by a limit or a crash, which are resumed first
        self._interrupted: deque[int] = deque()

    @property
    def run(self) -> Folder:
        return self.ledger.run

    @property
    def seconds(self) -> float:
        """Return the sweep's running time over all sessions, excluding pauses without running trials."""
        times = (self._frozen_at, self._stopped_at)
        now = next((at for at in times if at is not None), time.monotonic())
        return now - self._started_at

    @contextlib.contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """Stop the clock within the context, so that scoring after the search does not use up the budget."""
        began = time.monotonic()
        self._frozen_at = began if self._stopped_at is None else self._stopped_at
        try:
            yield
        finally:
            self._frozen_at = None
            if self._stopped_at is None:
                self._started_at += time.monotonic() - began

    def _stop_or_start_clock(self) -> None:
        if self._frozen_at is not None:
            return
        now = time.monotonic()
        is_idle = self.steering.is_paused and not self.assignments
        if is_idle and self._stopped_at is None:
            self._stopped_at = now
        if not is_idle and self._stopped_at is not None:
            self._started_at += now - self._stopped_at
            self._stopped_at = None

    @property
    def front(self) -> list[Point]:
        """Return the non-dominated points of all rungs on dev, in order of decreasing similarity."""
        return self.progress.front

    @property
    def tested(self) -> set[PointName]:
        """Return the points that an earlier session scored on test."""
        return self.progress.tested

    @property
    def reached_limit(self) -> dict[str, float]:
        """Return the reached limit as ``{key: value}``, or ``{}`` if no limit was reached."""
        return {} if self.cause is None else {self.cause.key: self.cause.value}

    def kept_front(self) -> list[Point]:
        """Return the members of the front whose weights are stored."""
        return self._weights.select_stored(self.front)

    def resumable_trials(self) -> list[int]:
        """Return the paused and interrupted trials."""
        return sorted([*self.progress.paused, *self._interrupted])

    # Trial life cycle.

    def assign(self) -> tuple[int, TrialConfig] | None:
        """Return the next trial to start or resume, or None if no trial can be assigned now."""
        if self.steering.is_paused or self.has_all_workers:
            return None
        self.cause = self.cause or self.costs.reached_limit(self.seconds)
        if self.cause is not None or self.given_up is not None or self.is_paused:
            return None
        if self._interrupted:
            number = self._interrupted.popleft()
            self._log(TrialContinued(trial=number))
        else:
            trial = self.scheduler.ask()
            if trial is None:
                return None
            number = trial.number
            if number in self.progress.configs:
                self._log(TrialResumed(trial=number))
                self.display.line(f"trial {number}: resumed at {self._rung_text(number)}")
            else:
                self._begin(trial)
        self.assignments[number] = RunningTrial(self.costs.last_node)
        return number, self.progress.configs[number]

    @property
    def is_done(self) -> bool:
        """Return whether no trials are left to assign, regardless of limits."""
        return not self._interrupted and self.scheduler.is_done

    @property
    def has_all_workers(self) -> bool:
        """Return whether the requested maximum number of trials is already running."""
        return self.steering.workers is not None and len(self.assignments) >= self.steering.workers

    @property
    def is_paused(self) -> bool:
        """Return whether assignments are paused after a storage failure."""
        return self._failures.pause.until > self.seconds

    def place(self, number: int) -> None:
        """Record that a trial was placed on a worker, and start counting its cost."""
        assignment = self.assignments[number]
        if assignment.paid_until is None:
            assignment.paid_until = assignment.rung_began = assignment.reported_at = self.seconds
            assignment.activity = Activity.TRAINING

    def _begin(self, trial: TrialState) -> None:
        number = trial.number
        original = trial.replicate_of
        config = trial_config(dict(trial.values))
        self.progress.begin(trial, config)
        if original is not None:
            self.display.line(
                f"trial {number}: started (replicate of trial {original}, with another seed)"
            )
        if trial.origin is not None:
            self.display.line(
                f"trial {number}: started (requested by {describe_origin(trial.origin)})"
            )
        event = TrialStarted(
            trial=number,
            config=config.record(searched=trial.values),
            num_rungs=self.progress.num_rungs[number],
            replicate_of=original,
            run=None if original is None else trial.run,
            origin=trial.origin,
        )
        self._log(event)

    def record_rung(self, number: int, rung: dict[str, Any]) -> bool:
        """Record a rung, and return whether the trial must leave its worker.

        ``rung`` is a ``rung`` event as JSON, without the trial, ``may_begin``, the cost and the time. A trial that
        resumes from a checkpoint may report its last rung again; the second report is ignored.
        """
        assignment = self.assignments[number]
        self._note_report(assignment, None)
        step = rung["step"]
        steps_done = self.progress.steps_done(number)
        if step <= steps_done:
            return assignment.verdict is not None
        if step > steps_done + 1:
            reason = f"its checkpoint resumes at rung {step}, but its last rung in the ledger is {steps_done}"
            assignment.verdict = Verdict(TrialStatus.FAILED, reason)
            return True
        points = [*rung["points"], *rung.get("labeled", ())]
        for point in points:
            problem = scores_problem(nested_point(point)["scores"], self.scheduler.objective.goals)
            if problem is not None:
                assignment.verdict = Verdict(TrialStatus.FAILED, f"rung {step}: {problem}")
                return True
        event = RungFinished.from_json({**rung, "trial": number})
        assignment.verdict = self._verdict_after(event)
        self.show()
        return assignment.verdict is not None

    def record_progress(self, number: int, progress: RungProgress) -> bool:
        """Record a trial's progress within its rung, and return whether the trial must leave its worker."""
        assignment = self.assignments[number]
        self._note_report(assignment, progress)
        limit = self.costs.reached_limit(self.seconds)
        if number in self.steering.stopping:
            assignment.verdict = STOPPED
        elif limit is not None and limit.key == "budget.minutes":
            assignment.verdict = Verdict(TrialStatus.INTERRUPTED, limit.reason)
        elif self.steering.was_paused_before(assignment.rung_began):
            assignment.verdict = PAUSED
        self.show()
        return assignment.verdict is not None

    def _note_report(self, assignment: RunningTrial, progress: RungProgress | None) -> None:
        assignment.progress = progress
        assignment.reported_at = self.seconds
        assignment.activity = Activity.TRAINING

    def note_activity(self, number: int, activity: Activity, age: float) -> None:
        """Show a trial's activity as of ``age`` seconds ago, unless the trial has reported since."""
        assignment = self.assignments.get(number)
        if assignment is None or assignment.activity in (Activity.WAITING, activity):
            return
        if self.seconds - age >= assignment.reported_at:
            assignment.activity = activity
            self.show()

    def overdue_reason(self, number: int) -> str | None:
        """Return the reason to kill a trial's process if its rung is taking too long, or None."""
        began = self.assignments[number].rung_began
        limit_seconds = math.inf
        if minutes := self.config.resources.rung_minutes:
            limit_seconds = 60 * minutes
        elif self._slowest_rung_seconds:
            multiple = SLOWEST_RUNGS * self._slowest_rung_seconds
            limit_seconds = max(multiple, MIN_RUNG_LIMIT_SECONDS)
        if began is None or self.seconds - began <= limit_seconds:
            return None
        return f"its rung took more than {duration(limit_seconds)}, and its process was killed"

    def _verdict_after(self, rung: RungFinished) -> Verdict | None:
        """Record a rung, and return a verdict based on its scores, user requests and the budget."""
        verdict = self._take_rung(rung)
        may_resume = verdict is None or verdict.status == TrialStatus.PAUSED
        if may_resume and rung.trial in self.steering.stopping:
            return STOPPED
        if verdict is None and self.steering.is_paused:
            return PAUSED
        if verdict is not None:
            return verdict
        if self.given_up is not None:
            return Verdict(TrialStatus.INTERRUPTED, self.given_up)
        limit = self.costs.reached_limit(self.seconds)
        if limit is not None:
            return Verdict(TrialStatus.INTERRUPTED, limit.reason)
        return None

    def _take_rung(self, rung: RungFinished) -> Verdict | None:
        """Record a rung, and return a verdict based on its scores."""
        number = rung.trial
        self._failures.forget(number)
        assignment = self.assignments[number]
        now = self.seconds
        if assignment.rung_began is not None:
            rung_seconds = now - assignment.rung_began
            self._slowest_rung_seconds = max(self._slowest_rung_seconds, rung_seconds)
            assignment.previous_rung_seconds = rung_seconds
        assignment.rung_began = now
        node = rung.node
        if node is not None:
            assignment.node = node
            self.costs.last_node = node
            warning = self.costs.price_warning(node)
            if warning is not None:
                self.display.warn(warning)
        self._pay(number)
        cost = self.costs.trial_cost(number)
        rung = replace(rung, may_begin=self.scheduler.can_start, cost=cost)
        self._log(rung)
        front_before = self.front
        verdict = self.progress.record(rung)
        original = self.scheduler.trials[number].replicate_of
        self._scores.take(rung.points, self.front, original)
        candidates = [*front_before, *rung.points]
        self._weights.keep_only(self.front, among=candidates)
        self._remove_beyond_bound()
        self._print_rung(rung)
        return verdict

    def _print_rung(self, rung: RungFinished) -> None:
        place = f"trial {rung.trial}: rung {rung.step}/{self.progress.num_rungs[rung.trial]}"
        objective = self.scheduler.objective
        if rung.points:
            best = self._best_pair(rung.points)
            scores = self._show_pair(best)
            weighted_sum = 100 * objective.weighted_sum(best)
            self.display.line(
                f"{place}, {rung.examples_seen:,} examples, {scores}, objective {weighted_sum:.2f}"
            )
        for task, point in zip(self.config.data.tasks, rung.tasks or (), strict=False):
            scores = self._show_pair(point.pair(objective.goals))
            self.display.line(f"{place}, {task}: {scores}")
        if rung.calibration is not None:
            self.display.line(
                f"trial {rung.trial}: rung {rung.step}, softmax head: {calibration_text(rung.calibration)}"
            )
        if rung.measures:
            self.display.line(
                f"trial {rung.trial}: rung {rung.step}, pairs: {measures_text(rung.measures)}"
            )

    def _show_pair(self, pair: Pair) -> str:
        p, s = self.scheduler.objective.goals.headings
        polarity, similarity = pair
        return f"{p} {100 * polarity:.2f}, {s} {100 * similarity:.2f}"

    def release(
        self,
        number: int,
        failure: str | None = None,
        traceback: str | None = None,
        *,
        diverged: bool = False,
    ) -> None:
        """Record that a trial has left its worker because of a ``failure`` or its verdict.

        A trial that ``diverged`` does not count toward the share of failed trials.
        """
        self._pay(number)
        verdict = self.assignments.pop(number).verdict
        if failure:
            verdict = Verdict(TrialStatus.FAILED, failure)
        elif verdict is None:
            verdict = Verdict(TrialStatus.FAILED, "its process ended before its last rung")
        if verdict.status == TrialStatus.FAILED and not diverged:
            self._num_defects += 1
        self._settle(number, verdict, traceback)
        self._stop_or_start_clock()
        if not self.given_up:
            num_begun = len(self.progress.configs)
            self.given_up = self._failures.reason_to_give_up(self._num_defects, num_begun)
        self.show()

    def fail(self, number: int, error: RaisedError) -> None:
        """Requeue a trial that raised an error, or end it if it may not be retried."""
        self.note_error(number, error)
        if self.assignments[number].verdict is None and self.nodes.may_retry(number, error.node):
            self._requeue(
                number,
                f"{error.exception} on node {error.node.name}",
                "it will run again on another node",
            )
        else:
            self.release(number, failure=error.exception, traceback=error.traceback)

    def note_error(self, job: Hashable, error: RaisedError) -> None:
        """Count an error against its node, and exclude the node after too many in a row."""
        if not self.nodes.count_error(job, error.node):
            return
        name, num_errors = error.node.name, self.nodes.max_errors
        self._log(NodeExcluded(node=name, errors=num_errors, reason=error.exception))
        self.display.warn(
            f"search: node {name} excluded (errors in a row={num_errors}, last error={error.exception})"
        )

    def lose(self, number: int, loss: Loss) -> None:
        """Requeue a trial that lost its worker, or end it after too many losses.

        After a storage failure, the node or all assignments are paused.

        Raises:
            TemporaryError: If storage has been failing for too long.
        """
        assignment = self.assignments[number]
        if number in self.steering.stopping:
            assignment.verdict = assignment.verdict or STOPPED
        if assignment.verdict is not None:  # the trial was about to leave anyway
            self.release(number)
            return
        if loss.needs_memory:
            self.short_of_memory.add(number)
        if reason_to_end := self._failures.count(number, loss):
            self.release(number, failure=reason_to_end)
            return
        sequel = (
            "it will resume from its checkpoint"
            if self.progress.steps_done(number)
            else "it will run again"
        )
        self._requeue(number, loss.reason, sequel)
        if loss.blame == Blame.STORAGE:
            self.pause(loss)

    def _requeue(self, number: int, reason: str, sequel: str) -> None:
        self._pay(number)
        del self.assignments[number]
        self._interrupt(number, reason)
        self._interrupted.append(number)
        self.display.line(f"trial {number}: {reason}; {sequel}")
        self._stop_or_start_clock()
        self.show()

    def pause(self, loss: Loss) -> None:
        """Pause a node whose storage failed, or all assignments if the failure affects all nodes.

        Raises:
            TemporaryError: If storage has been failing for too long.
        """
        reason = loss.reason
        if loss.node is not None:
            seconds = self.nodes.pause(loss.node, self.seconds)
            if seconds is not None:
                self.display.warn(
                    f"search: node {loss.node.name} paused for {seconds:g} s (reason=storage failed: {reason})"
                )
                return
        if self.is_paused:
            return
        pause = self._failures.begin_pause(self.seconds)
        if pause.is_hopeless:
            raise TemporaryError(
                f"{reason}; to resume once storage works again: {format_resume(self.run.location)}"
            )
        self.display.warn(
            f"search: assignments paused for {pause.seconds:g} s (reason=storage failed: {reason})"
        )

    def _settle(self, number: int, verdict: Verdict, traceback: str | None = None) -> None:
        """Apply the verdict of a trial that has left its worker."""
        status, reason = verdict
        if status == TrialStatus.INTERRUPTED:
            self._interrupt(number, reason)
            self._interrupted.append(number)
        elif status == TrialStatus.PAUSED:
            cost = self.costs.trial_cost(number)
            self._log(TrialPaused(trial=number, reason=reason, cost=cost))
            self.progress.pause(number, reason)
        else:
            self._end(number, verdict, traceback)
        examples_per_rung = self.progress.configs[number].examples_per_rung
        examples = self.progress.steps_done(number) * examples_per_rung
        place = self._rung_text(number)
        self.display.line(
            f"trial {number}: {status} at {place} (examples={examples:,}, reason={reason})"
        )

    def _rung_text(self, number: int) -> str:
        return f"rung {self.progress.steps_done(number)}/{self.progress.num_rungs[number]}"

    def _interrupt(self, number: int, reason: str) -> None:
        self._log(TrialInterrupted(trial=number, reason=reason, cost=self.costs.trial_cost(number)))

    def _end(self, number: int, verdict: Verdict, traceback: str | None = None) -> None:
        """End a trial. For a replicate, also log the means over all runs of its configuration."""
        status, reason = verdict
        original = self.scheduler.trials[number].replicate_of
        if status != TrialStatus.FAILED and original is not None:
            # Log this event before the trial's end, so that a crash in between cannot lose it.
            means = self.scheduler.replicates.means(original, ending=number)
            points = mean_points(original, means, self.scheduler.objective.goals)
            num_runs = max((point.runs for point in points), default=1)
            self._log(ReplicatesAveraged(trial=original, runs=num_runs, points=points))
        cost = self.costs.trial_cost(number)
        self._log(
            TrialEnded(trial=number, status=status, reason=reason, cost=cost, traceback=traceback)
        )
        self.progress.end(number, verdict)
        self._remove_checkpoint(number)

    def begin_stage(self, stage: StageName, count: int) -> None:
        """Log the start of a stage that scores ``count`` rungs or front members, for progress displays."""
        self._log(StageBegan(stage=stage, count=count))
        minutes = self.config.budget.minutes
        if stage == "test" and minutes is not None:
            rungs = counted(count, "rung")
            self.display.line(
                f"test: scoring {rungs} of the front; budget.minutes {minutes:g} covers only the search"
            )

    # Requests to the running sweep.

    def steer(self, event: SweepSteered) -> None:
        """Log and execute a request that :mod:`raysweep.controller.request_handler` has already checked."""
        event = replace(event, at=self.seconds)
        self.ledger.append(event)
        self.steering.take(event)
        if event.config is not None:
            self.scheduler.try_next(event.request, event.config)
        if event.trial is not None:
            self._stop_unassigned(event.trial)
        self._stop_or_start_clock()
        self.show()

    def _stop_unassigned(self, number: int) -> None:
        """Stop a trial if it is paused or interrupted. A trial on a worker stops at its next report."""
        is_paused = self.scheduler.trials[number].status == TrialStatus.PAUSED
        if number in self._interrupted:
            self._interrupted.remove(number)
        elif not is_paused:
            return
        self._settle(number, STOPPED)

    # Start and end of the sweep.

    def replay(self, events: Iterable[Event], *, adopt: bool = False) -> None:
        """Restore the state from a ledger's events. See :class:`LedgerReplay` for ``adopt`` and errors."""
        replayed = LedgerReplay(self.scheduler, self.progress, self.costs, adopt=adopt)
        replayed.take_all(events)
        originals = {}
        checkpoints = self.run.names(CHECKPOINTS)
        for number, trial in self.scheduler.trials.items():
            original = trial.replicate_of
            if original is not None:
                originals[number] = original
            has_ended = trial.status in self.progress.ended
            folder = checkpoint_folder(number)
            checkpoint = Path(folder).name
            if has_ended and checkpoint in checkpoints:
                self._remove_checkpoint(number)  # left by a killed driver
        self._scores.restore(replayed.points, self.front, originals)
        self._started_at = time.monotonic() - replayed.seconds
        self.steering = replayed.steering
        for number, verdict in replayed.unfinished.items():
            if verdict is None:
                self._interrupted.append(number)
            else:  # the driver died before applying the verdict
                self._settle(number, verdict)
        for number in self.steering.stopping:  # the driver died before stopping the trial
            self._stop_unassigned(number)
        self._stop_or_start_clock()

    def finish(self, status: str, reason: str, is_final: bool = False) -> None:
        """Clean up storage, log the end of the session and close the ledger.

        If an earlier event could not be written, only the ledger is closed. See :class:`SessionFinished` for
        ``is_final``.
        """
        if self.ledger.failure is not None:
            self.ledger.close()
            return
        try:
            if status == "completed":
                for number in self.progress.paused:
                    reason_to_pause = self.scheduler.trials[number].reason
                    self._end(number, Verdict(TrialStatus.STOPPED, reason_to_pause))
            for number in list(self.assignments):
                self._pay(number)
                self._interrupt(number, reason)
            if not self.config.storage.keep_checkpoints and status in (
                "completed",
                "budget",
                "plateau",
            ):
                self._free_checkpoints()
            # Keep only checkpoints that a trial can resume from.
            resumable = (*self.resumable_trials(), *self.assignments)
            needed = {Path(checkpoint_folder(number)).name for number in resumable}
            for name in self.run.names(CHECKPOINTS) - needed:
                self.run.remove(f"{CHECKPOINTS}/{name}")
            # This also removes weights of rungs that were never reported.
            self._weights.keep_only(self.front)
            self._remove_beyond_bound()
            self._scores.tidy()
            if status not in ("interrupted", "failed"):  # otherwise there may be little time left
                self._scores.pack(self.display.warn)
            self.count_nodes(at_once=True)
            self.study.close()
            finished = SessionFinished(
                status=status,
                reason=reason,
                seconds=self.seconds,
                is_final=is_final or None,
                limit=self.reached_limit or None,
            )
            self._log(finished)
        finally:
            self.ledger.close()

    def _free_checkpoints(self) -> None:
        """Stop paused and interrupted trials, and remove their checkpoints. Replicates can start over."""
        numbers = self.resumable_trials()
        trials = self.scheduler.trials
        stopped = tuple(number for number in numbers if trials[number].replicate_of is None)
        if stopped:
            event = CheckpointsRemoved(trials=stopped)
            self._log(event)
            for number in stopped:
                self.progress.end(number, Verdict(TrialStatus.STOPPED, event.reason))
        self._interrupted = deque(number for number in self._interrupted if number not in stopped)
        for number in numbers:
            self._remove_checkpoint(number)

    # Costs, disk, ledger and display.

    def count_nodes(self, *, at_once: bool = False) -> None:
        """Log the cluster's node time if it is due or ``at_once`` is True."""
        now = time.monotonic()
        if not at_once and now - self._nodes_counted_at < NODES_COUNTED_SECONDS:
            return
        self._nodes_counted_at = now
        if nodes := self.meter.take():
            self._log(NodesCounted(nodes=nodes))

    def _pay(self, number: int) -> None:
        """Charge a trial for its time on the worker since it was last charged."""
        assignment = self.assignments[number]
        now = self.seconds
        if assignment.paid_until is not None:
            self.costs.spend(number, now - assignment.paid_until, assignment.node)
            assignment.paid_until = now

    def _remove_beyond_bound(self) -> None:
        """Enforce ``storage.max_gib``: end paused trials, worst first, and then remove weights of the front.

        Checkpoints of running and interrupted trials are needed, so they do not count toward the limit.
        """
        paused = self.progress.paused
        if not self._weights.is_full(self.front, self._other_bytes(paused)):
            return
        trials = self.scheduler.trials
        objective = self.scheduler.objective
        paused.sort(key=lambda number: objective.area(trials[number].front))
        reached = f"storage.max_gib={self.config.storage.max_gib:g} is reached"
        verdict = Verdict(TrialStatus.STOPPED, f"{reached}, and this was the worst paused trial")
        while paused and self._weights.is_full(self.front, self._other_bytes(paused)):
            worst = paused.pop(0)
            self._end(worst, verdict)
        for point in self._weights.shrink(self.front, self._other_bytes(paused)):
            self.display.warn(
                f"search: weights removed (point={point.name}, reason={reached}); the point adds the least area to the "
                "front, and its scores are kept"
            )

    def _other_bytes(self, paused: Sequence[int]) -> int:
        """Return the total size in bytes of the per-query scores and of the paused trials' checkpoints."""
        return self._scores.num_bytes + self._weights.checkpoint_bytes(paused)

    def _remove_checkpoint(self, number: int) -> None:
        self.run.remove(checkpoint_folder(number))

    def _log(self, event: Event) -> None:
        """Write an event to the ledger with the current time."""
        self.ledger.append(replace(event, at=self.seconds))

    def show(self) -> None:
        """Update the displayed status."""
        status = self.status()
        self.display.status(status.text, status.fraction, StatusView(status))

    def status(self) -> SweepStatus:
        scheduler = self.scheduler
        progress = self.progress
        ended = progress.ended
        num_running = len(self.assignments)
        num_paused = len(scheduler.trials) - num_running - sum(ended.values())
        num_done = {number: progress.steps_done(number) for number in progress.configs}
        num_rungs = sum(num_done.values())
        interrupted = [
            (num_done[number], progress.num_rungs[number]) for number in self._interrupted
        ]
        on_workers = {*self.assignments, *self._interrupted}
        workload = Workload(
            rung_seconds=self.costs.total.seconds / num_rungs if num_rungs else None,
            max_rungs=max(progress.num_rungs.values(), default=1),
            num_trials=Counter(num for number, num in num_done.items() if number not in on_workers),
            interrupted=interrupted,
        )
        return SweepStatus(
            num_begun=scheduler.num_started,
            num_trials=scheduler.num_trials,
            num_replicates=scheduler.replicates.num_started,
            max_replicates=scheduler.replicates.trials,
            counts={TrialStatus.RUNNING: num_running, TrialStatus.PAUSED: num_paused, **ended},
            best=self._best_pair(self.front) if self.front else None,
            goals=self.scheduler.objective.goals,
            front_size=len(self.front),
            seconds=self.seconds,
            limit_seconds_left=self.costs.seconds_left(self.seconds),
            workload=workload,
            cost=replace(self.costs.total),
            running=list(itertools.starmap(self._running_rung, self.assignments.items())),
            is_paused=self.steering.is_paused,
            max_workers=self.steering.workers,
        )

    def _running_rung(self, number: int, assignment: RunningTrial) -> RunningRung:
        now = self.seconds
        return RunningRung(
            trial=number,
            step=min(self.progress.steps_done(number) + 1, self.progress.num_rungs[number]),
            num_rungs=self.progress.num_rungs[number],
            num_examples=self.progress.configs[number].examples_per_rung,
            activity=assignment.activity,
            seconds=0.0 if assignment.rung_began is None else now - assignment.rung_began,
            previous_seconds=assignment.previous_rung_seconds,
            progress=assignment.progress,
            progress_age=now - assignment.reported_at,
        )

    def _best_pair(self, points: Sequence[Point]) -> Pair:
        """Return P and S of the best of these points."""
        objective = self.scheduler.objective
        return objective.best_point([point.pair(objective.goals) for point in points])


def describe_origin(name: str) -> str:
    """Describe where a requested configuration came from."""
    return f"{name} in the sweep file" if name.startswith("first[") else "raysweep control"


def mean_points(
    original: int, means: Mapping[int, Mapping[Any, MeanScores]], goals: Goals
) -> tuple[Mean, ...]:
    """Return the means of a trial's points that at least two runs reached.

    ``means`` is keyed by examples seen, then (step, kind, value).
    """
    rows = []
    for points in means.values():
        for (step, kind, value), scores in points.items():
            if scores.runs < 2:
                continue
            mean = Mean(
                trial=original,
                step=step,
                kind=kind,
                value=value,
                runs=scores.runs,
                scores=dict(zip(goals, map(Score, scores.mean, scores.spread), strict=True)),
            )
            rows.append(mean)
    return tuple(rows)
