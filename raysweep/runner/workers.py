"""Work on the cluster beside trials: measuring memory, scoring the test split, each process's workbench."""

import time
from collections.abc import Sequence
from pathlib import Path

import ray

from raysweep.cluster import Request
from raysweep.config.sweep import EvaluationConfig
from raysweep.config.trial import TrialConfig
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.results.events import PointsScored
from raysweep.results.ledger import point_name
from raysweep.results.types import Point, PointKey
from raysweep.sweep.sweep import Sweep
from raysweep.training.weights import read_point, save_scores
from raysweep.training.workbench import Workbench

_workbenches: dict[str, Workbench] = {}


def _workbench(prepared: Prepared, evaluation: EvaluationConfig, request: Request) -> Workbench:
    """This process's workbench: imports, weights and data are paid for once in a reused actor."""
    import torch

    torch.set_num_threads(request.threads)
    key = repr((prepared, evaluation))
    if key not in _workbenches:
        _workbenches.clear()
        device = "cuda" if request.gpus else "cpu"
        _workbenches[key] = Workbench(prepared, evaluation, device=device, cache_bytes=request.cache_bytes)
    return _workbenches[key]


def measure_memory(
    prepared: Prepared, evaluation: EvaluationConfig, trials: Sequence[TrialConfig], request: Request
) -> tuple[int, int]:
    """The peak memory of these trials on one of the cluster's GPUs, and all that it has, in bytes."""
    # Asked for here and not in options(), since only so a task's process ends with it and frees the GPU.
    task = ray.remote(num_cpus=request.cpus, num_gpus=1)(_measure_memory)
    try:
        peak, total = ray.get(task.remote(prepared, evaluation, trials, request))
    except ray.exceptions.RayError as error:
        raise InputError(
            f"resources.gpus_per_trial: measuring failed: {str(error).splitlines()[-1]}; lower space.batch_size or name "
            "a number"
        ) from None
    return peak, total


def _measure_memory(
    prepared: Prepared, evaluation: EvaluationConfig, trials: Sequence[TrialConfig], request: Request
) -> tuple[int, int]:
    import torch

    from raysweep.training.memory import peak_bytes

    peak = peak_bytes(_workbench(prepared, evaluation, request), trials)
    return peak, torch.cuda.get_device_properties(0).total_memory


def score_test(sweep: Sweep, prepared: Prepared, request: Request) -> None:
    """Score the front's members on the test split, once, on the cluster."""
    wanted: dict[tuple[int, int], list[PointKey]] = {}
    for point in sweep.kept_front():
        assert point.trial is not None and point.step is not None
        if (point.trial, point.step, *point.key) in sweep.tested:  # in an earlier session
            continue
        wanted.setdefault((point.trial, point.step), []).append(point.key)
    members = list(wanted.items())
    if not members:
        return
    slots = min(request.count, len(members))
    scorer = ray.remote(num_cpus=request.cpus, num_gpus=request.gpus)(_score_test)
    waiting = [
        scorer.remote(prepared, sweep.config.evaluation, request, sweep.folder, members[slot::slots])
        for slot in range(slots)
    ]
    began = time.monotonic()
    with sweep.display.live():
        while waiting:
            finished, waiting = ray.wait(waiting, timeout=1.0)
            for reference in finished:
                try:
                    sweep.ledger.append(PointsScored(points=tuple(ray.get(reference))))
                except ray.exceptions.RayError as error:  # hours of search are not to end without a report
                    sweep.display.warn(f"test: some front members were not scored: {str(error).splitlines()[-1]}")
            sweep.display.status(f"test: scoring {len(members)} rungs of the front, {time.monotonic() - began:.0f} s")


def _score_test(
    prepared: Prepared,
    evaluation: EvaluationConfig,
    request: Request,
    folder: Path,
    members: Sequence[tuple[tuple[int, int], list[PointKey]]],
) -> list[Point]:
    bench = _workbench(prepared, evaluation, request)
    points = []
    for (trial, step), keys in members:
        place = folder / "points" / point_name(trial, step)
        bench.reset(*read_point(place))
        scores = bench.measure(bench.test, keys)
        save_scores(place, "test", scores)
        points += [Point(trial=trial, step=step, **values) for values in bench.describe(bench.test, scores)]
    return points
