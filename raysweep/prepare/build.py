"""From sources to artifacts: which ones a sweep needs, which are missing, and having them built on the cluster."""

import contextlib
import re
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raysweep.cluster import Capacity
from raysweep.config.space import Space
from raysweep.config.sweep import SweepConfig
from raysweep.data import artifacts
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.prepare.plan import Plan
from raysweep.terminal import Display

if TYPE_CHECKING:
    from raysweep.prepare.plan import Stage


POLL_SECONDS = 0.2


def prepare(plan: Plan, capacity: Capacity | None, display: Display) -> Prepared:
    """Build every missing artifact on the cluster and return them all. No capacity is needed when none is missing.

    One coordinator actor runs the stages with Ray Data and writes what comes back; this process only watches, and names a
    stall: no progress for ``resources.stall_seconds``.
    """
    for stage in plan.stages:
        if plan.store.has(stage.path):
            display.line(f"prepare: {stage.name} found, nothing to do ({stage.path.name})")
    if missing := plan.missing:
        assert capacity is not None
        _build(plan, missing, capacity, display)
    for text in artifacts.summary(plan.prepared.sentences_folder)["warnings"]:
        display.warn(text)
    for kind, path in plan.prepared.examples_folders.items():
        found, target = artifacts.summary(path)["num_examples"], plan.config.examples.target
        if found < target:
            display.warn(f"examples {kind}: there are {found:,} in all, fewer than examples.target, {target:,}")
    plan.check_k()
    plan.check_freezing(artifacts.summary(plan.prepared.tokens_folder)["parameter_names"])
    return plan.prepared


def prepare_here(config: SweepConfig, space: Space) -> Prepared:
    """Build every missing artifact in this process, without Ray: for tests, notebooks and debuggers."""
    from raysweep.prepare.stages import Coordinator

    plan = Plan(config, space)
    coordinator = Coordinator(plan.store, None)
    for stage in plan.missing:
        coordinator.build(stage)
        if stage.kind == "sentences":
            plan.check_k()
    plan.check_freezing(artifacts.summary(plan.prepared.tokens_folder)["parameter_names"])
    return plan.prepared


def _build(plan: Plan, missing: "list[Stage]", capacity: Capacity, display: Display) -> None:
    import ray

    from raysweep.prepare.stages import Coordinator

    folder = plan.store.folder
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"storage.artifacts: cannot make the folder {folder}: {error.strerror}") from None
    # Two calls at a time: one builds, one answers how far it has come.
    actor: Any = ray.remote(Coordinator).options(num_cpus=0, max_concurrency=2).remote(plan.store, capacity)
    try:
        for stage in missing:
            began = time.monotonic()
            with display.stage(f"prepare: {stage.name}") as advance:
                result = actor.build.remote(stage)
                _watch(actor, result, plan.config.resources.stall_seconds, stage.name, capacity, advance)
                done, _, unit = ray.get(actor.progress.remote())
            seconds = time.monotonic() - began
            display.line(f"prepare: {stage.name}: {done:,} {unit} in {seconds:.1f} s ({done / seconds:,.0f}/s)")
            if stage.kind == "sentences":
                _check_k(plan, stage)
    finally:
        ray.kill(actor)
        plan.store.sweep_up()
        with contextlib.suppress(OSError):  # not empty: something was built
            for path in new_folders:
                path.rmdir()


def _check_k(plan: Plan, stage: "Stage") -> None:
    """Refuse a k that the pool cannot serve before anything costly; a sweep that cannot be leaves nothing."""
    try:
        plan.check_k()
    except InputError:
        shutil.rmtree(stage.path)
        raise


def _watch(
    actor: Any,
    result: Any,
    stall_seconds: float,
    kind: str,
    capacity: Capacity,
    advance: Callable[[int, int, str], None],
) -> None:
    import ray

    last, changed = -1, time.monotonic()
    while not ray.wait([result], timeout=POLL_SECONDS)[0]:
        done, total, unit = ray.get(actor.progress.remote())
        advance(done, total, unit)
        if done != last:
            last, changed = done, time.monotonic()
        elif time.monotonic() - changed > stall_seconds:
            free = ray.available_resources()
            raise InputError(
                f"prepare made no progress in its stage {kind} for {stall_seconds:g} s. The cluster had "
                f"{capacity.cpus:g} CPUs and {capacity.gpus:g} GPUs at the start, {free.get('CPU', 0):g} and "
                f"{free.get('GPU', 0):g} are free now; is something else holding them? A slow but living stage needs a "
                "larger resources.stall_seconds"
            )
    try:
        ray.get(result)
    except ray.exceptions.RayError as error:
        raise _input_error(error) or error from None


def _input_error(error: BaseException) -> InputError | None:
    """The InputError that a worker raised. What passes through Ray Data keeps only the text of its cause."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, InputError):
        return cause
    messages = re.findall(rf"{InputError.__module__}\.{InputError.__name__}: (.+)", str(error))
    return InputError(messages[-1]) if messages else None
