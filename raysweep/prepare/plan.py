"""Which artifacts a sweep needs, and which are missing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors

from raysweep.config import freezing
from raysweep.config.losses import LOSSES
from raysweep.config.space import Space
from raysweep.config.sweep import EncoderConfig, SweepConfig
from raysweep.data import artifacts, sources
from raysweep.data.artifacts import Store
from raysweep.data.dataset import HUB_SPLITS
from raysweep.data.prepared import Prepared
from raysweep.encoders.locate import ModelSource, locate
from raysweep.metrics import retrieval

if TYPE_CHECKING:
    pass
from collections.abc import Mapping

if TYPE_CHECKING:
    pass


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
                retrieval.check_k(evaluation.k, min(sentences["num_sentences"]["train"], size))

    def check_freezing(self, names: Sequence[str]) -> None:
        """InputError when the encoder with these parameter names lacks a freezing level of the space."""
        for frozen_dense in self.space.values("freeze_output_dense") or [False]:
            for level in self.space.values("freezing") or ["none"]:
                freezing.frozen_names(names, level, freeze_output_dense=frozen_dense)


@dataclass(frozen=True)
class Stage:
    """One artifact to build: its kind, its folder, the parameters it is keyed by, and what it reads."""

    kind: str
    path: Path
    parameters: Mapping[str, Any]
    inputs: Mapping[str, Any]

    @property
    def name(self) -> str:
        """For people: examples are built once a kind."""
        return " ".join([self.kind, *filter(None, [self.parameters.get("example_kind")])])
