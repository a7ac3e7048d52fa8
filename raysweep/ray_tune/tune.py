"""The sweep on Ray Tune: thin adapters between Tune and :class:`raysweep.controller.sweep.Sweep`, which decides.

Tune places trials, reuses their actors and notices when one dies. It never restarts a trial: a trial that loses its
worker returns to the sweep, which assigns it again. Tune's snapshots are stored in a folder of this process and are
never read back. After the search, the actors score the front on test; to Tune, each rung to score is one more trial.
"""

import contextlib
import dataclasses
import functools
import json
import math
import os
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from raysweep.cluster.preemption import DrainWatch, watch_for_notices
from raysweep.cluster.resources import address_of
from raysweep.cluster.waiting import WaitingWatch
from raysweep.config.sweep import BudgetConfig
from raysweep.config.trial import TrialConfig
from raysweep.control.request_queue import Inbox, RequestQueue, watched
from raysweep.controller.failures import Blame, Loss
from raysweep.controller.front_scores import FrontRung, FrontScores, ScoredRung
from raysweep.controller.request_handler import RequestHandler
from raysweep.controller.status import describe_progress
from raysweep.controller.sweep import Sweep
from raysweep.errors import InputError, exception_line
from raysweep.evaluation.evaluation_set import TrialDivergedError
from raysweep.ray_tune.heartbeat import (
    FrozenWatch,
    Heartbeat,
    HeartbeatWatch,
    Listener,
    Silence,
    kill,
    kill_all,
    listen,
)
from raysweep.ray_tune.node_watch import node_type
from raysweep.ray_tune.workers import WorkbenchSpec, keep_scores, open_workbench, score_on_test
from raysweep.results.ledger import checkpoint_folder, point_folder, point_name
from raysweep.results.readings import Reading
from raysweep.results.types import Node, RungProgress, calibration_values
from raysweep.storage.failure import is_of_storage
from raysweep.storage.folder import BucketFolder, Folder
from raysweep.storage.scratch import process_folder
from raysweep.terminal import uninterrupted
from raysweep.training.trial import Intervals, rungs_and_progress, trial_seed
from raysweep.training.weights import save_point
from raysweep.training.workbench import RungResult

PROGRESS_SECONDS = 5.0  # between two progress reports within a rung
LOG_SECONDS = 60.0  # between two progress lines of one trial in the log
MAX_TRACEBACK_CHARACTERS = 10_000
LOADING_SILENCES = 10  # how many times longer a process may be silent while it loads its libraries
KILL_AGAIN_SECONDS = 30.0
NEVER_SECONDS = "1e9"  # between two Tune snapshots; Tune still takes one at the start and one at the end
NODE_GOES = Loss(Blame.NODE, "its node is about to go away")
REMOVED = "removed before it began"
NODE_DIED = "its node has died"  # in Ray's message about a dead actor
SHORT_OF_MEMORY = "running low on memory"  # the same, for processes that Ray itself killed
CREATION = "in its creation task"  # the same, for an actor that could not be created


@dataclass(frozen=True)
class SweepTask:
    """The settings shared by all trials of a sweep."""

    bench: WorkbenchSpec
    budget: BudgetConfig
    run: Folder
    seed: int
    checkpoint_seconds: float
    listener: Listener | None = None  # for heartbeats; None sends none


@dataclass(frozen=True)
class Assignment:
    """An assignment of a trial to a worker.

    Tune keeps the assignment until the sweep ends, so it holds only what identifies the trial. ``run`` counts the
    replicates of a configuration from 1. With ``recomputes``, the trial must use less memory, because a process of this
    session was killed for lack of it.
    """

    number: int
    config: TrialConfig
    run: int
    recomputes: bool = False


@dataclass(frozen=True)
class TrialTask:
    """The inputs of the actor that runs a trial."""

    sweep: SweepTask
    assignment: Assignment

    @property
    def num_rungs(self) -> int:
        return self.sweep.budget.rungs_of(self.assignment.config.examples_per_rung)

    @property
    def trial_seed(self) -> int:
        return trial_seed(self.sweep.seed, self.assignment.config, self.assignment.run)

    @property
    def checkpoints(self) -> Folder:
        return self.sweep.run.within(checkpoint_folder(self.assignment.number))


def _do_nothing() -> None:
    """Replace the callback of trials without heartbeats."""


@functools.cache
def _heartbeat() -> Heartbeat:
    """Return the heartbeat of this process."""
    return Heartbeat()


@functools.cache
def _drain_watch() -> DrainWatch:
    """Return the drain watch of this process."""
    watch_for_notices()
    return DrainWatch()


def _keep_up_while_storage_waits(heartbeat: Heartbeat, run: Folder) -> None:
    """Count waiting for an object store as progress of the trial."""

    def wait(reason: str) -> None:
        heartbeat.sign()
        print(reason, flush=True)

    if isinstance(run, BucketFolder):
        run.bucket.on_wait = wait


def _as_tune_config(job: Assignment | FrontRung) -> dict[str, Any]:
    """Return the job as a configuration for Tune.

    Tune copies a configuration several times and pickles it into its snapshots.
    """
    return {"job": job}


def _job(tune_config: dict[str, Any]) -> Assignment | FrontRung:
    """Return the job in a configuration from Tune: a trial to run, or a rung to score on test."""
    job: Assignment | FrontRung = tune_config["job"]
    return job


def _as_result(loss: Loss) -> dict[str, Any]:
    """Return the last result, in Tune's form, of a trial that must leave its worker."""
    return {"blame": loss.blame.value, "reason": loss.reason, "done": True}


def _loss_in(result: dict[str, Any]) -> Loss | None:
    """Return the loss in a trial's last result, if there is one."""
    return Loss(Blame(result["blame"]), result["reason"]) if "blame" in result else None


class TrialActor(tune.Trainable):
    """A trial on one worker, started or resumed from its checkpoint; a Tune step is a rung or a part of one.

    An actor may also score one rung of the front on the test split, which takes one step.
    """

    def setup(self, config: dict[str, Any], sweep: SweepTask) -> None:  # type: ignore[override]  # by with_parameters
        """Prepare for a trial. Tune calls this again for each trial that a reused actor takes."""
        job = _job(config)
        self.logged_at = time.monotonic()
        self.has_checkpoint = True  # nothing has been computed yet, so nothing can be lost
        listener = sweep.listener
        self.heartbeat = None if listener is None else _heartbeat()
        if self.heartbeat is not None and listener is not None:
            self.heartbeat.begin(self.trial_id, listener)
            _keep_up_while_storage_waits(self.heartbeat, sweep.run)
        self.results: Iterator[RungResult | RungProgress | ScoredRung]
        if isinstance(job, FrontRung):
            self.results = self._test_scores(sweep, job)
        else:
            self.task = TrialTask(sweep, job)
            self.results = self._rungs()

    def _rungs(self) -> Iterator[RungResult | RungProgress]:
        """Yield the trial's results; nothing runs before the first step, so that errors are reported in full."""
        self._open_bench(self.task.sweep)
        yield from rungs_and_progress(
            self.task.assignment.config,
            self.bench,
            Intervals(self.task.sweep.checkpoint_seconds, PROGRESS_SECONDS),
            seed=self.task.trial_seed,
            num_rungs=self.task.num_rungs,
            checkpoints=self.task.checkpoints,
            on_rest=_do_nothing if self.heartbeat is None else self.heartbeat.rest,
            leaves=self.note_whether_to_leave,
            recomputes=self.task.assignment.recomputes,
        )

    def _test_scores(self, sweep: SweepTask, rung: FrontRung) -> Iterator[ScoredRung]:
        """Yield the test scores of a rung; nothing runs before the first step."""
        self._open_bench(sweep)
        yield score_on_test(self.bench, sweep.run, rung)

    def _open_bench(self, sweep: SweepTask) -> None:
        self.bench = open_workbench(sweep.bench)
        if self.heartbeat is not None:
            self.heartbeat.follow(self.bench.model)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        if _drain_watch().is_draining():
            os._exit(0)  # the node is going away, so Tune starts this trial in another process
        self.setup(new_config)  # type: ignore[call-arg]  # with_parameters adds the shared settings
        return True

    def step(self) -> dict[str, Any]:
        """Train and evaluate a rung, or train until the next progress report to :class:`TuneScheduler`."""
        if self.has_checkpoint and _drain_watch().is_draining():
            return _as_result(NODE_GOES)
        try:
            with self.heartbeat or contextlib.nullcontext():
                result = next(self.results)
            if isinstance(result, RungResult):
                self.save_weights(result)
        # A result instead of an exception keeps the actor for the next trial and delivers the reason in full.
        except TrialDivergedError as error:
            return {"failure": str(error), "diverged": True, "done": True}
        except Exception as error:
            if is_of_storage(error):
                return _as_result(Loss(Blame.STORAGE, " ".join(str(error).split())))
            if isinstance(error, InputError):
                return {"failure": str(error), "done": True}
            raise
        if isinstance(result, ScoredRung):
            return {"scored": json.dumps(dataclasses.asdict(result), allow_nan=False), "done": True}
        if isinstance(result, RungProgress):
            if self.has_checkpoint:
                return _as_result(NODE_GOES)
            self.log(result)
            return {"progress": json.dumps(dataclasses.asdict(result))}
        self.has_checkpoint = True
        done = result.step == self.task.num_rungs or bool(result.stop)
        # As text, because Tune flattens and rewrites nested results.
        return {"rung": json.dumps(self.as_event(result), allow_nan=False), "done": done}

    def as_event(self, result: RungResult) -> dict[str, Any]:
        """Return the rung in the form of a ledger event, without the trial."""
        rung = {
            "step": result.step,
            "examples_seen": result.examples_seen,
            "seconds": result.seconds,
            "loss": result.loss,
            "stop": result.stop,
            "points": self.bench.describe(self.bench.dev, result.points),
            "node": dataclasses.asdict(_this_node()),
        }
        if result.calibration is not None:
            rung["calibration"] = calibration_values(result.calibration)
        if result.labeled:
            rung["labeled"] = self.bench.describe(self.bench.dev, result.labeled)
        return rung

    def note_whether_to_leave(self) -> bool:
        """Return whether the trial must leave its node.

        Called within a rung before each progress report; a trial that must leave writes a checkpoint first.
        """
        self.has_checkpoint = _drain_watch().is_draining()
        return self.has_checkpoint

    def log(self, progress: RungProgress) -> None:
        """Print the trial's progress every LOG_SECONDS; an actor's output goes to the run's log."""
        now = time.monotonic()
        if now - self.logged_at >= LOG_SECONDS:
            self.logged_at = now
            print(f"trial {self.task.assignment.number}: {describe_progress([progress])}", flush=True)

    def save_weights(self, result: RungResult) -> None:
        """Store the rung's weights and scores in the run's folder."""
        run, trial, step = self.task.sweep.run, self.task.assignment.number, result.step
        keep_scores(run, "dev", trial, step, result.points)
        name = point_folder(trial, step)
        save_point(run.path / name, self.bench.model, self.bench.head, self.reading(result))
        run.store(name)
        run.let_go(name)

    def reading(self, result: RungResult) -> Reading | None:
        """Return the sentences that the rung's points retrieve on dev, or None if another split is shown."""
        if self.bench.shown_split != "dev":
            return None
        points = result.points
        if any(scores.retrieved is None for scores in points.values()):  # restored from a checkpoint, which lacks them
            points = self.bench.measure(self.bench.dev, list(points))
        trial = self.task.assignment.number
        return self.bench.dev.reading({(trial, result.step, *key): scores for key, scores in points.items()})


@functools.cache
def _this_node() -> Node:
    """Return this process's node: its type in the cluster file and its resources."""
    node_id = ray.get_runtime_context().get_node_id()
    present: dict[str, Any] = next((node for node in ray.nodes() if node["NodeID"] == node_id), {})
    resources = present.get("Resources", {})
    return Node(node_type(present), resources.get("CPU", 0.0), resources.get("GPU", 0.0))


class SweepStoppedError(BaseException):
    """Signal that the sweep cannot continue, because of ``error``.

    Not an Exception, because Tune would attribute that to a trial and continue.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@contextlib.contextmanager
def _ends_the_sweep() -> Iterator[None]:
    """Let errors of the sweep itself end Tune's loop."""
    try:
        yield
    except Exception as error:
        raise SweepStoppedError(error) from None


class _NotInSnapshots:
    """Mixin that keeps the sweep out of Tune's snapshots.

    Tune pickles its searcher and scheduler into snapshots that nothing reads.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {}


class TuneSearcher(_NotInSnapshots, Searcher):
    """Searcher that hands the sweep's next trial to Tune; each Tune trial is one assignment to a worker.

    Once the sweep has no more trials and no worker is busy, the rungs of its front follow, to be scored on test.
    """

    def __init__(self, sweep: Sweep, scores: FrontScores, request_handler: RequestHandler) -> None:
        super().__init__()
        self._sweep = sweep
        self._scores = scores
        self._request_handler = request_handler

    @_ends_the_sweep()
    @uninterrupted()
    def suggest(self, trial_id: str) -> Any:
        self._request_handler.serve()  # also here: while nothing runs, e.g. when paused, Tune only calls suggest
        if self._sweep.steering.is_paused:
            return None
        if self._scores.have_begun:
            return self._rung_to_score()
        was_paused = self._sweep.is_paused
        asked = self._sweep.ask()
        if asked is None:
            # The result of a running trial may still make another one available.
            return None if self._sweep.assignments or was_paused else self._rung_to_score()
        number, config = asked
        run = self._sweep.scheduler.trials[number].run
        return _as_tune_config(Assignment(number, config, run, number in self._sweep.short_of_memory))

    def _rung_to_score(self) -> Any:
        self._sweep.is_over = True
        rung = None if self._sweep.is_paused else self._scores.next()
        if rung is None:
            return None if self._sweep.is_paused or self._scores.are_under_way else Searcher.FINISHED
        return _as_tune_config(rung)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Do nothing: the scheduler receives more detail and reports that a trial left its worker."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the ledger already holds the search's state."""

    def restore(self, checkpoint_path: str) -> None:
        raise RuntimeError("Tune's snapshots are not read back")


class TuneScheduler(_NotInSnapshots, FIFOScheduler):
    """Scheduler that passes rungs, endings and test scores to the sweep, and the sweep's decisions to Tune."""

    def __init__(self, sweep: Sweep, scores: FrontScores, watch: "_Watch") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sweep = sweep
        self._scores = scores
        self._watch = watch

    @_ends_the_sweep()
    @uninterrupted()
    def on_trial_result(self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]) -> str:
        if "progress" in result:
            leaves = self._sweep.take_progress(_number(trial), RungProgress(**json.loads(result["progress"])))
            return TrialScheduler.STOP if leaves else TrialScheduler.CONTINUE
        leaves = self._sweep.rung(_number(trial), json.loads(result["rung"]))
        return TrialScheduler.STOP if leaves else TrialScheduler.CONTINUE

    @_ends_the_sweep()
    @uninterrupted()
    def on_trial_complete(self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]) -> None:
        job = _job(trial.config)
        if isinstance(job, FrontRung):
            self._take_scores(job, result)
            return
        if "rung" in result:  # Tune passes a trial's last result here, not to on_trial_result
            self._sweep.rung(_number(trial), json.loads(result["rung"]))
        if loss := _loss_in(result):
            self._sweep.lose(_number(trial), loss)
        else:
            self._sweep.rest(_number(trial), failure=result.get("failure"), diverged="diverged" in result)

    def _take_scores(self, rung: FrontRung, result: dict[str, Any]) -> None:
        if loss := _loss_in(result):
            self._scores.lose(rung, loss)
        elif failure := result.get("failure"):
            self._scores.fail(rung, failure)
        else:
            self._scores.take(rung, ScoredRung(**json.loads(result["scored"])))

    @_ends_the_sweep()
    @uninterrupted()
    def on_trial_error(self, tune_controller: Any, trial: TuneTrial) -> None:
        job, error = _job(trial.config), self._watch.error_of(trial)
        if isinstance(job, FrontRung):
            if error.is_raised:
                self._scores.fail(job, error.exception)
            else:
                self._scores.lose(job, error.loss)
        elif error.is_raised:
            self._sweep.rest(job.number, failure=error.exception, traceback=error.text[-MAX_TRACEBACK_CHARACTERS:])
        else:
            self._sweep.lose(job.number, error.loss)

    @_ends_the_sweep()
    def on_trial_remove(self, tune_controller: Any, trial: TuneTrial) -> None:
        job = _job(trial.config)
        if isinstance(job, FrontRung):
            self._scores.fail(job, REMOVED)
        else:
            self._sweep.rest(job.number, failure=REMOVED)


class _Watch(_NotInSnapshots, tune.Callback):
    """Callback that tracks worker assignments, kills hanging trials and updates the status line."""

    def __init__(self, sweep: Sweep, scores: FrontScores, request_handler: RequestHandler, listener: Listener) -> None:
        self._begun: set[str] = set()  # Tune's ids of the trials that reached a worker
        self._reasons: dict[str, str] = {}  # why trials were killed
        self._killed_at: dict[str, float] = {}
        self._sweep = sweep
        self._scores = scores
        self._request_handler = request_handler
        self._heartbeat_watch = HeartbeatWatch(listener)
        self._frozen = FrozenWatch()
        self._waiting = WaitingWatch(lambda text: sweep.display.line(f"search: {text}"))
        self._moved_at = time.monotonic()  # when a trial was last on a worker

    @_ends_the_sweep()
    def on_trial_start(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self._begun.add(trial.trial_id)
        job = _job(trial.config)
        if isinstance(job, Assignment):
            self._sweep.place(job.number)

    def error_of(self, trial: TuneTrial) -> "_Error":
        """Return the error with which Tune lost a trial."""
        text = Path(trial.error_file).read_text(encoding="utf-8") if trial.error_file else ""
        without_colors = re.sub(r"\x1b\[\d+m", "", text)
        _, _, noted = without_colors.partition("\n")  # the first line is Tune's failure count
        return _Error(noted.strip(), trial.trial_id in self._begun, self._reasons.get(trial.trial_id))

    @_ends_the_sweep()
    def on_step_end(self, iteration: int, trials: list[TuneTrial], **info: Any) -> None:
        self._serve()
        self._scores.show()
        self._sweep.count_nodes()
        statuses = {trial.status for trial in trials if trial.status in (TuneTrial.RUNNING, TuneTrial.PENDING)}
        if statuses == {TuneTrial.PENDING}:
            self._waiting.check(time.monotonic() - self._moved_at)
        else:
            self._moved_at = time.monotonic()
            self._waiting.moved()
        silences = self._heartbeat_watch.silences()
        if not silences:
            return
        running = {trial.trial_id: trial for trial in trials if trial.status == TuneTrial.RUNNING}
        for trial_id, silence in silences.items():
            since_kill = time.monotonic() - self._killed_at.get(trial_id, -math.inf)
            if trial_id in running and since_kill > KILL_AGAIN_SECONDS:
                self._check(running[trial_id], silence)

    @uninterrupted()
    def _serve(self) -> None:
        self._request_handler.serve()

    def _check(self, trial: TuneTrial, silence: Silence) -> None:
        """Kill the process of a trial that is silent or takes too long for its rung."""
        reason = None
        if self._is_lost(silence):
            reason = f"it gave no sign of life for {silence.seconds:.0f} s, and was killed"
        job = _job(trial.config)
        if isinstance(job, Assignment):
            reason = reason or self._sweep.overdue(job.number)
        if reason:
            self._reasons[trial.trial_id] = reason
            self._killed_at[trial.trial_id] = time.monotonic()
            kill(silence.record)

    def _is_lost(self, silence: Silence) -> bool:
        """Return whether a process is lost.

        A loading process may be silent for longer, unless it is frozen.
        """
        limit = self._sweep.config.resources.silent_seconds
        if silence.seconds <= limit:
            return False
        if not silence.record.is_loading or silence.seconds > LOADING_SILENCES * limit:
            return True
        return self._frozen.is_frozen(silence.record)


def _number(trial: TuneTrial) -> int:
    """Return the sweep's number of a Tune trial."""
    job = _job(trial.config)
    assert isinstance(job, Assignment)
    return job.number


@dataclass(frozen=True)
class _Error:
    """Tune's record of a lost trial: the exception that the trial raised, or Ray's message about a dead actor."""

    text: str
    had_begun: bool  # False if its actor had died before the trial started
    reason: str | None  # why its process was killed

    @property
    def is_raised(self) -> bool:
        """Return whether the trial itself raised the error.

        Only such errors start with the name of the actor's method.
        """
        return self.text.startswith("ray::")

    @property
    def exception(self) -> str:
        """Return the raised exception, or the last line of Ray's message, which has the details."""
        if self.is_raised:
            return exception_line(self.text)
        return self.text.rstrip().splitlines()[-1].strip() if self.text.strip() else "Ray does not say why"

    @property
    def loss(self) -> Loss:
        """Return why the actor was lost."""
        if self.reason is not None:
            return Loss(Blame.PROCESS, self.reason)
        if not self.had_begun and CREATION not in self.text:
            return Loss(Blame.NODE, "the process that was to run it had died")
        if SHORT_OF_MEMORY in self.text:
            reason = "its node ran low on memory, and its process was killed"
            return Loss(Blame.PROCESS, reason, needs_memory=True)
        if NODE_DIED in self.text:
            return Loss(Blame.NODE, f"its node went away: {self.exception}")
        return Loss(Blame.PROCESS, f"its process died: {self.exception}")


def _name(trial: TuneTrial) -> str:
    job = _job(trial.config)
    if isinstance(job, FrontRung):
        return f"test-{point_name(job.trial, job.step)}-{trial.trial_id}"
    return f"trial-{job.number:04d}-{trial.trial_id}"


def search(sweep: Sweep, bench: WorkbenchSpec, actor: type[TrialActor] = TrialActor, *, has_test: bool = False) -> None:
    """Run the sweep's trials and score its front on the test split, if there is one.

    The trials run until none are left or the budget is spent. On KeyboardInterrupt, finished rungs and scores remain in
    the ledger.
    """
    config = sweep.config
    request = bench.request
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # raysweep handles Ctrl-C; Tune's handler would save pickles first
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"  # the ledger has every result
    os.environ["TUNE_GLOBAL_CHECKPOINT_S"] = NEVER_SECONDS  # its snapshots are never read
    os.environ["RAY_TRAIN_COUNT_PREEMPTION_AS_FAILURE"] = "1"  # otherwise Tune would restart such a trial as well
    listener = listen(config.resources.silent_seconds)
    task = SweepTask(bench, config.budget, sweep.run, config.seed, config.resources.checkpoint_seconds, listener)
    scores = FrontScores(sweep, has_test=has_test)
    request_queue = RequestQueue(sweep.run)
    inbox = Inbox()
    request_handler = RequestHandler(sweep, request_queue, inbox.take)
    watch = _Watch(sweep, scores, request_handler, listener)
    # Private to this process, so that no file of Tune's is read from where others may write.
    snapshots = tempfile.TemporaryDirectory(prefix="tune-", dir=process_folder())
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(actor, sweep=task), request.resources),
        tune_config=tune.TuneConfig(
            num_samples=-1,  # the sweep decides when it is over
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
            callbacks=[watch],
            failure_config=tune.FailureConfig(max_failures=0),
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
        ),
    )
    with snapshots, watched(request_queue, inbox), sweep.display.live():
        try:
            tuner.fit()
        except BaseException as error:
            if address_of(config.resources):  # the cluster outlives this process, and trials would keep running
                kill_all(listener)
            if isinstance(error, SweepStoppedError):
                raise error.error from None
            raise
