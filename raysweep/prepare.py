"""From sources to artifacts: which ones a sweep needs, which are missing, and having them built on the cluster."""

import contextlib
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors

from raysweep import artifacts, freezing, metrics, sources
from raysweep.artifacts import Prepared, Store
from raysweep.cluster import Capacity
from raysweep.config import EncoderConfig, SweepConfig
from raysweep.dataset import HUB_SPLITS
from raysweep.errors import InputError
from raysweep.losses import LOSSES
from raysweep.model_source import ModelSource, locate
from raysweep.progress import Display
from raysweep.space import Space

if TYPE_CHECKING:
    from raysweep.stages import Stage

POLL_SECONDS = 0.2


@dataclass
class Plan:
    """The artifacts of one sweep, in the order they are built. Making it reads sources but computes nothing on a cluster."""

    config: SweepConfig
    space: Space
    store: Store = field(init=False)
    stages: "list[Stage]" = field(init=False, default_factory=list)
    prepared: Prepared = field(init=False)

    def __post_init__(self) -> None:
        data, config = self.config.data, self.config
        fingerprints = {}
        for key in ("train", "dev", "test"):
            if source := getattr(data, key):
                where: dict[str, Any] = {
                    "text_column": data.text_column,
                    "label_column": data.label_column,
                    "subset": data.subset,
                    "split": HUB_SPLITS[key],
                }
                sources.check(source, **where)
                fingerprints[key] = sources.fingerprint(source, **where)
        located = {c: locate(c) for c in {config.model, config.reference_encoder, config.mining_encoder}}
        weights = located[config.model].folder / "model.safetensors"
        if weights.is_file():  # its header alone tells, long before anything is loaded
            with safetensors.safe_open(weights, "numpy") as file:
                self.check_freezing(list(file.keys()))
        self.store = Store(config.storage.artifacts_folder)
        # Where the same content lies does not matter; what it is does. The seed matters only where dev is carved.
        keyed = data.model_dump(exclude={"train", "dev", "test"} | ({"dev_fraction", "max_dev"} if data.dev else set()))
        keyed |= {"content": fingerprints} | ({} if data.dev else {"seed": config.seed})
        sentences = self._add("sentences", keyed, data.model_dump())
        tokens = self._encoded(sentences, config.model, located[config.model])
        reference = self._encoded(sentences, config.reference_encoder, located[config.reference_encoder])
        mined = {LOSSES[str(loss)].example_kind for loss in self.space.values("loss")} - {"labelled_sentence"}
        examples = self._examples(sentences, sorted(mined), located[config.mining_encoder]) if mined else {}
        self.prepared = Prepared(
            config.model.model_dump(),
            located[config.model].identity,
            sentences,
            tokens,
            reference,
            examples,
            config.reference_encoder.model_dump(),
            located[config.reference_encoder].identity,
        )

    def _examples(self, sentences: Path, kinds: Sequence[str], source: ModelSource) -> dict[str, Path]:
        mining = self.config.examples
        neighbours = self._add(
            "neighbours",
            {"k": mining.k, "mode": mining.neighbours, "min_similarity": mining.min_similarity},
            {"sentences": sentences, "encoded": self._encoded(sentences, self.config.mining_encoder, source)},
        )
        examples = {}
        for kind in kinds:
            parameters: dict[str, Any] = {"example_kind": kind, "target": mining.target, "seed": self.config.seed}
            if kind == "scored_pair":
                parameters["cosines"] = [mining.same_class_cosine, mining.other_class_cosine]
            examples[kind] = self._add("examples", parameters, {"sentences": sentences, "neighbours": neighbours})
        return examples

    def _encoded(self, sentences: Path, encoder: EncoderConfig, source: ModelSource) -> Path:
        parameters = {"encoder": source.identity, "prompt": encoder.prompt, "max_tokens": encoder.max_tokens}
        if encoder.precision != "fp32":
            parameters["precision"] = encoder.precision
        return self._add("encoded", parameters, {"sentences": sentences, "encoder": encoder.model_dump()})

    def _add(self, kind: str, parameters: dict[str, Any], inputs: dict[str, Any]) -> Path:
        """Note a stage. Its key hashes its own parameters and the keys of the artifacts it reads."""
        from raysweep.stages import Stage

        keyed = {**parameters, "reads": sorted(path.name for path in inputs.values() if isinstance(path, Path))}
        path = self.store.path(kind, keyed)
        stage = Stage(kind, path, {**keyed}, inputs)
        if stage.path not in [other.path for other in self.stages]:
            self.stages.append(stage)
        return path

    @property
    def missing(self) -> "list[Stage]":
        return [stage for stage in self.stages if not self.store.has(stage.path)]

    def check_k(self) -> None:
        """InputError when a pool is smaller than k, which is known once there are sentences."""
        sentences = artifacts.summary(self.prepared.sentences_folder)
        evaluation = self.config.evaluation
        for split in ("dev", "test"):
            if num_queries := sentences["num_sentences"].get(split, 0):
                size = evaluation.num_pool or 5 * num_queries
                metrics.check_k(evaluation.k, min(sentences["num_sentences"]["train"], size))

    def check_freezing(self, names: Sequence[str]) -> None:
        """InputError when the encoder with these parameter names lacks a freezing level of the space."""
        for frozen_dense in self.space.values("freeze_output_dense") or [False]:
            for level in self.space.values("freezing") or ["none"]:
                freezing.frozen_names(names, level, freeze_output_dense=frozen_dense)


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
    from raysweep.stages import Coordinator

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

    from raysweep.stages import Coordinator

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
