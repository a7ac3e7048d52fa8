"""Open workbenches, size trials and score the test split on the cluster."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import ray

from raysweep.cluster.resources import TORCH_PROCESS_BYTES, Capacity, Request, trial_bytes
from raysweep.cluster.waiting import WaitingWatch
from raysweep.config.losses import SEQUENCE_LOSSES, find_loss
from raysweep.config.space import Space
from raysweep.config.sweep import EncoderConfig, EvaluationConfig, ResourcesConfig
from raysweep.config.trial import TrialConfig
from raysweep.controller.front_scores import FrontRung, ScoredRung
from raysweep.data.prepared import Prepared
from raysweep.encoders.locate import locate_same
from raysweep.encoders.size import FP32_BYTES, EncoderSize
from raysweep.encoders.tokens import Tokens
from raysweep.errors import InputError, exception_line
from raysweep.evaluation.operating_points import keep_documents, wanted_labeled
from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.retrieval import Scores
from raysweep.results.ledger import point_folder
from raysweep.results.query_scores import PackedScores, PointName, rung_file
from raysweep.results.readings import reading_file
from raysweep.results.types import PointKey, ScoredSplit, calibration_values, measure_values
from raysweep.storage.folder import Folder
from raysweep.terminal import Display
from raysweep.training.sequence_bench import SequenceBench
from raysweep.training.watching import WatchTask
from raysweep.training.weights import read_point
from raysweep.training.workbench import Workbench

GIB = 2**30


@dataclass(frozen=True)
class WorkbenchSpec:
    """The inputs and resources of a worker's workbench."""

    prepared: Prepared
    evaluation: EvaluationConfig
    request: Request
    watch: WatchTask | None = None


# holds at most one workbench
_workbenches: dict[str, Workbench] = {}


def open_workbench(spec: WorkbenchSpec) -> Workbench:
    """Return this process's workbench, which a reused actor builds only once."""
    import torch

    request = spec.request
    torch.set_num_threads(request.threads)
    data = spec.prepared, spec.evaluation
    watch = spec.watch
    watched = watch and (watch.relations.digest, watch.at)
    key = repr((*data, request.checkpoints_blocks, watched))
    if key not in _workbenches:
        _workbenches.clear()
        kind = SequenceBench if spec.prepared.tasks else Workbench
        _workbenches[key] = kind(
            *data,
            device="cuda" if request.gpus else "cpu",
            cache_bytes=request.cache_bytes,
            checkpoints_blocks=request.checkpoints_blocks,
            watch=watch,
        )
    return _workbenches[key]


def size_trials(
    bench: WorkbenchSpec,
    space: Space,
    resources: ResourcesConfig,
    capacity: Capacity,
    display: Display,
) -> Request:
    """Return the trials' resource request, adjusted to the most demanding trial's memory.

    With ``gpus_per_trial: measured``, as many trials share a GPU as its memory and the CPUs per GPU allow. On CPUs,
    each trial requests node memory.

    Raises:
        InputError: If measuring GPU memory fails.
    """
    request = bench.request
    if not request.gpus:
        needed_bytes = needed_by_trial(bench.prepared, space, request.cache_bytes)
        request = capacity.with_memory(request, needed_bytes)
        if 0 < request.memory_bytes < needed_bytes:
            display.warn(
                f"search: a trial needs about {needed_bytes / GIB:.1f} GiB of memory, but the largest node has "
                f"{request.memory_bytes / GIB:.1f} GiB; if trials are killed, lower space.batch_size or "
                "resources.cache_gib"
            )
        return request
    if resources.gpus_per_trial != "measured":
        return request
    most_demanding = MeasuredTrials(space.largest(), resources.recompute_activations)
    memory = measure_memory(bench, most_demanding, lambda text: display.line(f"search: {text}"))
    packed = request.packed(memory.peak_bytes, memory.total_bytes, capacity.cpus_per_gpu)
    if resources.max_concurrent_trials:
        count = min(packed.count, resources.max_concurrent_trials)
        packed = dataclasses.replace(packed, count=count)
    trials_per_gpu = round(1 / packed.gpus)
    gib_per_trial = memory.peak_bytes / GIB
    gib_per_gpu = memory.total_bytes / GIB
    display.line(
        f"search: measured GPU memory (per trial={gib_per_trial:.2f} GiB, per GPU={gib_per_gpu:.1f} "
        f"GiB, trials per GPU={trials_per_gpu})"
    )
    return packed


def needed_by_trial(prepared: Prepared, space: Space, cache_bytes: int) -> int:
    """Estimate the memory in bytes that the space's most demanding trial needs on CPUs.

    The estimate assumes sentences of mean length. ``cache_bytes`` limits the cache of frozen blocks' outputs.
    """
    if prepared.tasks:
        return _needed_by_sequence(prepared, space)
    config = EncoderConfig(**prepared.model)
    source = locate_same(config, prepared.model_identity)
    encoder = EncoderSize.of(source.folder)
    tokens = [Tokens.open(artifact.folder) for artifact in prepared.tokens_artifacts.distinct]
    num_tokens = sum(int(of_side.offsets[-1]) for of_side in tokens)
    tokens_per_sentence = num_tokens / max(1, sum(map(len, tokens)))
    trials = space.largest()
    sentences_per_batch = [_sentences_per_batch(prepared, trial) for trial in trials]
    max_sentences = max(sentences_per_batch)
    is_averaged = any(trial.average_decay is not None for trial in trials)
    num_encoders = 2 if any(trial.tower == "separate" for trial in trials) else 1
    bytes_of_averages = num_encoders * encoder.weights_bytes if is_averaged else 0
    bytes_of_all_outputs = FP32_BYTES * encoder.width * num_tokens
    tokens_of_batch = round(max_sentences * tokens_per_sentence)
    bytes_without_averages = trial_bytes(
        encoder.weights_bytes,
        num_encoders,
        num_layers=encoder.num_layers,
        width=encoder.width,
        tokens_of_batch=tokens_of_batch,
        cache_bytes=min(cache_bytes, bytes_of_all_outputs),
    )
    return bytes_of_averages + bytes_without_averages


def _needed_by_sequence(prepared: Prepared, space: Space) -> int:
    """Estimate the memory in bytes that the largest trial on a sequence needs."""
    num_sentences, width = prepared.reference_embeddings.document.shape
    defaults = SEQUENCE_LOSSES["hypermask"].defaults
    adapter_size, hidden_size = (
        int(max(space.values(name), default=defaults[name]))
        for name in ("adapter_size", "hidden_size")
    )
    num_classes = len(prepared.sequence.label_names)
    num_weights = (2 * adapter_size + num_classes) * width
    # The hypernetwork's weights, gradients and two moments, and some copies of its outputs.
    numbers_per_weight = 4 * hidden_size + 4 * len(prepared.tasks) + 16
    num_numbers = numbers_per_weight * num_weights + num_sentences * width
    return FP32_BYTES * num_numbers + TORCH_PROCESS_BYTES


def _sentences_per_batch(prepared: Prepared, trial: TrialConfig) -> int:
    """Return the maximum number of sentences that are embedded for a batch."""
    ids, _ = prepared.examples(find_loss(trial.loss).examples)
    num_columns = int(ids.shape[1])
    num_passes = 2 if trial.loss_parameters.get("consistency_weight") else 1
    return num_passes * min(trial.batch_size * num_columns, len(prepared.sentences.ids("train")))


class GpuMemory(NamedTuple):
    """GPU memory in bytes: the peak use of the measured trials, and the total."""

    peak_bytes: int
    total_bytes: int


class MeasuredTrials(NamedTuple):
    """Trials whose memory is measured, and whether they recompute activations."""

    configs: Sequence[TrialConfig]
    recomputes: bool = False


def measure_memory(
    spec: WorkbenchSpec, trials: MeasuredTrials, report: Callable[[str], None]
) -> GpuMemory:
    """Return the GPU memory that the most demanding of ``trials`` uses.

    While no GPU is free, ``report`` is called with status messages.

    Raises:
        InputError: If measuring fails.
    """
    # If num_gpus is passed to remote(), Ray ends the process after the task, which frees the GPU.
    task = ray.remote(num_cpus=spec.request.cpus, num_gpus=1)(_measure_memory)
    measured = task.remote(spec, trials)
    watch = WaitingWatch(report)
    began = time.monotonic()
    try:
        while not ray.wait([measured], timeout=1)[0]:
            watch.check(time.monotonic() - began)
        memory: GpuMemory = ray.get(measured)
    except ray.exceptions.RayError as error:
        raised = exception_line(str(error))
        raise InputError(
            f"resources.gpus_per_trial: measuring failed: {raised}; lower space.batch_size, or set gpus_per_trial to a "
            "number"
        ) from None
    finally:
        watch.moved()
    return memory


def _measure_memory(spec: WorkbenchSpec, trials: MeasuredTrials) -> GpuMemory:
    import torch

    from raysweep.training.trainer import measure_peak_bytes

    peak = measure_peak_bytes(open_workbench(spec), trials.configs, recomputes=trials.recomputes)
    return GpuMemory(peak, torch.cuda.get_device_properties(0).total_memory)


def keep_scores(
    run: Folder, split: ScoredSplit, trial: int, step: int, scores: Mapping[PointKey, Scores]
) -> None:
    """Store the per-query scores of a rung's points in the run's folder."""
    file = rung_file(split, trial, step)
    # a resumed trial may repeat its last rung; keep the scores that were stored first
    if split == "dev" and run.exists(file):
        return
    named: dict[PointName, Mapping[str, Float64Array]] = {}
    for key, point_scores in scores.items():
        named[trial, step, *key] = point_scores.named
    packed = PackedScores.pack_points(named)
    run.keep(file, packed.content())


def score_on_test(bench: Workbench, run: Folder, rung: FrontRung) -> ScoredRung:
    """Score a front rung's points on test, and store their per-query scores and retrieved sentences."""
    trial, step = rung.trial, rung.step
    name = point_folder(trial, step)
    weights, head = read_point(run.fetch(name))
    bench.reset(weights, head, keeps_documents=keep_documents(rung.keys))
    encoded = bench.encode(bench.test)
    scores = bench.measure(bench.test, rung.keys, encoded)
    labeled_keys = wanted_labeled(bench.evaluation.points, has_head=head is not None)
    labeled = bench.measure(bench.test, labeled_keys, encoded)
    run.let_go(name)
    keep_scores(run, "test", trial, step, scores)
    scores_by_name: dict[PointName, Scores] = {}
    for key, point_scores in scores.items():
        scores_by_name[trial, step, *key] = point_scores
    reading = bench.test.reading(scores_by_name)
    if reading is not None:
        run.keep(f"{name}/{reading_file('test')}", reading.content())
    calibration = bench.calibration(bench.test, encoded)
    measures = bench.pair_measures(bench.test, encoded, with_intervals=True)
    tasks = bench.task_scores(bench.test, encoded)
    return ScoredRung(
        points=bench.describe(bench.test, scores),
        calibration=None if calibration is None else calibration_values(calibration),
        labeled=bench.describe(bench.test, labeled),
        measures=[measure_values(measure) for measure in measures],
        tasks=bench.describe_tasks(bench.test, tasks),
    )
