"""Build a sweep's missing artifacts, on the cluster or in this process."""

import contextlib
import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from raysweep.cluster.connection import on_this_node
from raysweep.cluster.resources import Capacity
from raysweep.cluster.waiting import WaitingWatch
from raysweep.config import packages
from raysweep.config.space import Space
from raysweep.config.sweep import EncoderConfig, SweepConfig
from raysweep.data.artifacts import Store
from raysweep.data.prepared import Prepared
from raysweep.encoders.copies import find_copy, store_copy
from raysweep.encoders.loaded import import_libraries
from raysweep.encoders.locate import ModelSource
from raysweep.errors import InputError, TemporaryError
from raysweep.prepare import stages
from raysweep.prepare.plan import ArtifactStage, Plan, ScoresStage, make_plan
from raysweep.prepare.stages import StageProgress, input_error
from raysweep.storage import location
from raysweep.storage.folder import BucketFolder, Folder
from raysweep.storage.private import make_private
from raysweep.terminal import Advance, Display

POLL_SECONDS = 0.2
MAX_DEATHS = 2  # a stage fails after more coordinator deaths than this
GOOD_RECALL = 0.9  # a lower recall of an inverted file causes a warning


def prepare(plan: Plan, capacity: Capacity | None, display: Display) -> Prepared:
    """Build every missing artifact on the cluster and return all artifacts.

    A coordinator actor runs the stages with Ray Data and stores the results. ``capacity`` may be None if no artifact is
    missing.

    Raises:
        InputError: If the sources, the encoder or the neighbors are unsuitable.
        TemporaryError: If a stage makes no progress for ``resources.stall_seconds``.
    """
    for note in plan.notes:
        display.warn(note)
    if capacity is not None:
        store_models(plan.models, plan.store, capacity, display)
    for stage in plan.stages:
        if stage.artifact.exists:
            plan.store.note_use(stage.artifact)
            display.line(f"prepare: {stage.name}: reused (artifact={stage.artifact.name})")
    if missing := plan.missing:
        assert capacity is not None
        _build(plan, missing, capacity, display)
    _warn(plan.prepared, plan.config.examples.target, display)
    _report_recall(plan.stages, display)
    _report_experts(plan, display)
    plan.check_sentences()
    plan.check_freezing()
    return plan.prepared


def prepare_here(config: SweepConfig, space: Space, display: Display | None = None) -> Prepared:
    """Build every missing artifact in this process, without Ray, for tests, notebooks and debuggers.

    ``display`` receives warnings but no progress.
    """
    packages.check(packages.needs_of_sweep(config, space))
    plan = make_plan(config, space)
    if display is not None:
        for note in plan.notes:
            display.warn(note)
    coordinator = stages.Coordinator(plan.store, None)
    for stage in plan.stages:
        plan.store.note_use(stage.artifact)
    for stage in plan.missing:
        coordinator.build(stage)
        if stage.kind == "sentences":
            plan.check_sentences()  # before expensive stages
    plan.check_sentences()  # also for sentences from an earlier build
    plan.check_freezing()
    if display is not None:
        _warn(plan.prepared, config.examples.target, display)
        _report_experts(plan, display)
    return plan.prepared


def store_models(
    models: Mapping[EncoderConfig, ModelSource], store: Store, capacity: Capacity, display: Display
) -> None:
    """Store copies of encoders that some nodes may lack.

    Local encoders are copied only into buckets, because nodes that share the artifacts folder usually share other
    folders, too.
    """
    in_bucket = isinstance(store.root, BucketFolder)
    for encoder, source in models.items():
        name = encoder.name
        may_lack = capacity.has_several_nodes and (in_bucket or not location.is_folder(Path(name)))
        if name == "demo" or not (location.is_uri(name) or may_lack):
            continue
        copy = find_copy(store.location, source.identity)
        if copy.exists:
            event = "reused"
            store.note_use(copy)
        else:
            event = "stored"
            store_copy(store, source.folder, source.identity, display.line)
        display.line(f"prepare: model: {event} (model={name}, artifact={copy.name})")


def _warn(prepared: Prepared, target: int, display: Display) -> None:
    """Warn about the sources, about too few examples, and about dev sentences that the teacher has seen."""
    for name, part in (prepared.parts or {"": prepared}).items():
        for text in part.sentences_artifact.summary["warnings"]:
            display.warn(f"{name}: {text}" if name else text)
    for kind, artifact in prepared.examples_artifacts.items():
        num_examples = artifact.summary["num_examples"]
        if num_examples < target:
            display.warn(
                f"examples {kind}: only {num_examples:,} exist, fewer than examples.target ({target:,})"
            )
    teacher = prepared.teacher_artifact
    num_seen = 0 if teacher is None else teacher.summary["num_dev_seen"]
    if num_seen:
        display.warn(
            f"teacher: was trained on {num_seen:,} of the dev sentences, so scores on dev are too high; set data.dev to the "
            "same source in the teacher's sweep and this one"
        )


def _report_recall(all_stages: Iterable[ArtifactStage], display: Display) -> None:
    """Report the recall of the sweep's inverted file, if any; warn if it is low."""
    for stage in all_stages:
        recall = stage.artifact.summary.get("recall") if stage.kind == "neighbors" else None
        if recall is not None:
            report = display.line if recall >= GOOD_RECALL else display.warn
            report(
                f"prepare: neighbors: the inverted file found {recall:.1%} of the exact neighbors for a sample of sentences"
            )


def _report_experts(plan: Plan, display: Display) -> None:
    """Warn about experts that truncate sentences, and report the experts' active sets."""
    for stage in plan.stages:
        if not isinstance(stage, ScoresStage) or stage.split != "train":
            continue
        encoders = plan.config.examples.experts
        num_sentences = stage.sentences.summary["num_rows"]
        for number, (encoder, embeddings) in enumerate(zip(encoders, stage.experts, strict=True)):
            if num_truncated := embeddings.summary.get("num_truncated"):
                display.warn(
                    f"examples.experts[{number}]: model {encoder.name!r} truncates {num_truncated:,} of {num_sentences:,} "
                    "sentences, so its scores reflect only their beginnings"
                )
        names = [PurePath(encoder.name).name for encoder in encoders]
        shares = zip(names, stage.artifact.summary["active_sets"], strict=True)
        active_sets = ", ".join(f"{name}={share:.1%}" for name, share in shares)
        display.line(f"prepare: scores: active sets ({active_sets})")


def _build(plan: Plan, missing: list[ArtifactStage], capacity: Capacity, display: Display) -> None:
    import ray

    with _store_folder(plan.store.root):
        coordinator = _start_coordinator(plan, capacity)
        warming = _warm_up(missing, coordinator, capacity)
        try:
            for stage in missing:
                coordinator = _build_stage(stage, coordinator, plan, capacity, display)
                if stage.kind == "sentences":
                    plan.check_sentences()  # before expensive stages
        finally:
            for task in warming:
                ray.cancel(task)  # it may still be waiting for resources
            ray.kill(coordinator)


def _start_coordinator(plan: Plan, capacity: Capacity) -> Any:
    import ray

    # Three concurrent calls: build, progress and warm_up.
    options = {"num_cpus": 0, "max_concurrency": 3, "scheduling_strategy": on_this_node()}
    return ray.remote(stages.Coordinator).options(**options).remote(plan.store, capacity)


def _warm_up(missing: list[ArtifactStage], coordinator: Any, capacity: Capacity) -> list[Any]:
    """Start tasks that import the encoding libraries, and return their references.

    Encoding reuses the processes of these tasks if they request as many CPUs as an encoder. Ray Data's actors are also
    started now, because starting them later would occupy the idle processes. On GPUs, nothing is started, because each
    encoder gets a new process.
    """
    import ray

    present_nodes = capacity.nodes[: capacity.num_present]
    if not present_nodes:
        return []
    request = dataclasses.replace(capacity, nodes=present_nodes).encoders()
    kinds = {stage.kind for stage in missing}
    if request.gpus or not kinds & {"encoded", "teacher"}:
        return []
    task: Any = ray.remote(import_libraries).options(
        num_cpus=request.cpus, scheduling_strategy="SPREAD"
    )
    importing = [task.remote() for _ in range(request.count)]
    coordinator.warm_up.remote()
    return importing


@contextlib.contextmanager
def _store_folder(root: Folder) -> Iterator[None]:
    """Create the artifacts folder; if nothing is built, remove it and the parents that were created."""
    folder = root.path
    if isinstance(root, BucketFolder):
        yield
        return
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        make_private(folder)
    except OSError as error:
        raise InputError(
            f"storage.artifacts: the folder {folder} cannot be created: {error.strerror}"
        ) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # not empty, so something was built
            for path in new_folders:
                path.rmdir()


def _build_stage(
    stage: ArtifactStage, coordinator: Any, plan: Plan, capacity: Capacity, display: Display
) -> Any:
    """Build a stage and return the coordinator, or a new one if its process died."""
    import ray

    def report_waiting(text: str) -> None:
        display.line(f"prepare: {stage.name}: {text}")

    stall_seconds = plan.config.resources.stall_seconds
    for num_deaths in range(MAX_DEATHS + 1):
        stall = _StallDetector(stage.name, stall_seconds, WaitingWatch(report_waiting))
        try:
            _build_once(stage, coordinator, stall, display)
            return coordinator
        except ray.exceptions.RayActorError as error:
            # The coordinator is alive; an actor that it called died.
            if isinstance(error, ray.exceptions.RayTaskError):
                raise
            if num_deaths == MAX_DEATHS:
                raise TemporaryError(
                    f"prepare: {stage.name}: the coordinator process died {num_deaths + 1} times, possibly because this "
                    "node ran out of memory; run the command again to resume from the stored work"
                ) from None
        display.warn(
            f"prepare: {stage.name}: the coordinator process died; a new one resumes from the stored work"
        )
        coordinator = _start_coordinator(plan, capacity)
    raise AssertionError("the last attempt returns or raises")


def _build_once(
    stage: ArtifactStage, coordinator: Any, stall: "_StallDetector", display: Display
) -> None:
    import ray

    began = time.monotonic()
    with display.stage(f"prepare: {stage.name}") as advance:
        try:
            _watch(coordinator, coordinator.build.remote(stage), stall, advance, display)
        finally:
            stall.waiting.moved()
        progress: StageProgress = ray.get(coordinator.progress.remote())
    seconds = time.monotonic() - began
    if progress.done:
        num_built = progress.done - progress.reused
        rate = num_built / seconds
        reused = f"; reused {progress.reused:,}" if progress.reused else ""
        work = f"{num_built:,} {progress.unit} in {seconds:.1f} s ({rate:,.0f}/s){reused}"
    else:
        work = f"built by another process (waited {seconds:.1f} s)"
    display.line(f"prepare: {stage.name}: {work}")


def _watch(
    coordinator: Any, result: Any, stall: "_StallDetector", advance: Advance, display: Display
) -> None:
    """Wait for ``result`` and show the coordinator's progress.

    Raises:
        InputError: If the stage stalls or a worker raises an InputError.
    """
    import ray

    waits_for = ""
    while not ray.wait([result], timeout=POLL_SECONDS)[0]:
        progress: StageProgress = ray.get(coordinator.progress.remote())
        if progress.waits_for != waits_for:
            waits_for = progress.waits_for
            display.line(f"prepare: {waits_for}")
        advance(progress.done, progress.total, progress.unit)
        stall.check(progress)
    try:
        ray.get(result)
    except ray.exceptions.RayError as error:
        raise input_error(error) or error from None


@dataclass
class _StallDetector:
    """Detector of stages that make no progress."""

    stage_name: str
    stall_seconds: float
    waiting: WaitingWatch
    last_progress: tuple[int, int] = (-1, 0)
    moved_at: float = 0.0  # monotonic clock
    stalled_at: float = 0.0  # last time with progress or with nodes starting

    def check(self, progress: StageProgress) -> None:
        """Record the progress so far.

        Raises:
            TemporaryError: If the stage has made no progress for too long and is not waiting for anything.
        """
        now = time.monotonic()
        counts = (progress.done, progress.shards)
        if counts != self.last_progress or progress.waits_for:
            self.last_progress = counts
            self.moved_at = now
            self.stalled_at = now
            self.waiting.moved()
        elif self.waiting.check(now - self.moved_at):
            self.stalled_at = now
        elif now - self.stalled_at > self.stall_seconds:
            import ray

            free, total = ray.available_resources(), ray.cluster_resources()
            cpus, gpus = (
                f"{free.get(name, 0):g} of {total.get(name, 0):g}" for name in ("CPU", "GPU")
            )
            raise TemporaryError(
                f"prepare: {self.stage_name}: no progress for {self.stall_seconds:g} s (free CPUs={cpus}, free GPUs="
                f"{gpus}); if nothing is free, stop the other jobs on the cluster; if the stage is only slow, raise "
                "resources.stall_seconds"
            )
