"""The sweep on Ray Tune: thin adapters between Tune's trials and :class:`raysweep.controller.sweep.Sweep`, which decides.

Tune places trials, reuses their actors and notices when one dies. It begins none again: a trial that lost its worker goes
back to the sweep, which hands it out anew. Tune's snapshots lie in a folder of this process and are never read back. When
the search is over, the actors score the front on test: to Tune that is one more trial for each rung.
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
from raysweep.control.mailbox import Inbox, Mailbox, watched
from raysweep.controller.failures import Blame, Loss
from raysweep.controller.front_scores import FrontRung, FrontScores, ScoredRung
from raysweep.controller.request_desk import RequestDesk
from raysweep.controller.status import describe_progress
from raysweep.controller.sweep import Sweep
from raysweep.errors import InputError, exception_line
from raysweep.evaluation.evaluation_set import TrialDivergedError
from raysweep.ray_tune.heartbeat import FrozenWatch, Listener, Pulse, PulseWatch, Silence, kill, kill_all, listen
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

PROGRESS_SECONDS = 5.0  # within a rung, between two reports of how far it is
LOG_SECONDS = 60.0  # between two such lines of one trial in the log
MAX_TRACEBACK_CHARACTERS = 10_000
LOADING_SILENCES = 10  # a process that loads its libraries may be silent so many times as long as others
KILL_AGAIN_SECONDS = 30.0
NEVER_SECONDS = "1e9"  # between two snapshots of Tune's; it takes one at the beginning and one at the end all the same
NODE_GOES = Loss(Blame.NODE, "its node is about to go away")
REMOVED = "removed before it began"
NODE_DIED = "its node has died"  # in what Ray says of an actor
SHORT_OF_MEMORY = "running low on memory"  # the same, of processes that Ray itself has killed
CREATION = "in its creation task"  # the same, where the actor could not be made


@dataclass(frozen=True)
class SweepTask:
    """What all trials of a sweep are told alike."""

    bench: WorkbenchSpec
    budget: BudgetConfig
    run: Folder
    seed: int
    checkpoint_seconds: float
    listener: Listener | None = None  # that hears signs of life; none are given without one


@dataclass(frozen=True)
class Leg:
    """A trial's time on one worker, as Tune keeps it to the end of the sweep: no more than tells it from others.

    ``run`` counts a configuration's replicates from 1. With ``recomputes`` it is to do with less memory, as a process of
    this session was killed for want of it.
    """

    number: int
    config: TrialConfig
    run: int
    recomputes: bool = False


@dataclass(frozen=True)
class TrialTask:
    """What the actor that runs a trial goes by."""

    sweep: SweepTask
    leg: Leg

    @property
    def num_rungs(self) -> int:
        return self.sweep.budget.rungs_of(self.leg.config.examples_per_rung)

    @property
    def trial_seed(self) -> int:
        return trial_seed(self.sweep.seed, self.leg.config, self.leg.run)

    @property
    def checkpoints(self) -> Folder:
        return self.sweep.run.within(checkpoint_folder(self.leg.number))


def _do_nothing() -> None:
    """For trials that nobody listens to."""


@functools.cache
def _pulse() -> Pulse:
    """This process's."""
    return Pulse()


@functools.cache
def _drain_watch() -> DrainWatch:
    """This process's."""
    watch_for_notices()
    return DrainWatch()


def _keep_up_while_storage_waits(pulse: Pulse, run: Folder) -> None:
    """A trial that waits for an object store is alive."""

    def wait(reason: str) -> None:
        pulse.sign()
        print(reason, flush=True)

    if isinstance(run, BucketFolder):
        run.bucket.on_wait = wait


def _as_tune_config(job: Leg | FrontRung) -> dict[str, Any]:
    """What Tune takes for a trial's configuration. It copies it several times, and pickles it into its snapshots."""
    return {"job": job}


def _job(tune_config: dict[str, Any]) -> Leg | FrontRung:
    """What Tune hands back as a trial's configuration: a trial to run, or a rung to score on test."""
    job: Leg | FrontRung = tune_config["job"]
    return job


def _as_result(loss: Loss) -> dict[str, Any]:
    """What Tune takes for the last result of a trial that cannot stay."""
    return {"blame": loss.blame.value, "reason": loss.reason, "done": True}


def _loss_in(result: dict[str, Any]) -> Loss | None:
    """The loss in what Tune hands back as a trial's last result."""
    return Loss(Blame(result["blame"]), result["reason"]) if "blame" in result else None


class TrialActor(tune.Trainable):
    """A trial's time on one worker, from its start or from where it was left: a Tune step is a rung, or a part of one.

    Or the scoring of a rung of the front on the test split, which is one step.
    """

    def setup(self, config: dict[str, Any], sweep: SweepTask) -> None:  # type: ignore[override]  # by with_parameters
        """Make ready for a trial; Tune calls it again for each trial that a reused actor takes."""
        job = _job(config)
        self.logged_at = time.monotonic()
        self.has_checkpoint = True  # of all that it has done, which is nothing yet
        listener = sweep.listener
        self.pulse = None if listener is None else _pulse()
        if self.pulse is not None and listener is not None:
            self.pulse.begin(self.trial_id, listener)
            _keep_up_while_storage_waits(self.pulse, sweep.run)
        self.results: Iterator[RungResult | RungProgress | ScoredRung]
        if isinstance(job, FrontRung):
            self.results = self._test_scores(sweep, job)
        else:
            self.task = TrialTask(sweep, job)
            self.results = self._rungs()

    def _rungs(self) -> Iterator[RungResult | RungProgress]:
        """The trial, of which nothing happens before the first step: what goes wrong there is told in full."""
        self._open_bench(self.task.sweep)
        yield from rungs_and_progress(
            self.task.leg.config,
            self.bench,
            Intervals(self.task.sweep.checkpoint_seconds, PROGRESS_SECONDS),
            seed=self.task.trial_seed,
            num_rungs=self.task.num_rungs,
            checkpoints=self.task.checkpoints,
            on_rest=_do_nothing if self.pulse is None else self.pulse.rest,
            leaves=self.note_whether_to_leave,
            recomputes=self.task.leg.recomputes,
        )

    def _test_scores(self, sweep: SweepTask, rung: FrontRung) -> Iterator[ScoredRung]:
        """The scores of a rung on test, of which nothing happens before they are asked for."""
        self._open_bench(sweep)
        yield score_on_test(self.bench, sweep.run, rung)

    def _open_bench(self, sweep: SweepTask) -> None:
        self.bench = open_workbench(sweep.bench)
        if self.pulse is not None:
            self.pulse.follow(self.bench.model)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        if _drain_watch().is_draining():
            os._exit(0)  # its node goes away: Tune begins this trial in another process
        self.setup(new_config)  # type: ignore[call-arg]  # with_parameters adds what the sweep's trials are told alike
        return True

    def step(self) -> dict[str, Any]:
        """Train and evaluate a rung, or train until it is time to say how far it is, for :class:`TuneScheduler`."""
        if self.has_checkpoint and _drain_watch().is_draining():
            return _as_result(NODE_GOES)
        try:
            with self.pulse or contextlib.nullcontext():
                result = next(self.results)
            if isinstance(result, RungResult):
                self.save_weights(result)
        # A result and no exception: the actor is sound and takes the next trial, and the reason arrives in full.
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
        # As text: Tune flattens and rewrites what is nested.
        return {"rung": json.dumps(self.as_event(result), allow_nan=False), "done": done}

    def as_event(self, result: RungResult) -> dict[str, Any]:
        """The rung as a ledger's event holds it, without the trial."""
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
        if result.labelled:
            rung["labelled"] = self.bench.describe(self.bench.dev, result.labelled)
        return rung

    def note_whether_to_leave(self) -> bool:
        """Asked within a rung before the trial says how far it is; where it is to leave, it has a checkpoint then."""
        self.has_checkpoint = _drain_watch().is_draining()
        return self.has_checkpoint

    def log(self, progress: RungProgress) -> None:
        """Print now and then how far the trial is; what actors print goes into the run's log."""
        now = time.monotonic()
        if now - self.logged_at >= LOG_SECONDS:
            self.logged_at = now
            print(f"trial {self.task.leg.number}: {describe_progress([progress])}", flush=True)

    def save_weights(self, result: RungResult) -> None:
        """Keep the rung's weights and scores in the run's folder."""
        run, trial, step = self.task.sweep.run, self.task.leg.number, result.step
        keep_scores(run, "dev", trial, step, result.points)
        name = point_folder(trial, step)
        save_point(run.path / name, self.bench.model, self.bench.head, self.reading(result))
        run.store(name)
        run.let_go(name)

    def reading(self, result: RungResult) -> Reading | None:
        """What the rung's points retrieve on dev, where that is the split that is shown."""
        if self.bench.shown_split != "dev":
            return None
        points = result.points
        if any(scores.retrieved is None for scores in points.values()):  # of a checkpoint, which does not hold it
            points = self.bench.measure(self.bench.dev, list(points))
        trial = self.task.leg.number
        return self.bench.dev.reading({(trial, result.step, *key): scores for key, scores in points.items()})


@functools.cache
def _this_node() -> Node:
    """The node of this process: its type in the cluster's file, and what it has."""
    node_id = ray.get_runtime_context().get_node_id()
    present: dict[str, Any] = next((node for node in ray.nodes() if node["NodeID"] == node_id), {})
    resources = present.get("Resources", {})
    return Node(node_type(present), resources.get("CPU", 0.0), resources.get("GPU", 0.0))


class SweepStoppedError(BaseException):
    """The sweep cannot go on, because of ``error``. Tune would take an Exception for a trial's, and go on."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@contextlib.contextmanager
def _ends_the_sweep() -> Iterator[None]:
    """Within, what goes wrong in the sweep itself ends Tune's loop."""
    try:
        yield
    except Exception as error:
        raise SweepStoppedError(error) from None


class _NotInSnapshots:
    """Tune pickles its searcher and scheduler into snapshots that nothing reads; the sweep stays out of them."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class TuneSearcher(_NotInSnapshots, Searcher):
    """Hands Tune the sweep's next trial: a trial of Tune's is one of ours for as long as it is on a worker.

    When the sweep has no more, and no worker is busy, the rungs of its front follow, to be scored.
    """

    def __init__(self, sweep: Sweep, scores: FrontScores, desk: RequestDesk) -> None:
        super().__init__()
        self._sweep = sweep
        self._scores = scores
        self._desk = desk

    @_ends_the_sweep()
    @uninterrupted()
    def suggest(self, trial_id: str) -> Any:
        self._desk.serve()  # here too: while nothing runs, as where the sweep is paused, Tune does nothing but ask
        if self._sweep.steering.is_paused:
            return None
        if self._scores.have_begun:
            return self._rung_to_score()
        was_paused = self._sweep.is_paused
        asked = self._sweep.ask()
        if asked is None:
            # While trials run, one of them may still lead to another.
            return None if self._sweep.assignments or was_paused else self._rung_to_score()
        number, config = asked
        run = self._sweep.scheduler.trials[number].run
        return _as_tune_config(Leg(number, config, run, number in self._sweep.short_of_memory))

    def _rung_to_score(self) -> Any:
        self._sweep.is_over = True
        rung = None if self._sweep.is_paused else self._scores.next()
        if rung is None:
            return None if self._sweep.is_paused or self._scores.are_under_way else Searcher.FINISHED
        return _as_tune_config(rung)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Do nothing: the scheduler, which is told more, passes on that a trial left its worker."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the ledger holds all there is to keep."""

    def restore(self, checkpoint_path: str) -> None:
        raise RuntimeError("Tune's snapshots are not read back")


class TuneScheduler(_NotInSnapshots, FIFOScheduler):
    """Passes rungs and endings to the sweep, and its decisions to Tune; and scores on test to where they are kept."""

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
        if "rung" in result:  # a trial's last result comes here and not to on_trial_result
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
    """Sees to trials between Tune's steps: those that got a worker, those that hang; and to the status line."""

    def __init__(self, sweep: Sweep, scores: FrontScores, desk: RequestDesk, listener: Listener) -> None:
        self._begun: set[str] = set()  # trials that have come to a worker, by Tune's ids
        self._reasons: dict[str, str] = {}  # for which trials were killed
        self._killed_at: dict[str, float] = {}
        self._sweep = sweep
        self._scores = scores
        self._desk = desk
        self._pulses = PulseWatch(listener)
        self._frozen = FrozenWatch()
        self._waiting = WaitingWatch(lambda text: sweep.display.line(f"search: {text}"))
        self._moved_at = time.monotonic()  # when a trial was last on a worker

    @_ends_the_sweep()
    def on_trial_start(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self._begun.add(trial.trial_id)
        job = _job(trial.config)
        if isinstance(job, Leg):
            self._sweep.place(job.number)

    def error_of(self, trial: TuneTrial) -> "_Error":
        """Why Tune lost a trial."""
        text = Path(trial.error_file).read_text(encoding="utf-8") if trial.error_file else ""
        without_colours = re.sub(r"\x1b\[\d+m", "", text)
        _, _, noted = without_colours.partition("\n")  # the first line counts Tune's failures
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
        silences = self._pulses.silences()
        if not silences:
            return
        running = {trial.trial_id: trial for trial in trials if trial.status == TuneTrial.RUNNING}
        for trial_id, silence in silences.items():
            since_kill = time.monotonic() - self._killed_at.get(trial_id, -math.inf)
            if trial_id in running and since_kill > KILL_AGAIN_SECONDS:
                self._check(running[trial_id], silence)

    @uninterrupted()
    def _serve(self) -> None:
        self._desk.serve()

    def _check(self, trial: TuneTrial, silence: Silence) -> None:
        """Kill the process of a trial that is silent, or takes too long for its rung."""
        reason = None
        if self._is_lost(silence):
            reason = f"it gave no sign of life for {silence.seconds:.0f} s, and was killed"
        job = _job(trial.config)
        if isinstance(job, Leg):
            reason = reason or self._sweep.overdue(job.number)
        if reason:
            self._reasons[trial.trial_id] = reason
            self._killed_at[trial.trial_id] = time.monotonic()
            kill(silence.beat)

    def _is_lost(self, silence: Silence) -> bool:
        """Whether nothing is to be expected of a process. One that loads may be silent for longer, unless it is frozen."""
        limit = self._sweep.config.resources.silent_seconds
        if silence.seconds <= limit:
            return False
        if not silence.beat.is_loading or silence.seconds > LOADING_SILENCES * limit:
            return True
        return self._frozen.is_frozen(silence.beat)


def _number(trial: TuneTrial) -> int:
    """The number by which the sweep knows a trial of Tune's."""
    job = _job(trial.config)
    assert isinstance(job, Leg)
    return job.number


@dataclass(frozen=True)
class _Error:
    """What Tune noted when it lost a trial: what the trial raised, or what Ray says of an actor that is gone."""

    text: str
    had_begun: bool  # or was still to begin, in an actor that had died before
    reason: str | None  # for which its process was killed

    @property
    def is_raised(self) -> bool:
        """Whether the trial itself raised it: only then does it begin with the name of the actor's method."""
        return self.text.startswith("ray::")

    @property
    def exception(self) -> str:
        """Of what the trial raised, the exception itself; of what Ray says the last line, which has the details."""
        if self.is_raised:
            return exception_line(self.text)
        return self.text.rstrip().splitlines()[-1].strip() if self.text.strip() else "Ray does not say why"

    @property
    def loss(self) -> Loss:
        """Why the actor is gone."""
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
    """Run the sweep's trials until it has no more or its budget is spent; then score its front, where there is a test split.

    KeyboardInterrupt leaves finished rungs, and scores, in the ledger.
    """
    config = sweep.config
    request = bench.request
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # Ctrl-C is ours to handle: Tune's own handler saves pickles first
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"  # the ledger has every result
    os.environ["TUNE_GLOBAL_CHECKPOINT_S"] = NEVER_SECONDS  # its snapshots of all trials are never read
    os.environ["RAY_TRAIN_COUNT_PREEMPTION_AS_FAILURE"] = "1"  # or Tune too would begin such a trial again
    listener = listen(config.resources.silent_seconds)
    task = SweepTask(bench, config.budget, sweep.run, config.seed, config.resources.checkpoint_seconds, listener)
    scores = FrontScores(sweep, has_test=has_test)
    mailbox = Mailbox(sweep.run)
    inbox = Inbox()
    desk = RequestDesk(sweep, mailbox, inbox.take)
    watch = _Watch(sweep, scores, desk, listener)
    # Of this process alone: no file of Tune's is ever read from where others may write.
    snapshots = tempfile.TemporaryDirectory(prefix="tune-", dir=process_folder())
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(actor, sweep=task), request.resources),
        tune_config=tune.TuneConfig(
            num_samples=-1,  # the sweep says when it is over
            search_alg=TuneSearcher(sweep, scores, desk),
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
    with snapshots, watched(mailbox, inbox), sweep.display.live():
        try:
            tuner.fit()
        except BaseException as error:
            if address_of(config.resources):  # that goes on without this process, as trials would for a while yet
                kill_all(listener)
            if isinstance(error, SweepStoppedError):
                raise error.error from None
            raise
