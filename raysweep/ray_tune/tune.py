"""Thin adapters between Ray Tune and :class:`raysweep.controller.sweep.Sweep`, which makes all decisions.

Tune places trials, reuses actors and detects dead actors. It never restarts a trial; the sweep assigns lost trials
again. Nothing reads Tune's snapshots. After the search, each rung to score on test or on watched data is a Tune trial
of its own.
"""

import contextlib
import functools
import json
import math
import os
import re
import tempfile
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from raysweep.cluster.heartbeat import (
    FrozenWatch,
    HeartbeatWatch,
    Listener,
    Silence,
    kill,
    kill_all,
    listen,
)
from raysweep.cluster.nodes import list_worker_nodes
from raysweep.cluster.ray_internals import count_memory_kills_as_deaths, make_silent_reporter
from raysweep.cluster.resources import NODE_ID_LABEL, Request, address_of
from raysweep.cluster.waiting import WaitingWatch
from raysweep.controller.failures import Blame, Loss
from raysweep.controller.front_scores import AfterSearch, FrontRung, FrontScores, ScoredRung, key_of
from raysweep.controller.request_handler import RequestHandler, answered
from raysweep.controller.status import Activity
from raysweep.controller.sweep import Sweep
from raysweep.errors import exception_line
from raysweep.ray_tune.prometheus import SweepMetrics
from raysweep.ray_tune.trial_actor import (
    Assignment,
    SweepTask,
    TrialActor,
    as_tune_config,
    error_in,
    job_of,
    loss_in,
    node_in,
)
from raysweep.ray_tune.workers import WorkbenchSpec
from raysweep.results.ledger import point_name
from raysweep.results.types import RungProgress
from raysweep.results.watched import Watched
from raysweep.storage.scratch import process_folder
from raysweep.terminal import uninterrupted

MAX_TRACEBACK_CHARACTERS = 10_000
LOADING_SILENCES = 10  # factor on silent_seconds while a process loads its libraries
KILL_AGAIN_SECONDS = 30.0
SAVE_SECONDS = 60.0  # time limit for writing checkpoints after an interruption
# interval between Tune's snapshots; Tune still takes one at the start and one at the end
NEVER_SECONDS = "1e9"
REMOVED = "removed before it started"
NODE_DIED = "its node has died"  # in Ray's message about a dead actor
SHORT_OF_MEMORY = "running low on memory"  # in the message if Ray itself killed the process
CREATION = "in its creation task"  # in the message if the actor could not be created


class SweepStoppedError(BaseException):
    """Raised when ``error`` prevents the sweep from continuing.

    Not an Exception, because Tune would attribute it to a trial and continue.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@contextlib.contextmanager
def _ends_the_sweep() -> Iterator[None]:
    """Convert errors to SweepStoppedError, which ends Tune's loop."""
    try:
        yield
    except Exception as error:
        raise SweepStoppedError(error) from None


class _NotInSnapshots:
    """Mixin that keeps the sweep out of Tune's snapshots."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class TuneSearcher(_NotInSnapshots, Searcher):
    """Searcher that suggests assignments to Tune and, after the search, rungs to score."""

    def __init__(self, sweep: Sweep, scores: FrontScores, request_handler: RequestHandler) -> None:
        super().__init__()
        self._sweep = sweep
        self._scores = scores
        self._request_handler = request_handler

    @_ends_the_sweep()
    @uninterrupted()
    def suggest(self, trial_id: str) -> Any:
        self._request_handler.serve()  # while nothing runs, Tune calls only this method
        if self._sweep.steering.is_paused:
            return None
        if self._scores.have_begun:
            return self._rung_to_score()
        was_paused = self._sweep.is_paused
        proposal = self._sweep.assign()
        if proposal is None:
            # A running trial's result may make another trial available.
            return None if self._sweep.assignments or was_paused else self._rung_to_score()
        number, config = proposal
        run = self._sweep.scheduler.trials[number].run
        recomputes = (
            self._sweep.config.resources.recompute_activations
            or number in self._sweep.short_of_memory
        )
        return self._as_tune_config(Assignment(number, config, run, recomputes), number)

    def _as_tune_config(self, job: Assignment | AfterSearch, key: Hashable) -> dict[str, Any]:
        avoided_nodes = self._sweep.nodes.nodes_to_avoid(key, self._sweep.seconds)
        return as_tune_config(job, avoided_nodes)

    def _rung_to_score(self) -> Any:
        self._sweep.is_over = True
        rung = None if self._sweep.is_paused else self._scores.next()
        if rung is None:
            return (
                None if self._sweep.is_paused or self._scores.are_under_way else Searcher.FINISHED
            )
        return self._as_tune_config(rung, key_of(rung))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Do nothing; :class:`TuneScheduler` handles completed trials."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing; the ledger holds the search's state."""

    def restore(self, checkpoint_path: str) -> None:
        raise RuntimeError("Tune's snapshots are not read back")


class TuneScheduler(_NotInSnapshots, FIFOScheduler):
    """Scheduler that passes results to the sweep and the sweep's decisions to Tune."""

    def __init__(self, sweep: Sweep, scores: FrontScores, watch: "_Watch") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sweep = sweep
        self._scores = scores
        self._watch = watch

    @_ends_the_sweep()
    @uninterrupted()
    def on_trial_result(
        self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]
    ) -> str:
        job = job_of(trial.config)
        assert isinstance(job, Assignment)
        if "progress" in result:
            progress = RungProgress(**json.loads(result["progress"]))
            leaves = self._sweep.record_progress(job.number, progress)
        else:
            leaves = self._record_rung(job.number, result)
        return TrialScheduler.STOP if leaves else TrialScheduler.CONTINUE

    def _record_rung(self, number: int, result: dict[str, Any]) -> bool:
        steps_done = self._sweep.progress.steps_done(number)
        leaves = self._sweep.record_rung(number, json.loads(result["rung"]))
        # ignore a rung repeated after a resume
        if self._sweep.progress.steps_done(number) > steps_done:
            self._sweep.nodes.note_rung(number, node_in(result).id)
        return leaves

    @_ends_the_sweep()
    @uninterrupted()
    def on_trial_complete(
        self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]
    ) -> None:
        job = job_of(trial.config)
        loss = loss_in(result)
        error = error_in(result)
        if not isinstance(job, Assignment):
            if loss:
                self._scores.lose(job, loss)
            elif error:
                self._scores.fail_on_node(job, error)
            elif failure := result.get("failure"):
                self._scores.fail(job, failure)
            elif isinstance(job, FrontRung):
                scored = ScoredRung(**json.loads(result["scored"]))
                self._scores.take(job, scored)
            else:
                watched = Watched.from_json(json.loads(result["scored"]))
                self._scores.take_watched(job, watched)
            return
        if "rung" in result:  # Tune passes a trial's last result here, not to on_trial_result
            self._record_rung(job.number, result)
        if loss:
            self._sweep.lose(job.number, loss)
        elif error:
            traceback = (error.traceback or "")[-MAX_TRACEBACK_CHARACTERS:]
            self._sweep.fail(job.number, replace(error, traceback=traceback or None))
        else:
            has_diverged = "diverged" in result
            self._sweep.release(job.number, failure=result.get("failure"), diverged=has_diverged)

    @_ends_the_sweep()
    @uninterrupted()
    def on_trial_error(self, tune_controller: Any, trial: TuneTrial) -> None:
        job = job_of(trial.config)
        error = self._watch.error_of(trial)
        if not isinstance(job, Assignment):
            if error.is_raised:
                self._scores.fail(job, error.exception)
            else:
                self._scores.lose(job, error.loss)
        elif error.is_raised:
            traceback = error.text[-MAX_TRACEBACK_CHARACTERS:]
            self._sweep.release(job.number, failure=error.exception, traceback=traceback)
        else:
            self._sweep.lose(job.number, error.loss)

    @_ends_the_sweep()
    def on_trial_remove(self, tune_controller: Any, trial: TuneTrial) -> None:
        job = job_of(trial.config)
        if not isinstance(job, Assignment):
            self._scores.fail(job, REMOVED)
        else:
            self._sweep.release(job.number, failure=REMOVED)


class _Watch(_NotInSnapshots, tune.Callback):
    """Callback that tracks assignments, kills hanging trials and updates the status and metrics."""

    def __init__(
        self,
        sweep: Sweep,
        scores: FrontScores,
        request_handler: RequestHandler,
        listener: Listener,
        metrics: SweepMetrics,
    ) -> None:
        self._begun: set[str] = set()  # Tune's ids of the trials that reached a worker
        self._reasons: dict[str, str] = {}  # why trials were killed
        self._killed_at: dict[str, float] = {}
        self._sweep = sweep
        self._scores = scores
        self._request_handler = request_handler
        self._metrics = metrics
        self._heartbeat_watch = HeartbeatWatch(listener)
        self._frozen = FrozenWatch()
        self._waiting = WaitingWatch(lambda text: sweep.display.line(f"search: {text}"))
        self._moved_at = time.monotonic()  # when a trial was last on a worker
        self._all_placed_at = self._moved_at  # when every trial last had a worker
        self._trials: list[TuneTrial] = []

    def save_running_trials(self) -> None:
        """Make running trials write checkpoints, and wait for at most SAVE_SECONDS."""
        running = [trial for trial in self._trials if trial.status == TuneTrial.RUNNING]
        actors = [
            trial.temporary_state.ray_actor for trial in running if trial.temporary_state.ray_actor
        ]
        if not actors:
            return
        self._sweep.display.line(
            "search: interrupted; saving the running trials (press Ctrl-C again to skip this)"
        )
        # Stopping a trial closes its iterator, which writes a checkpoint.
        saved: list[Any] = [actor.stop.remote() for actor in actors]
        ray.wait(saved, num_returns=len(saved), timeout=SAVE_SECONDS)

    @_ends_the_sweep()
    def on_trial_start(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any
    ) -> None:
        self._begun.add(trial.trial_id)
        self._trials = trials
        job = job_of(trial.config)
        if isinstance(job, Assignment):
            self._sweep.place(job.number)

    def error_of(self, trial: TuneTrial) -> "_Error":
        """Return Tune's error for a lost trial."""
        text = Path(trial.error_file).read_text(encoding="utf-8") if trial.error_file else ""
        without_colors = re.sub(r"\x1b\[\d+m", "", text)
        _, _, message = without_colors.partition("\n")  # the first line is Tune's failure count
        return _Error(
            message.strip(), trial.trial_id in self._begun, self._reasons.get(trial.trial_id)
        )

    @_ends_the_sweep()
    def on_step_end(self, iteration: int, trials: list[TuneTrial], **info: Any) -> None:
        with uninterrupted():
            self._request_handler.serve()
        self._scores.show()
        self._sweep.count_nodes()
        self._metrics.refresh()
        statuses = {trial.status for trial in trials}
        now = time.monotonic()
        if TuneTrial.PENDING not in statuses:
            self._moved_at = self._all_placed_at = now
            self._waiting.note_all_placed()
        elif TuneTrial.RUNNING in statuses:
            self._moved_at = now
            self._waiting.moved()
            self._waiting.check_remaining(now - self._all_placed_at)
        else:
            self._waiting.check(now - self._moved_at)
        silences = self._heartbeat_watch.silences()
        running = {trial.trial_id: trial for trial in trials if trial.status == TuneTrial.RUNNING}
        for trial_id, silence in silences.items():
            # a killed process may take a while to end
            since_kill = time.monotonic() - self._killed_at.get(trial_id, -math.inf)
            if trial_id in running and since_kill > KILL_AGAIN_SECONDS:
                self._check(running[trial_id], silence)

    def _check(self, trial: TuneTrial, silence: Silence) -> None:
        """Record a trial's activity, and kill its process if it is silent or overdue."""
        reason = None
        if self._is_lost(silence):
            reason = f"its process made no progress for {silence.seconds:.0f} s and was killed"
        job = job_of(trial.config)
        if isinstance(job, Assignment):
            activity = Activity.TRAINING
            if silence.record.is_loading:
                activity = Activity.LOADING
            elif silence.record.is_evaluating:
                activity = Activity.EVALUATING
            self._sweep.note_activity(job.number, activity, silence.record_age)
            reason = reason or self._sweep.overdue_reason(job.number)
        if reason:
            trial_id = trial.trial_id
            self._reasons[trial_id] = reason
            self._killed_at[trial_id] = time.monotonic()
            kill(silence.record)

    def _is_lost(self, silence: Silence) -> bool:
        """Return whether a process has been silent for too long.

        A process that loads its libraries may be silent for longer, unless it is frozen.
        """
        limit = self._sweep.config.resources.silent_seconds
        if silence.seconds <= limit:
            return False
        if not silence.record.is_loading or silence.seconds > LOADING_SILENCES * limit:
            return True
        return self._frozen.is_frozen(silence.record)


@dataclass(frozen=True)
class _Error:
    """Tune's error for a lost trial: the trial's exception or Ray's message about a dead actor."""

    text: str
    had_begun: bool  # False if the actor died before the trial started
    reason: str | None  # why its process was killed

    @property
    def is_raised(self) -> bool:
        """Return whether the trial itself raised the error."""
        # Ray then starts the text with the name of the actor's method.
        return self.text.startswith("ray::")

    @property
    def exception(self) -> str:
        """Return the raised exception, or the last line of Ray's message, which has the details."""
        if self.is_raised:
            return exception_line(self.text)
        return (
            self.text.rstrip().splitlines()[-1].strip()
            if self.text.strip()
            else "Ray gave no reason"
        )

    @property
    def loss(self) -> Loss:
        """Return why the actor was lost."""
        if self.reason is not None:
            return Loss(Blame.PROCESS, self.reason)
        if not self.had_begun and CREATION not in self.text:
            return Loss(Blame.NODE, "its worker ended before the trial started")
        if SHORT_OF_MEMORY in self.text:
            reason = "its node ran low on memory, and Ray killed its process"
            return Loss(Blame.PROCESS, reason, needs_memory=True)
        if NODE_DIED in self.text:
            return Loss(Blame.NODE, f"its node was lost: {self.exception}")
        return Loss(Blame.PROCESS, f"its process died: {self.exception}")


def _name(trial: TuneTrial) -> str:
    job = job_of(trial.config)
    if not isinstance(job, Assignment):
        stage = "test" if isinstance(job, FrontRung) else "watch"
        return f"{stage}-{point_name(job.trial, job.step)}-{trial.trial_id}"
    return f"trial-{job.number:04d}-{trial.trial_id}"


def place_job(request: Request, tune_config: dict[str, Any]) -> tune.PlacementGroupFactory:
    """Return a placement group for the requested resources, outside the nodes to avoid."""
    amounts = request.resources
    bundle = {"CPU": amounts["cpu"], "GPU": amounts["gpu"], "memory": amounts.get("memory", 0)}
    avoided_nodes = tune_config["avoided_nodes"]
    if not avoided_nodes:
        return tune.PlacementGroupFactory([bundle])
    selector = {NODE_ID_LABEL: f"!in({','.join(avoided_nodes)})"}
    return tune.PlacementGroupFactory([bundle], bundle_label_selector=[selector])


def search(
    sweep: Sweep,
    bench: WorkbenchSpec,
    actor: type[TrialActor] = TrialActor,
    *,
    has_test: bool = False,
) -> None:
    """Run the sweep's trials and, if ``has_test``, score the front on the test split.

    Trials run until none are left or the budget is spent. After a KeyboardInterrupt, finished rungs and scores remain
    in the ledger.
    """
    config = sweep.config
    request = bench.request
    # Tune's handler for Ctrl-C would write snapshots first
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"  # the ledger has every result
    os.environ["TUNE_GLOBAL_CHECKPOINT_S"] = NEVER_SECONDS
    # otherwise Tune would restart preempted trials
    os.environ["RAY_TRAIN_COUNT_PREEMPTION_AS_FAILURE"] = "1"
    count_memory_kills_as_deaths()
    sweep.nodes.list_usable = list_worker_nodes
    listener = listen(config.resources.silent_seconds)
    task = SweepTask(
        bench, config.budget, sweep.run, config.seed, config.resources.checkpoint_seconds, listener
    )
    scores = FrontScores(sweep, has_test=has_test)
    with answered(sweep) as request_handler:
        metrics = SweepMetrics(sweep)
        watch = _Watch(sweep, scores, request_handler, listener, metrics)
        # The folder must be private, so that Tune never reads files that other users wrote.
        snapshots = tempfile.TemporaryDirectory(prefix="tune-", dir=process_folder())
        tuner = tune.Tuner(
            tune.with_resources(
                tune.with_parameters(actor, sweep=task), functools.partial(place_job, request)
            ),
            tune_config=tune.TuneConfig(
                num_samples=-1,  # unlimited; the searcher ends the search
                search_alg=TuneSearcher(sweep, scores, request_handler),
                scheduler=TuneScheduler(sweep, scores, watch),
                max_concurrent_trials=request.count,
                reuse_actors=True,
                trial_name_creator=_name,
                trial_dirname_creator=_name,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=snapshots.name,
                verbose=0,
                progress_reporter=make_silent_reporter(),
                callbacks=[watch],
                failure_config=tune.FailureConfig(max_failures=0),
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=0, checkpoint_at_end=False
                ),
            ),
        )
        with snapshots, metrics.attached(), sweep.display.live():
            try:
                tuner.fit()
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    watch.save_running_trials()
                # on an existing cluster, trials would keep running
                if address_of(config.resources):
                    kill_all(listener)
                if isinstance(error, SweepStoppedError):
                    raise error.error from None
                raise
