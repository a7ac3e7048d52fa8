"""The sweep on Ray Tune: thin adapters between Tune's trials and :class:`raysweep.sweep.sweep.Sweep`, which decides.

Tune places trials, reuses their actors and notices when one dies; its own snapshots are never read back. When the search is
over, the actors score the front on the test split: to Tune that is one more trial for each rung.
"""

import contextlib
import dataclasses
import functools
import json
import os
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

from raysweep.config.sweep import BudgetConfig
from raysweep.config.trial import TrialConfig
from raysweep.errors import InputError
from raysweep.evaluation.evaluation_set import TrialDivergedError
from raysweep.results.ledger import checkpoint_folder, point_folder, point_name
from raysweep.results.types import LOCAL, Node, RungProgress
from raysweep.runner.workers import WorkbenchSpec, open_workbench, score_on_test
from raysweep.storage.bucket import StorageError
from raysweep.storage.folder import Folder
from raysweep.sweep.front_scores import FrontRung, FrontScores
from raysweep.sweep.status import describe_progress
from raysweep.sweep.sweep import Sweep
from raysweep.terminal import uninterrupted
from raysweep.training.trial import Intervals, rungs_and_progress, trial_seed
from raysweep.training.weights import save_point
from raysweep.training.workbench import RungResult

PROGRESS_SECONDS = 5.0  # within a rung, between two reports of how far it is
LOG_SECONDS = 60.0  # between two such lines of one trial in the log
NOT_STARTED = "its process could not be started"
REMOVED = "removed before it began"


@dataclass(frozen=True)
class SweepTask:
    """What all trials of a sweep are told alike."""

    bench: WorkbenchSpec
    budget: BudgetConfig
    run: Folder
    seed: int
    checkpoint_seconds: float


@dataclass(frozen=True)
class TrialTask:
    """What the actor that runs a trial is told. ``run`` counts a configuration's replicates from 1."""

    sweep: SweepTask
    number: int
    config: TrialConfig
    run: int

    @property
    def num_rungs(self) -> int:
        return self.sweep.budget.rungs_of(self.config.examples_per_rung)

    @property
    def trial_seed(self) -> int:
        return trial_seed(self.sweep.seed, self.config, self.run)

    @property
    def checkpoints(self) -> Folder:
        return self.sweep.run.within(checkpoint_folder(self.number))


@dataclass(frozen=True)
class ScoreTask:
    """What the actor that scores a rung of the front on the test split is told."""

    sweep: SweepTask
    rung: FrontRung

    def results(self) -> Iterator["ScoredRung"]:
        """The rung's scores, of which nothing happens before they are asked for."""
        bench = open_workbench(self.sweep.bench)
        yield ScoredRung(score_on_test(bench, self.sweep.run, self.rung))


@dataclass(frozen=True)
class ScoredRung:
    """A rung's points on the test split, as an event holds them."""

    points: list[dict[str, Any]]


def _as_tune_config(task: TrialTask | ScoreTask) -> dict[str, Any]:
    """What Tune takes for a trial's configuration."""
    return {"task": task}


def _task(tune_config: dict[str, Any]) -> TrialTask | ScoreTask:
    """The task in what Tune hands back as a trial's configuration."""
    task: TrialTask | ScoreTask = tune_config["task"]
    return task


class TrialActor(tune.Trainable):
    """A trial's time on one worker, from its start or from where it was left: a Tune step is a rung, or a part of one.

    Or the scoring of a rung of the front on the test split, which is one step.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Make ready for a trial; Tune calls it again for each trial that a reused actor takes."""
        task = _task(config)
        self.logged_at = time.monotonic()
        self.results: Iterator[RungResult | RungProgress | ScoredRung]
        if isinstance(task, ScoreTask):
            self.results = task.results()
        else:
            self.task = task
            self.results = self._rungs()

    def _rungs(self) -> Iterator[RungResult | RungProgress]:
        """The trial, of which nothing happens before the first step: what goes wrong there is told in full."""
        self.bench = open_workbench(self.task.sweep.bench)
        yield from rungs_and_progress(
            self.task.config,
            self.bench,
            Intervals(self.task.sweep.checkpoint_seconds, PROGRESS_SECONDS),
            seed=self.task.trial_seed,
            num_rungs=self.task.num_rungs,
            checkpoints=self.task.checkpoints,
        )

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train and evaluate a rung, or train until it is time to say how far it is, for :class:`TuneScheduler`."""
        try:
            result = next(self.results)
        except StorageError:  # which may pass: the trial is begun again, and goes on from its checkpoint
            raise
        except (TrialDivergedError, InputError) as error:
            # A result and no exception: the actor is sound and takes the next trial, and the reason arrives in full.
            return {"failure": str(error), "done": True}
        if isinstance(result, ScoredRung):
            return {"points": json.dumps(result.points, allow_nan=False), "done": True}
        if isinstance(result, RungProgress):
            self.log(result)
            return {"progress": json.dumps(dataclasses.asdict(result))}
        self.save_weights(result)
        rung = {
            "step": result.step,
            "examples_seen": result.examples_seen,
            "seconds": result.seconds,
            "loss": result.loss,
            "stop": result.stop,
            "points": self.bench.describe(self.bench.dev, result.points),
            "node": dataclasses.asdict(_this_node()),
        }
        done = result.step == self.task.num_rungs or bool(result.stop)
        # As text: Tune flattens and rewrites what is nested.
        return {"rung": json.dumps(rung, allow_nan=False), "done": done}

    def log(self, progress: RungProgress) -> None:
        """Print now and then how far the trial is; what actors print goes into the run's log."""
        now = time.monotonic()
        if now - self.logged_at >= LOG_SECONDS:
            self.logged_at = now
            print(f"trial {self.task.number}: {describe_progress([progress])}", flush=True)

    def save_weights(self, result: RungResult) -> None:
        """Keep the rung's weights and scores in the run's folder."""
        run, name = self.task.sweep.run, point_folder(self.task.number, result.step)
        save_point(run.path / name, self.bench.model, self.bench.head, result.points)
        run.store(name)
        run.let_go(name)


@functools.cache
def _this_node() -> Node:
    """The node of this process: its type in the cluster's file, and what it has."""
    node_id = ray.get_runtime_context().get_node_id()
    present: dict[str, Any] = next((node for node in ray.nodes() if node["NodeID"] == node_id), {})
    labels, resources = present.get("Labels", {}), present.get("Resources", {})
    kind = labels.get("ray.io/node-group") or labels.get("ray.io/node-type") or LOCAL
    return Node(kind, resources.get("CPU", 0.0), resources.get("GPU", 0.0))


class SweepStoppedError(BaseException):
    """The sweep cannot go on. Tune would take an Exception for a trial's, and begin the trial again."""


@contextlib.contextmanager
def _ends_the_sweep() -> Iterator[None]:
    """Within, what the sweep itself cannot store ends Tune's loop."""
    try:
        yield
    except InputError as error:
        raise SweepStoppedError(str(error)) from None


class _NotInSnapshots:
    """Tune pickles its searcher and scheduler into snapshots that nothing reads; the sweep stays out of them."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class TuneSearcher(_NotInSnapshots, Searcher):
    """Hands Tune the sweep's next trial: a trial of Tune's is one of ours for as long as it is on a worker.

    When the sweep has no more, and no worker is busy, the rungs of its front follow, to be scored.
    """

    def __init__(self, sweep: Sweep, scores: FrontScores, task: SweepTask) -> None:
        super().__init__()
        self._sweep = sweep
        self._scores = scores
        self._task = task
        self._on_workers: dict[str, int | FrontRung] = {}  # numbers of our trials, and rungs, by Tune's id

    @_ends_the_sweep()
    @uninterrupted()
    def suggest(self, trial_id: str) -> Any:
        if self._scores.have_begun:
            return self._rung_to_score(trial_id)
        asked = self._sweep.ask()
        if asked is None:
            # While trials run, one of them may still lead to another.
            return None if self._sweep.assignments else self._rung_to_score(trial_id)
        number, config = asked
        self._on_workers[trial_id] = number
        run = self._sweep.scheduler.trials[number].run
        return _as_tune_config(TrialTask(self._task, number, config, run))

    def _rung_to_score(self, trial_id: str) -> Any:
        rung = self._scores.next()
        if rung is None:
            return Searcher.FINISHED
        self._on_workers[trial_id] = rung
        return _as_tune_config(ScoreTask(self._task, rung))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Note that a trial left its worker.

        The scheduler, which is told the reason too, passes that on to the sweep; but not of a trial that never ran.
        """
        work = self._on_workers.pop(trial_id)
        if isinstance(work, FrontRung):
            if error:
                self._scores.fail(work, NOT_STARTED)
        elif error and work in self._sweep.assignments and work not in self._on_workers.values():
            self._sweep.rest(work, failure=NOT_STARTED)

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the ledger holds all there is to keep."""

    def restore(self, checkpoint_path: str) -> None:
        raise RuntimeError("Tune's snapshots are not read back")


class TuneScheduler(_NotInSnapshots, FIFOScheduler):
    """Passes rungs and endings to the sweep, and its decisions to Tune; and scores on test to where they are kept."""

    def __init__(self, sweep: Sweep, scores: FrontScores) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sweep = sweep
        self._scores = scores

    @_ends_the_sweep()
    @uninterrupted()
    def on_trial_result(self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]) -> str:
        if "progress" in result:
            self._sweep.take_progress(_number(trial), RungProgress(**json.loads(result["progress"])))
            return TrialScheduler.CONTINUE
        leaves = self._sweep.rung(_number(trial), json.loads(result["rung"]))
        return TrialScheduler.STOP if leaves else TrialScheduler.CONTINUE

    @_ends_the_sweep()
    @uninterrupted()
    def on_trial_complete(self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]) -> None:
        task = _task(trial.config)
        if isinstance(task, ScoreTask):
            self._take_scores(task.rung, result)
            return
        if "rung" in result:  # a trial's last result comes here and not to on_trial_result
            self._sweep.rung(_number(trial), json.loads(result["rung"]))
        self._sweep.rest(_number(trial), failure=result.get("failure"))

    def _take_scores(self, rung: FrontRung, result: dict[str, Any]) -> None:
        if failure := result.get("failure"):
            self._scores.fail(rung, failure)
        else:
            self._scores.take(rung, json.loads(result["points"]))

    @_ends_the_sweep()
    @uninterrupted()
    def on_trial_error(self, tune_controller: Any, trial: TuneTrial) -> None:
        task = _task(trial.config)
        if isinstance(task, ScoreTask):
            if not trial.should_recover():  # otherwise Tune begins it again
                self._scores.fail(task.rung, _cause(trial))
        elif trial.should_recover():  # Tune begins it again, and it finds its checkpoint
            self._sweep.take_progress(_number(trial), None)
            self._sweep.display.line(f"trial {_number(trial)}: {_cause(trial)}; it goes on from its checkpoint")
        else:
            self._sweep.rest(_number(trial), failure=_cause(trial))

    def on_trial_remove(self, tune_controller: Any, trial: TuneTrial) -> None:
        task = _task(trial.config)
        if isinstance(task, ScoreTask):
            self._scores.fail(task.rung, REMOVED)
        else:
            self._sweep.rest(task.number, failure=REMOVED)


class _Clock(_NotInSnapshots, tune.Callback):
    """Keeps the time on the status line while the front is scored."""

    def __init__(self, scores: FrontScores) -> None:
        self._scores = scores

    def on_step_end(self, iteration: int, trials: list[TuneTrial], **info: Any) -> None:
        self._scores.show()


def _number(trial: TuneTrial) -> int:
    """The number by which the sweep knows a trial of Tune's."""
    task = _task(trial.config)
    assert isinstance(task, TrialTask)
    return task.number


def _cause(trial: TuneTrial) -> str:
    """The last line of what went wrong, the exception itself; the traceback lies in Tune's folder of the trial."""
    text = Path(trial.error_file).read_text(encoding="utf-8") if trial.error_file else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "the trial's process died"


def _name(trial: TuneTrial) -> str:
    task = _task(trial.config)
    if isinstance(task, ScoreTask):
        return f"test-{point_name(task.rung.trial, task.rung.step)}-{trial.trial_id}"
    return f"trial-{task.number:04d}-{trial.trial_id}"


def search(sweep: Sweep, bench: WorkbenchSpec, actor: type[TrialActor] = TrialActor, *, has_test: bool = False) -> None:
    """Run the sweep's trials until it has no more or its budget is spent; then score its front, where there is a test split.

    KeyboardInterrupt leaves finished rungs, and scores, in the ledger.
    """
    config = sweep.config
    request = bench.request
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # Ctrl-C is ours to handle: Tune's own handler saves pickles first
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"  # the ledger has every result
    task = SweepTask(bench, config.budget, sweep.run, config.seed, config.resources.checkpoint_seconds)
    scores = FrontScores(sweep, has_test=has_test)
    tuner = tune.Tuner(
        tune.with_resources(actor, request.resources),
        tune_config=tune.TuneConfig(
            num_samples=-1,  # the sweep says when it is over
            search_alg=TuneSearcher(sweep, scores, task),
            scheduler=TuneScheduler(sweep, scores),
            max_concurrent_trials=request.count,
            reuse_actors=True,
            trial_name_creator=_name,
            trial_dirname_creator=_name,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(sweep.folder),
            verbose=0,
            callbacks=[_Clock(scores)],
            # A trial that is begun again finds its own checkpoint; Tune keeps none.
            failure_config=tune.FailureConfig(max_failures=config.resources.max_failures),
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
        ),
    )
    with sweep.display.live():
        try:
            tuner.fit()
        except SweepStoppedError as stopped:
            raise InputError(str(stopped)) from None
