"""The Tune actor that runs trials on a worker and scores the front on the test split."""

import contextlib
import dataclasses
import functools
import json
import os
import time
import traceback
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray import tune

from raysweep.cluster.heartbeat import Heartbeat, Listener
from raysweep.cluster.nodes import DrainWatch, node_type, watch_for_notices
from raysweep.config.sweep import BudgetConfig
from raysweep.config.trial import TrialConfig
from raysweep.controller.failures import Blame, Loss, RaisedError
from raysweep.controller.front_scores import AfterSearch, FrontRung, ScoredRung, UnwatchedRung
from raysweep.controller.node_health import WorkerNode
from raysweep.controller.status import describe_progress
from raysweep.errors import InputError, exception_line
from raysweep.evaluation.evaluation_set import EvaluationSet, TrialDivergedError
from raysweep.metrics.scores import WATCHED
from raysweep.ray_tune.workers import WorkbenchSpec, keep_scores, open_workbench, score_on_test
from raysweep.results.ledger import checkpoint_folder, point_folder
from raysweep.results.readings import Reading
from raysweep.results.types import Node, RungProgress, calibration_values, measure_values
from raysweep.results.watched import Watched
from raysweep.storage.failure import is_of_storage
from raysweep.storage.folder import BucketFolder, Folder
from raysweep.training.sequence_bench import SequenceBench
from raysweep.training.trial import Intervals, rungs_and_progress, trial_seed, watch_last_rung
from raysweep.training.weights import save_point
from raysweep.training.workbench import RungResult

PROGRESS_SECONDS = 5.0  # interval between progress reports during a rung
LOG_SECONDS = 60.0  # interval between a trial's progress lines in the log
NODE_GOES = Loss(Blame.NODE, "its node is about to be removed")


@dataclass(frozen=True)
class SweepTask:
    """The settings shared by all trials of a sweep."""

    bench: WorkbenchSpec
    budget: BudgetConfig
    run: Folder
    seed: int
    checkpoint_seconds: float
    listener: Listener | None = None  # None disables heartbeats


@dataclass(frozen=True)
class Assignment:
    """An assignment of a trial to a worker.

    ``run`` numbers the replicates of a configuration from 1. With ``recomputes``, the trial recomputes activations to
    save memory.
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


_heartbeat = functools.cache(Heartbeat)  # one per process


@functools.cache
def _drain_watch() -> DrainWatch:
    watch_for_notices()
    return DrainWatch()


def _keep_up_while_storage_waits(heartbeat: Heartbeat, run: Folder) -> None:
    """Count time spent waiting for an object store as progress."""

    def wait(reason: str) -> None:
        heartbeat.sign()
        print(reason, flush=True)

    if isinstance(run, BucketFolder):
        run.bucket.on_wait = wait


def as_tune_config(
    job: Assignment | AfterSearch, avoided_nodes: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return a Tune configuration with the job and the IDs of the nodes to avoid.

    Keep it small: Tune keeps every configuration until the sweep ends and pickles it into snapshots.
    """
    return {"job": job, "avoided_nodes": avoided_nodes}


def job_of(tune_config: dict[str, Any]) -> Assignment | AfterSearch:
    """Return the job in a Tune configuration: a trial to run, or a rung to score after the search."""
    job: Assignment | AfterSearch = tune_config["job"]
    return job


def _as_result(loss: Loss) -> dict[str, Any]:
    """Return the final Tune result of a lost trial."""
    return {"blame": loss.blame.value, "reason": loss.reason, **_node_in_result(), "done": True}


def _node_in_result() -> dict[str, Any]:
    """Return the fields of a result that identify this process's node."""
    own_node = _own_node()
    node_id = own_node["NodeID"]
    host = own_node.get("NodeManagerHostname", "unknown host")
    return {"node_id": node_id, "node_name": f"{host} ({node_id[:12]})"}


def node_in(result: dict[str, Any]) -> WorkerNode:
    return WorkerNode(result["node_id"], result["node_name"])


def loss_in(result: dict[str, Any]) -> Loss | None:
    """Return the loss in a trial's last result, or None."""
    if "blame" not in result:
        return None
    return Loss(Blame(result["blame"]), result["reason"], node=node_in(result))


def error_in(result: dict[str, Any]) -> RaisedError | None:
    """Return the error in a trial's last result, or None."""
    if "raised" not in result:
        return None
    return RaisedError(result["raised"], result.get("traceback"), node_in(result))


class TrialActor(tune.Trainable):
    """Actor that starts or resumes a trial. Each Tune step runs a rung or part of a rung.

    After the search, an actor scores a rung on the test split or on watched data in a single step.
    """

    def setup(self, config: dict[str, Any], sweep: SweepTask) -> None:  # type: ignore[override]  # by with_parameters
        """Prepare for a trial; :meth:`reset_config` calls this again for later trials."""
        job = job_of(config)
        self.logged_at = time.monotonic()
        self.has_checkpoint = True  # nothing to save yet
        self.is_broken = False  # after an error, the process may be in any state
        self.heartbeat: Heartbeat | None = None
        listener = sweep.listener
        if listener is not None:
            self.heartbeat = _heartbeat()
            self.heartbeat.begin(self.trial_id, listener)
            _keep_up_while_storage_waits(self.heartbeat, sweep.run)
        self.results: Iterator[RungResult | RungProgress | ScoredRung | Watched]
        if isinstance(job, FrontRung):
            self.results = self._test_scores(sweep, job)
        elif isinstance(job, UnwatchedRung):
            self.results = self._watched(
                TrialTask(sweep, Assignment(job.trial, job.config, job.run)), job.step
            )
        else:
            self.task = TrialTask(sweep, job)
            self.results = self._rungs()

    def _rungs(self) -> Iterator[RungResult | RungProgress]:
        """Yield the trial's results.

        The bench is opened here and not in :meth:`setup`, because only :meth:`step` reports errors in full.
        """
        self._open_bench(self.task.sweep)
        yield from rungs_and_progress(
            self.task.assignment.config,
            self.bench,
            Intervals(self.task.sweep.checkpoint_seconds, PROGRESS_SECONDS),
            seed=self.task.trial_seed,
            num_rungs=self.task.num_rungs,
            checkpoints=self.task.checkpoints,
            on_rest=(lambda: None) if self.heartbeat is None else self.heartbeat.rest,
            on_evaluate=(lambda: None) if self.heartbeat is None else self.heartbeat.evaluate,
            leaves=self.note_whether_to_leave,
            recomputes=self.task.assignment.recomputes,
        )

    def _test_scores(self, sweep: SweepTask, rung: FrontRung) -> Iterator[ScoredRung]:
        self._open_bench(sweep)
        yield score_on_test(self.bench, sweep.run, rung)

    def _watched(self, task: TrialTask, step: int) -> Iterator[Watched]:
        self._open_bench(task.sweep)
        yield watch_last_rung(
            task.assignment.config,
            self.bench,
            step=step,
            seed=task.trial_seed,
            num_rungs=task.num_rungs,
            checkpoints=task.checkpoints,
        )

    def _open_bench(self, sweep: SweepTask) -> None:
        self.bench = open_workbench(sweep.bench)
        if self.heartbeat is None:
            return
        if isinstance(self.bench, SequenceBench):
            self.bench.on_step = self.heartbeat.sign
        else:
            self.heartbeat.follow(self.bench.model)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        if self.is_broken or _drain_watch().is_draining():
            os._exit(0)  # Tune then starts this trial in another process
        self.cleanup()
        self.setup(new_config)  # type: ignore[call-arg]  # with_parameters adds the shared settings
        return True

    def cleanup(self) -> None:
        """Stop the trial; if it is in the middle of a rung, it writes a checkpoint."""
        results, self.results = self.results, iter(())
        if isinstance(results, Generator):
            try:
                results.close()
            except OSError as error:  # the trial resumes from an earlier checkpoint
                print(
                    f"trial {self.task.assignment.number}: checkpoint not stored (reason={error})",
                    flush=True,
                )

    def step(self) -> dict[str, Any]:
        """Run the job until its next result or progress report."""
        if self.has_checkpoint and _drain_watch().is_draining():
            return _as_result(NODE_GOES)
        try:
            with self.heartbeat or contextlib.nullcontext():
                result = next(self.results)
            if isinstance(result, RungResult):
                self.save_weights(result)
        # Return errors instead of raising them: Tune then keeps the actor and the full message.
        except TrialDivergedError as error:
            return {"failure": str(error), "diverged": True, "done": True}
        except Exception as error:
            if is_of_storage(error):
                return _as_result(Loss(Blame.STORAGE, " ".join(str(error).split())))
            if isinstance(error, InputError):
                return {"raised": str(error), **_node_in_result(), "done": True}
            self.is_broken = True
            text = "".join(traceback.format_exception(error)).rstrip()
            return {
                "raised": exception_line(text),
                "traceback": text,
                **_node_in_result(),
                "done": True,
            }
        if isinstance(result, ScoredRung | Watched):
            scored = result.to_json() if isinstance(result, Watched) else dataclasses.asdict(result)
            return {"scored": json.dumps(scored, allow_nan=False), "done": True}
        if isinstance(result, RungProgress):
            if self.has_checkpoint:
                return _as_result(NODE_GOES)
            self.log(result)
            return {"progress": json.dumps(dataclasses.asdict(result))}
        self.has_checkpoint = True
        done = result.step == self.task.num_rungs or bool(result.stop)
        # Serialized because Tune flattens and rewrites nested results.
        return {
            "rung": json.dumps(self.as_event(result), allow_nan=False),
            **_node_in_result(),
            "done": done,
        }

    def as_event(self, result: RungResult) -> dict[str, Any]:
        """Return the rung as a ledger event without the trial's number."""
        rung: dict[str, Any] = {
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
        if result.measures:
            rung["measures"] = [measure_values(measure) for measure in result.measures]
        if result.labeled:
            rung["labeled"] = self.bench.describe(self.bench.dev, result.labeled)
        if result.tasks:
            rung["tasks"] = self.bench.describe_tasks(self.bench.dev, result.tasks)
        if result.watched is not None:
            rung["watched"] = result.watched.to_json()
            if self.bench.watches_each_rung:
                own_point, *_ = rung["points"]
                own_point[WATCHED] = result.watched.score
        return rung

    def note_whether_to_leave(self) -> bool:
        """Return whether the trial must leave its node, which makes it write a checkpoint."""
        self.has_checkpoint = _drain_watch().is_draining()
        return self.has_checkpoint

    def log(self, progress: RungProgress) -> None:
        """Print the trial's progress to the run's log, at most every LOG_SECONDS."""
        now = time.monotonic()
        if now - self.logged_at >= LOG_SECONDS:
            self.logged_at = now
            print(
                f"trial {self.task.assignment.number}: {describe_progress([progress])}", flush=True
            )

    def save_weights(self, result: RungResult) -> None:
        """Store the rung's weights and scores in the run's folder."""
        if not result.points:  # only the last data set of a sequence has points
            return
        run, trial, step = self.task.sweep.run, self.task.assignment.number, result.step
        keep_scores(run, "dev", trial, step, result.points)
        name = point_folder(trial, step)
        save_point(run.path / name, self.bench.trained(), self.bench.head, self.reading(result))
        run.store(name)
        run.let_go(name)

    def reading(self, result: RungResult) -> Reading | None:
        """Return the sentences that the points retrieve on dev, or None if reports show another split."""
        if self.bench.shown_split != "dev" or not isinstance(self.bench.dev, EvaluationSet):
            return None
        points = result.points
        # points restored from a checkpoint have no retrieved sentences
        if any(scores.retrieved is None for scores in points.values()):
            points = self.bench.measure(self.bench.dev, list(points))
        trial = self.task.assignment.number
        return self.bench.dev.reading(
            {(trial, result.step, *key): scores for key, scores in points.items()}
        )


@functools.cache
def _own_node() -> dict[str, Any]:
    node_id = ray.get_runtime_context().get_node_id()
    return next((node for node in ray.nodes() if node["NodeID"] == node_id), {"NodeID": node_id})


@functools.cache
def _this_node() -> Node:
    """Return this process's node as recorded in the ledger."""
    own_node = _own_node()
    resources = own_node.get("Resources", {})
    return Node(node_type(own_node), resources.get("CPU", 0.0), resources.get("GPU", 0.0))
