"""Work on the cluster besides training: measuring memory, scoring the test split, opening each process's workbench."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import ray

from raysweep.cluster.resources import Request
from raysweep.cluster.waiting import WaitingWatch
from raysweep.config.sweep import EvaluationConfig
from raysweep.config.trial import TrialConfig
from raysweep.controller.front_scores import FrontRung, ScoredRung
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError, exception_line
from raysweep.evaluation.operating_points import wanted_labeled
from raysweep.metrics.retrieval import Scores
from raysweep.results.ledger import point_folder
from raysweep.results.query_scores import PackedScores, rung_file
from raysweep.results.readings import reading_file
from raysweep.results.types import PointKey, ScoredSplit, calibration_values
from raysweep.storage.folder import Folder
from raysweep.training.weights import read_point
from raysweep.training.workbench import Workbench


@dataclass(frozen=True)
class WorkbenchSpec:
    """The inputs and resources from which a process on the cluster builds its workbench."""

    prepared: Prepared
    evaluation: EvaluationConfig
    request: Request


_workbenches: dict[str, Workbench] = {}  # at most one; a process that starts on another sweep drops the previous one


def open_workbench(spec: WorkbenchSpec) -> Workbench:
    """Return this process's workbench; a reused actor pays for imports, weights and data only once."""
    import torch

    request = spec.request
    torch.set_num_threads(request.threads)
    key = repr((spec.prepared, spec.evaluation))
    if key not in _workbenches:
        _workbenches.clear()
        device = "cuda" if request.gpus else "cpu"
        _workbenches[key] = Workbench(spec.prepared, spec.evaluation, device=device, cache_bytes=request.cache_bytes)
    return _workbenches[key]


class GpuMemory(NamedTuple):
    """GPU memory in bytes: the peak use of the measured trials, and the total."""

    peak_bytes: int
    total_bytes: int


def measure_memory(spec: WorkbenchSpec, trials: Sequence[TrialConfig], say: Callable[[str], None]) -> GpuMemory:
    """Return the GPU memory that the most demanding of ``trials`` takes.

    ``say`` is called with a description of the wait while no GPU is free.

    Raises:
        InputError: If the trial does not fit.
    """
    # Requested here rather than in options(), so that the task's process ends with the task and frees the GPU.
    task = ray.remote(num_cpus=spec.request.cpus, num_gpus=1)(_measure_memory)
    measured = task.remote(spec, trials)
    try:
        _wait_for(measured, WaitingWatch(say))
        found: GpuMemory = ray.get(measured)
    except ray.exceptions.RayError as error:
        raised = exception_line(str(error))
        raise InputError(
            f"resources.gpus_per_trial: measuring failed: {raised}; lower space.batch_size or name a number"
        ) from None
    return found


def _wait_for(result: Any, watch: WaitingWatch) -> None:
    began = time.monotonic()
    try:
        while not ray.wait([result], timeout=1)[0]:
            watch.check(time.monotonic() - began)
    finally:
        watch.moved()


def _measure_memory(spec: WorkbenchSpec, trials: Sequence[TrialConfig]) -> GpuMemory:
    import torch

    from raysweep.training.trainer import measure_peak_bytes

    peak = measure_peak_bytes(open_workbench(spec), trials)
    return GpuMemory(peak, torch.cuda.get_device_properties(0).total_memory)


def keep_scores(run: Folder, split: ScoredSplit, trial: int, step: int, scores: Mapping[PointKey, Scores]) -> None:
    """Store the per-query scores of a rung's points in the run's folder."""
    file = rung_file(split, trial, step)
    if split == "dev" and run.exists(file):  # a resumed trial repeats its last rung, which counts once
        return
    names = [(trial, step, *key) for key in scores]
    polarity = np.stack([each.polarity for each in scores.values()])
    similarity = np.stack([each.similarity for each in scores.values()])
    packed = PackedScores.pack(names, polarity, similarity)
    run.keep(file, packed.content())


def score_on_test(bench: Workbench, run: Folder, rung: FrontRung) -> ScoredRung:
    """Score the points of a front rung on the test split, including the head's points that use the pool's labels.

    The per-query scores and retrieved sentences of the rung's own points are stored in the run's folder.
    """
    name = point_folder(rung.trial, rung.step)
    weights, head = read_point(run.fetch(name))
    bench.reset(weights, head)
    encoded = bench.encode(bench.test)
    scores = bench.measure(bench.test, rung.keys, encoded)
    labeled_keys = wanted_labeled(bench.evaluation.points, has_head=head is not None)
    labeled = bench.measure(bench.test, labeled_keys, encoded)
    run.let_go(name)
    keep_scores(run, "test", rung.trial, rung.step, scores)
    reading = bench.test.reading({(rung.trial, rung.step, *key): each for key, each in scores.items()})
    run.keep(f"{name}/{reading_file('test')}", reading.content())
    calibration = bench.calibration(bench.test, encoded)
    return ScoredRung(
        points=bench.describe(bench.test, scores),
        calibration=None if calibration is None else calibration_values(calibration),
        labeled=bench.describe(bench.test, labeled),
    )
