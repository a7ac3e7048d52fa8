"""Work on the cluster beside trials: measuring memory, scoring the test split, each process's workbench."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ray

from raysweep.cluster import Request
from raysweep.config.sweep import EvaluationConfig
from raysweep.config.trial import TrialConfig
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.results.events import PointsScored
from raysweep.results.ledger import point_folder, write_dependence
from raysweep.results.types import Point, PointKey
from raysweep.storage.folder import Folder
from raysweep.sweep.sweep import Sweep
from raysweep.training.weights import read_point, save_scores
from raysweep.training.workbench import Workbench

WAIT_SECONDS = 1.0


@dataclass(frozen=True)
class WorkbenchSpec:
    """What a process on the cluster makes its workbench of, and what it may use."""

    prepared: Prepared
    evaluation: EvaluationConfig
    request: Request


_workbenches: dict[str, Workbench] = {}  # at most one: a process that takes up another sweep drops the last one's


def open_workbench(spec: WorkbenchSpec) -> Workbench:
    """This process's workbench: imports, weights and data are paid for once in a reused actor."""
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
    """Bytes of a GPU: what trials took at their peak, and all that it has."""

    peak_bytes: int
    total_bytes: int


def measure_memory(spec: WorkbenchSpec, trials: Sequence[TrialConfig]) -> GpuMemory:
    """What the most demanding of ``trials`` takes of one of the cluster's GPUs. InputError when it does not fit."""
    # Asked for here and not in options(), since only so a task's process ends with it and frees the GPU.
    task = ray.remote(num_cpus=spec.request.cpus, num_gpus=1)(_measure_memory)
    try:
        measured: GpuMemory = ray.get(task.remote(spec, trials))
    except ray.exceptions.RayError as error:
        raise InputError(
            f"resources.gpus_per_trial: measuring failed: {_last_line(error)}; lower space.batch_size or name a number"
        ) from None
    return measured


def _measure_memory(spec: WorkbenchSpec, trials: Sequence[TrialConfig]) -> GpuMemory:
    import torch

    from raysweep.training.memory import peak_bytes

    peak = peak_bytes(open_workbench(spec), trials)
    return GpuMemory(peak, torch.cuda.get_device_properties(0).total_memory)


@dataclass(frozen=True)
class FrontRung:
    """A rung with points on the front, and their keys."""

    trial: int
    step: int
    keys: list[PointKey] = field(default_factory=list)


def score_test(sweep: Sweep, spec: WorkbenchSpec) -> None:
    """Score the front's members on the test split, once, on the cluster."""
    rungs = _untested(sweep)
    if not rungs:
        return
    request = spec.request
    num_workers = min(request.count, len(rungs))
    score = ray.remote(num_cpus=request.cpus, num_gpus=request.gpus)(_score_test)
    waiting = [score.remote(spec, sweep.run, rungs[worker::num_workers]) for worker in range(num_workers)]
    began = time.monotonic()
    with sweep.display.live():
        while waiting:
            finished, waiting = ray.wait(waiting, timeout=WAIT_SECONDS)
            for result in finished:
                _record(sweep, result)
            sweep.display.status(f"test: scoring {len(rungs)} rungs of the front, {time.monotonic() - began:.0f} s")


def _untested(sweep: Sweep) -> list[FrontRung]:
    """The rungs of the front whose points no earlier session has scored on the test split."""
    rungs: dict[tuple[int, int], FrontRung] = {}
    for point in sweep.kept_front():
        trial, step = point.trial, point.step
        assert trial is not None and step is not None
        if (trial, step, *point.key) in sweep.tested:
            continue
        rung = rungs.setdefault((trial, step), FrontRung(trial, step))
        rung.keys.append(point.key)
    return list(rungs.values())


def _record(sweep: Sweep, result: Any) -> None:
    try:
        points = tuple(ray.get(result))
    except ray.exceptions.RayError as error:  # hours of search are not to end without a report
        sweep.display.warn(f"test: some front members were not scored: {_last_line(error)}")
        return
    sweep.ledger.append(PointsScored(points=points))
    for trial, step in {(point.trial, point.step) for point in points}:
        assert trial is not None and step is not None
        write_dependence(sweep.run, point_folder(trial, step), sweep.ledger.position)


def _score_test(spec: WorkbenchSpec, run: Folder, rungs: Sequence[FrontRung]) -> list[Point]:
    bench = open_workbench(spec)
    points = []
    for rung in rungs:
        name = point_folder(rung.trial, rung.step)
        weights, head = read_point(run.fetch(name))
        bench.reset(weights, head)
        scores = bench.measure(bench.test, rung.keys)
        run.store(f"{name}/{save_scores(run.path / name, 'test', scores)}")
        run.let_go(name)
        for values in bench.describe(bench.test, scores):
            points.append(Point(trial=rung.trial, step=rung.step, **values))
    return points


def _last_line(error: Exception) -> str:
    """The last line of what went wrong on a worker, which is the exception itself; the traceback stands above."""
    return str(error).splitlines()[-1]
