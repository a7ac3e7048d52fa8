"""The sweep on Ray Tune: thin adapters between Tune's trials and :class:`raysweep.sweep.sweep.Sweep`, which decides.

Tune places trials, reuses their actors and notices when one dies; its own snapshots are never read back.
"""

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from raysweep.cluster import Request
from raysweep.config.trial import TrialConfig
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.evaluation.evaluation_set import TrialDivergedError
from raysweep.results.ledger import checkpoints_of, point_name
from raysweep.results.types import LOCAL
from raysweep.runner.workers import _workbench
from raysweep.sweep.sweep import Sweep
from raysweep.training.trial import rungs, trial_seed
from raysweep.training.weights import save_point
from raysweep.training.workbench import RungResult


@functools.cache
def _node() -> dict[str, Any]:
    """The node of this process: its type in the cluster's file, and what it has."""
    context = ray.get_runtime_context()
    present: dict[str, Any] = next((node for node in ray.nodes() if node["NodeID"] == context.get_node_id()), {})
    labels, has = present.get("Labels", {}), present.get("Resources", {})
    kind = labels.get("ray.io/node-group") or labels.get("ray.io/node-type") or LOCAL
    return {"type": kind, "cpus": has.get("CPU", 0.0), "gpus": has.get("GPU", 0.0)}


class TrialActor(tune.Trainable):
    """A trial's time on one worker, from its start or from where it was left: a Tune step is a rung."""

    _rungs: Iterator[RungResult]

    def setup(self, config: dict[str, Any]) -> None:
        self._bench = _workbench(config["prepared"], config["evaluation"], config["request"])
        self._number, self._folder = config["number"], Path(config["folder"])
        trial = TrialConfig(**config["trial"])
        self._num_rungs = config["budget"].rungs_of(trial.examples_per_rung)
        self._rungs = rungs(
            trial,
            self._bench,
            seed=trial_seed(config["seed"], trial, config["run"]),
            num_rungs=self._num_rungs,
            checkpoints=checkpoints_of(self._folder, self._number),
            checkpoint_seconds=config["checkpoint_seconds"],
        )

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        try:
            result = next(self._rungs)
        except (TrialDivergedError, InputError) as error:
            # A result and no exception: the actor is sound and takes the next trial, and the reason arrives in full.
            return {"failure": str(error), "done": True}
        bench = self._bench
        place = self._folder / "points" / point_name(self._number, result.step)
        save_point(place, bench.model, bench.head, result.points)
        rung = {
            "step": result.step,
            "examples_seen": result.examples_seen,
            "seconds": result.seconds,
            "loss": result.loss,
            "stop": result.stop,
            "points": bench.describe(bench.dev, result.points),
            "node": _node(),
        }
        # As text: Tune flattens and rewrites what is nested.
        return {"rung": json.dumps(rung, allow_nan=False), "done": result.step == self._num_rungs or bool(result.stop)}


class _NotInSnapshots:
    """Tune pickles its searcher and scheduler into snapshots that nothing reads; the sweep stays out of them."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class TuneSearcher(_NotInSnapshots, Searcher):
    """Hands Tune the sweep's next trial: a trial of Tune's is one of ours for as long as it is on a worker."""

    def __init__(self, sweep: Sweep, shared: dict[str, Any]) -> None:
        super().__init__()
        self._sweep = sweep
        self._shared = shared
        self._numbers: dict[str, int] = {}

    def suggest(self, trial_id: str) -> Any:
        asked = self._sweep.ask()
        if asked is None:  # what runs may yet revive a trial
            return None if self._sweep.assignments else Searcher.FINISHED
        number, config = asked
        self._numbers[trial_id] = number
        run = self._sweep.scheduler.trials[number].run
        return {**self._shared, "number": number, "trial": config.model_dump(), "run": run}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """The sweep has learnt it from the scheduler, which is told why; but not of a trial that never came to run."""
        number = self._numbers.pop(trial_id)
        if error and number in self._sweep.assignments and number not in self._numbers.values():
            self._sweep.rest(number, failure="its process could not be started")

    def save(self, checkpoint_path: str) -> None:
        """The ledger holds all there is to keep."""

    def restore(self, checkpoint_path: str) -> None:
        raise RuntimeError("Tune's snapshots are not read back")


class TuneScheduler(_NotInSnapshots, FIFOScheduler):
    """Passes rungs and endings to the sweep, and its decisions to Tune."""

    def __init__(self, sweep: Sweep) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sweep = sweep

    def on_trial_result(self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]) -> str:
        leave = self._sweep.rung(trial.config["number"], json.loads(result["rung"]))
        return TrialScheduler.STOP if leave else TrialScheduler.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]) -> None:
        number = trial.config["number"]
        if "rung" in result:  # a trial's last result comes here and not to on_trial_result
            self._sweep.rung(number, json.loads(result["rung"]))
        self._sweep.rest(number, failure=result.get("failure"))

    def on_trial_error(self, tune_controller: Any, trial: TuneTrial) -> None:
        if trial.should_recover():  # Tune begins it again, and it finds its checkpoint
            self._sweep.display.line(f"trial {trial.config['number']}: {_cause(trial)}; it goes on from its checkpoint")
        else:
            self._sweep.rest(trial.config["number"], failure=_cause(trial))

    def on_trial_remove(self, tune_controller: Any, trial: TuneTrial) -> None:
        self._sweep.rest(trial.config["number"], failure="removed before it began")


def _cause(trial: TuneTrial) -> str:
    """The last line of what went wrong, the exception itself; the traceback lies in Tune's folder of the trial."""
    text = Path(trial.error_file).read_text(encoding="utf-8") if trial.error_file else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "the trial's process died"


def _name(trial: TuneTrial) -> str:
    return f"trial-{trial.config['number']:04d}-{trial.trial_id}"


def search(sweep: Sweep, prepared: Prepared, request: Request) -> None:
    """Run the sweep's trials until its budget is spent. KeyboardInterrupt leaves finished rungs in the ledger."""
    config = sweep.config
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # Ctrl-C is ours to handle: Tune's own handler saves pickles first
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"  # the ledger has every result
    shared = {
        "prepared": prepared,
        "evaluation": config.evaluation,
        "request": request,
        "budget": config.budget,
        "folder": str(sweep.folder),
        "seed": config.seed,
        "checkpoint_seconds": config.resources.checkpoint_seconds,
    }
    tuner = tune.Tuner(
        tune.with_resources(TrialActor, {"cpu": request.cpus, "gpu": request.gpus}),
        tune_config=tune.TuneConfig(
            num_samples=-1,  # the sweep says when it is over
            search_alg=TuneSearcher(sweep, shared),
            scheduler=TuneScheduler(sweep),
            max_concurrent_trials=request.count,
            reuse_actors=True,
            trial_name_creator=_name,
            trial_dirname_creator=_name,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(sweep.folder),
            verbose=0,
            # A trial that is begun again finds its own checkpoint; Tune keeps none.
            failure_config=tune.FailureConfig(max_failures=config.resources.max_failures),
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
        ),
    )
    with sweep.display.live():
        tuner.fit()
