"""Plan the artifacts that a sweep needs, in the order in which they are built."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import safetensors

from raysweep.config import matryoshka
from raysweep.config.data_kind import of_kind
from raysweep.config.losses import mined_kinds
from raysweep.config.sides import Side, Sides
from raysweep.config.space import Space
from raysweep.config.space_parser import has_teacher
from raysweep.config.sweep import DataConfig, EncoderConfig, Prompts, SweepConfig
from raysweep.data import sources
from raysweep.data.all_pairs import MAX_PAIRS
from raysweep.data.artifacts import Artifact, Store
from raysweep.data.bad_rows import BadRows
from raysweep.data.class_labels import check_classes
from raysweep.data.dataset import SPLITS, Sentences
from raysweep.data.prepared import Prepared, TaskArtifacts
from raysweep.data.relation_sources import columns_to_read, kind_of_sweep
from raysweep.encoders.encoder import names_in_memory
from raysweep.encoders.locate import ModelSource, locate
from raysweep.encoders.size import embedding_width
from raysweep.encoders.structure import Structure
from raysweep.encoders.traits import Role, check_files, notes
from raysweep.errors import InputError
from raysweep.metrics import retrieval
from raysweep.prepare import ingest
from raysweep.prepare.ingest import PiecesBySplit
from raysweep.training.teacher import Teacher

CELLS = 3
"""Version of the method that trains an inverted file's cells. It is part of the neighbors' key."""

CARVING = 2
"""Version of the method that carves dev from train. It is part of the sentences' key."""

_RELATED = ("kind", "columns", "positive_label", "thresholds")
"""Settings of ``data`` that have no effect on labeled sentences."""

LABELS = 2
"""Version of label normalization. It is part of the sentences' key."""


@dataclass(frozen=True)
class ArtifactStage:
    """An artifact to build. The parameters are hashed into its key and stored in its manifest.

    Subclasses add the stage's inputs. If a sweep can have several stages of one kind, ``varies_by`` is the name of the
    parameter that distinguishes them.
    """

    kind: ClassVar[str]
    varies_by: ClassVar[str | None] = None
    artifact: Artifact
    parameters: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Return the stage's name for messages."""
        return f"{self.kind} {self.parameters[self.varies_by]}" if self.varies_by else self.kind


@dataclass(frozen=True)
class SentencesStage(ArtifactStage):
    """Sentences, labels and splits, read from the listed sources."""

    kind = "sentences"
    data: DataConfig
    pieces: PiecesBySplit


@dataclass(frozen=True)
class RelationsStage(ArtifactStage):
    """The sentences of retrieval data or pairs, and the relations between them."""

    kind = "sentences"
    data: DataConfig


@dataclass(frozen=True)
class EncodedStage(ArtifactStage):
    """One encoder's tokens and unit embeddings for all sentences.

    Tokens are stored only if the encoder can embed stored tokens. If the encoder has several roles, ``role`` is the one
    with the most requirements. An encoder with a Router embeds all sentences as ``side``.
    """

    kind = "encoded"
    sentences: Artifact
    encoder: EncoderConfig
    role: Role
    side: Side = "document"


@dataclass(frozen=True)
class TokensStage(ArtifactStage):
    """Tokens of all sentences for an encoder whose untuned embeddings are not needed."""

    kind = "tokens"
    sentences: Artifact
    encoder: EncoderConfig


@dataclass(frozen=True)
class NeighborsStage(ArtifactStage):
    """The nearest training sentences of each training sentence, according to the embeddings in ``encoded``."""

    kind = "neighbors"
    sentences: Artifact
    encoded: Artifact


@dataclass(frozen=True)
class RandomNeighborsStage(ArtifactStage):
    """Random training sentences for each training sentence."""

    kind = "neighbors"
    sentences: Artifact


@dataclass(frozen=True)
class ExamplesOfKind(ArtifactStage):
    """Training examples of one kind."""

    kind = "examples"
    varies_by = "example_kind"

    @property
    def example_kind(self) -> str:
        return str(self.parameters["example_kind"])


@dataclass(frozen=True)
class ExamplesStage(ExamplesOfKind):
    """Training examples of one kind, formed from neighbors.

    If ``random_neighbors`` is given, it supplies the neighbors of other classes.
    """

    sentences: Artifact
    neighbors: Artifact
    random_neighbors: Artifact | None = None


@dataclass(frozen=True)
class JoinedStage(ArtifactStage):
    """The sentences of another artifact, followed by the concatenations of all ordered pairs of the same class."""

    kind = "joined"
    sentences: Artifact


@dataclass(frozen=True)
class AllPairsStage(ExamplesOfKind):
    """Training examples of one kind, drawn from all ordered pairs of sentences of the same class.

    ``given`` contains the sources' sentences. ``sentences`` also contains the joined ones, if examples use them.
    """

    sentences: Artifact
    given: Artifact


@dataclass(frozen=True)
class RelationExamplesStage(ExamplesOfKind):
    """Training examples of one kind from retrieval data or pairs."""

    sentences: Artifact


@dataclass(frozen=True)
class ScoresStage(ArtifactStage):
    """Labels and expert scores for one split's pairs.

    ``experts`` contains each expert's embeddings. For train, ``source`` contains the examples to score. For dev, it
    contains the embeddings whose nearest neighbors form the pairs.
    """

    kind = "scores"
    varies_by = "split"
    sentences: Artifact
    experts: tuple[Artifact, ...]
    source: Artifact

    @property
    def split(self) -> str:
        return str(self.parameters["split"])


@dataclass(frozen=True)
class TeacherStage(ArtifactStage):
    """The teacher's class probabilities for all sentences."""

    kind = "teacher"
    sentences: Artifact
    teacher: Teacher

    @property
    def encoder(self) -> EncoderConfig:
        return self.teacher.encoder


@dataclass(frozen=True)
class Plan:
    """The artifacts of a sweep, and the stages that build them.

    Each stage comes after the stages that build its inputs. ``models`` are the encoders that workers load. ``notes`` are
    messages about unexpected properties of the encoders.
    """

    config: SweepConfig
    space: Space
    store: Store
    stages: tuple[ArtifactStage, ...]
    prepared: Prepared
    models: Mapping[EncoderConfig, ModelSource]
    notes: tuple[str, ...] = ()
    parts: "tuple[Plan, ...]" = ()  # one for each data set of a sequence

    @property
    def missing(self) -> list[ArtifactStage]:
        """Return the stages whose artifacts are not in the store."""
        return [stage for stage in self.stages if not stage.artifact.exists]

    @property
    def sentences(self) -> Artifact:
        """Return the artifact with the sources' sentences, without joined ones."""
        return self.stages[0].artifact

    def check_sentences(self) -> None:
        """Raise InputError if the stored sentences are unsuitable for the sweep.

        For a sequence, only the sentences built so far are checked.
        """
        if self.parts:
            for part in self.parts:
                if part.sentences.exists:
                    part.check_sentences()
            return
        self.check_labels()
        self.check_k()
        self.check_pairs()
        for stage in self.stages:
            if isinstance(stage, TeacherStage):
                stage.teacher.check_classes(self.sentences.summary["label_names"])

    def check_pairs(self) -> None:
        """Raise InputError if ``examples.neighbors`` is ``all`` and there are too many pairs."""
        mining = self.config.examples
        if mining.neighbors != "all" or not self.prepared.examples_artifacts:
            return
        counts = Sentences(self.sentences.folder).summary.num_by_label["train"].values()
        num_pairs = sum(min(count, mining.anchors_per_class or count) ** 2 for count in counts)
        if num_pairs > MAX_PAIRS:
            raise InputError(
                f"examples.neighbors is all, but train has {num_pairs:,} ordered pairs of the same class; allowed: at most "
                f"{MAX_PAIRS:,}; to use fewer sentences, set or lower examples.anchors_per_class"
            )

    def check_k(self) -> None:
        """Raise InputError if a retrieval pool has fewer than k sentences."""
        if self.config.data.is_related:
            return
        num_sentences = self.sentences.summary["num_sentences"]
        evaluation = self.config.evaluation
        for split in ("dev", "test"):
            if num_queries := num_sentences.get(split, 0):
                num_pool = min(num_sentences["train"], evaluation.num_pool or 5 * num_queries)
                retrieval.check_k(evaluation.k, num_pool, "evaluation.k")

    def check_labels(self) -> None:
        """Raise InputError if the labels do not seem to be classes, unless ``data.labels`` is ``as_is``."""
        check_classes(self.config.data, self.sentences.summary["label_names"])

    def check_freezing(self) -> None:
        """Raise InputError if the encoder lacks a freezing level in the space.

        The encoder's tokens must have been built.
        """
        names = self.prepared.tokens_artifacts.document.summary["parameter_names"]
        model_type = locate(self.config.model).model_type
        check_structure(self.config, self.space, Structure(model_type, names))


def make_plan(config: SweepConfig, space: Space) -> Plan:
    """Plan the artifacts of a sweep.

    This can be slow, because it lists the sources, hashes local files, and downloads missing encoders. It does not write
    artifacts or need a cluster.

    Raises:
        InputError: If a source cannot be read, or if an encoder or the teacher is missing or unsuitable for the sweep.
    """
    if config.data.sequence:
        return _plan_sequence(config, space)
    pieces = ingest.list_pieces(config.data)
    config = of_kind(config, space, kind_of_sweep(config.data, pieces["train"][0]))
    fingerprints = _check_sources(config.data, pieces)
    encoders = _locate_encoders(config, space)
    model = encoders[config.model]
    reference = encoders[config.reference_encoder]
    teacher = Teacher.find(config.teacher) if config.teacher and has_teacher(space) else None

    store = Store(config.storage.artifacts_location)
    planner = _Planner(config, store, encoders)
    kinds = mined_kinds(space.values("loss"))
    is_related = config.data.is_related
    given = (
        planner.relations(fingerprints) if is_related else planner.sentences(pieces, fingerprints)
    )
    sentences = planner.joined(given) if kinds and config.examples.concatenated else given
    tokens = planner.tokens(sentences, [] if is_related else kinds)
    embeddings = planner.embeddings(sentences, reference)
    if is_related:
        examples = planner.relation_examples(sentences, kinds)
    elif config.examples.neighbors == "all":
        examples = planner.all_pairs(sentences, given, kinds)
    else:
        examples = planner.examples(sentences, kinds)
    scores = planner.scores(sentences, examples, embeddings.document)
    prepared = Prepared(
        model=model.config.model_dump(),
        model_identity=model.identity,
        sentences_artifact=sentences,
        tokens_artifacts=tokens,
        reference_artifacts=embeddings,
        examples_artifacts=examples,
        reference=reference.config.model_dump(),
        reference_identity=reference.identity,
        scores_artifacts=scores,
        teacher_artifact=None if teacher is None else planner.teacher(sentences, teacher),
    )
    lines = dict.fromkeys(line for encoder in encoders.values() for line in encoder.notes)
    models = {config: encoder.source for config, encoder in encoders.items()}
    if teacher is not None:
        models[teacher.encoder] = locate(teacher.encoder)
    return Plan(
        config, space, store, tuple(planner.stages.values()), prepared, models, tuple(lines)
    )


def _plan_sequence(config: SweepConfig, space: Space) -> Plan:
    """Plan the artifacts for each data set of a sequence, as for a sweep on that data set alone."""
    parts = {}
    for name, data in config.data.tasks.items():
        try:
            parts[name] = make_plan(config.model_copy(update={"data": data}), space)
        except InputError as error:
            raise InputError(f"data.sequence: {name}: {error}") from None
    # Build all sentences first, so that they are checked before costly stages.
    stages = {
        stage.artifact: stage
        for part in parts.values()
        for stage in part.stages
        if stage.kind == "sentences"
    }
    stages |= {stage.artifact: stage for part in parts.values() for stage in part.stages}
    first, *_ = parts.values()
    tasks = {
        name: TaskArtifacts(part.sentences, part.prepared.reference_artifacts)
        for name, part in parts.items()
    }
    return Plan(
        config,
        space,
        first.store,
        tuple(stages.values()),
        replace(first.prepared, tasks=tasks),
        first.models,
        first.notes,
        tuple(parts.values()),
    )


def _check_sources(data: DataConfig, pieces: PiecesBySplit) -> dict[str, str]:
    """Check the first rows of each configured source, and return the sources' fingerprints by split."""
    fingerprints: dict[str, str] = {}
    for split in SPLITS:
        if getattr(data, split):  # the demo's dev and test splits are determined by train
            first = pieces[split][0]
            if data.kind is not None and data.is_related and first.file is None:
                columns = columns_to_read(data, data.kind, first)
                fingerprints[split] = sources.values_fingerprint(pieces[split], columns)
                continue
            if not data.is_related:
                bad_rows = BadRows(is_dropped=data.on_bad_row == "drop")
                sources.check_first(pieces[split], data.text_column, data.label_column, bad_rows)
            fingerprints[split] = sources.fingerprint(
                pieces[split], data.text_column, data.label_column
            )
    return fingerprints


def _locate_encoders(config: SweepConfig, space: Space) -> "dict[EncoderConfig, _Encoder]":
    """Locate the sweep's encoders and check that they are suitable for their roles."""
    roles: list[tuple[EncoderConfig, Role]] = [
        (config.model, "tuned"),
        (config.reference_encoder, "reference"),
        (config.mining_encoder, "expert"),
    ]
    model_sources: dict[EncoderConfig, ModelSource] = {}
    for encoder, role in roles:
        _locate_into(model_sources, encoder, role)
    for number, expert in enumerate(config.examples.experts):
        try:
            _locate_into(model_sources, expert, "expert")
        except InputError as error:
            raise InputError(f"examples.experts[{number}]: {error}") from None
    _check_model(config, space, model_sources[config.model])
    return {encoder: _Encoder.of(encoder, source) for encoder, source in model_sources.items()}


def _locate_into(
    model_sources: dict[EncoderConfig, ModelSource], encoder: EncoderConfig, role: Role
) -> None:
    """Add an encoder's source and check that the encoder is suitable for the role."""
    if encoder not in model_sources:
        model_sources[encoder] = locate(encoder)
    check_files(encoder, role, model_sources[encoder])


def check_structure(config: SweepConfig, space: Space, structure: Structure) -> None:
    """Raise InputError if an encoder with this structure is unsuitable for the sweep.

    The encoder must have the space's freezing levels. For layer_decay, adapters and gradient checkpointing, it must
    also have blocks.
    """
    levels = space.values("freezing") or ["none"]
    for freeze_output_dense in space.values("freeze_output_dense") or [False]:
        for level in levels:
            structure.frozen_names(level, freeze_output_dense=freeze_output_dense)
    if any(decay != 1.0 for decay in space.values("layer_decay")):
        structure.heights()
    if "lora" in space.values("adapter"):
        structure.adapted_layers(structure.names, "all_linear")
    if config.resources.gradient_checkpointing:
        structure.block_names(structure.names)


def _check_model(config: SweepConfig, space: Space, source: ModelSource) -> None:
    """Check the encoder's structure and width without loading its weights.

    Trials check the width again, because not all encoders specify it in their files.

    Raises:
        InputError: If the structure is unsuitable, or if a shortened width is not below the full width.
    """
    weights = source.folder / "model.safetensors"
    if weights.is_file():
        with safetensors.safe_open(weights, "numpy") as file:
            names = list(file.keys())
        structure = Structure(source.model_type, names)
        if not structure.is_complete:  # transformers may rename parameters as it loads them
            names = names_in_memory(source.folder) or names
            structure = Structure(source.model_type, names)
        check_structure(config, space, structure)
    full = embedding_width(source)
    if full is None:
        return
    for text in space.values("matryoshka"):
        if text is not None:
            matryoshka.widths(text, full)
    for width in config.evaluation.points.truncate:
        matryoshka.check_truncated(width, full)


class _Encoder(NamedTuple):
    """A located encoder. Its configuration includes the prompts from its source."""

    config: EncoderConfig
    source: ModelSource
    notes: list[str]
    side: Side = "document"  # "query" only for an encoder with a Router

    @classmethod
    def of(cls, config: EncoderConfig, source: ModelSource) -> "_Encoder":
        prompts = source.prompts_of(config)
        prompt: str | Prompts = prompts.document
        if not prompts.is_shared:
            prompt = Prompts(query=prompts.query, document=prompts.document)
        with_prompt = config.model_copy(update={"prompt": prompt})
        return cls(with_prompt, source, notes(config, "tuned", source))

    @property
    def identity(self) -> str:
        return self.source.identity

    def on(self, side: Side) -> "_Encoder":
        """Return the encoder for one side, with only that side's prompt."""
        config = self.config.model_copy(update={"prompt": self.config.prompt_on(side)})
        return self._replace(config=config, side=side if self.source.has_router else "document")

    @property
    def sides(self) -> "Sides[_Encoder]":
        return Sides.merge(self.on("query"), self.on("document"))


def _tokenization(located: _Encoder) -> dict[str, Any]:
    """Return the parameters that determine the tokens of an encoder with a single prompt."""
    encoder = located.config
    parameters = {
        "encoder": located.identity,
        "prompt": encoder.prompt,
        "max_tokens": encoder.max_tokens,
    }
    if located.side == "query":
        parameters["side"] = "query"
    return parameters


def _encoding(located: _Encoder) -> dict[str, Any]:
    """Return the parameters that determine the embeddings of an encoder with a single prompt."""
    parameters = _tokenization(located)
    for name in ("precision", "weights"):
        value = getattr(located.config, name)
        if value != "fp32":
            parameters[name] = value
    return parameters


class _Planner:
    """Collects the stages of a sweep, without duplicates.

    An artifact's key is a hash of its parameters and of its inputs' keys.
    """

    def __init__(
        self, config: SweepConfig, store: Store, encoders: Mapping[EncoderConfig, _Encoder]
    ) -> None:
        self.config = config
        self.store = store
        self.encoders = encoders
        self.stages: dict[Artifact, ArtifactStage] = {}

    def sentences(self, pieces: PiecesBySplit, fingerprints: Mapping[str, str]) -> Artifact:
        data = self.config.data
        # Only the content of the sources matters. The carving parameters matter only if data.dev is not set.
        excluded = {"train", "dev", "test", "sequence", *_RELATED}
        if data.dev:
            excluded |= {"dev_fraction", "max_dev"}
        if data.on_bad_row == "error":
            excluded.add("on_bad_row")
        parameters = data.model_dump(exclude=excluded)
        parameters["content"] = dict(fingerprints)
        if not data.dev:
            parameters["seed"] = self.config.seed
            parameters["carving"] = CARVING
        # replaces data.labels, which only determines whether labels are checked
        parameters["labels"] = LABELS
        artifact, keyed = self._key("sentences", parameters, reads=[])
        return self._add(SentencesStage(artifact, keyed, data, pieces))

    def relations(self, fingerprints: Mapping[str, str]) -> Artifact:
        """Return the artifact with the sentences of retrieval data or pairs."""
        data = self.config.data
        parameters = data.model_dump(include={"text_column", "label_column", "subset", *_RELATED})
        parameters["content"] = dict(fingerprints)
        artifact, keyed = self._key("sentences", parameters, reads=[])
        return self._add(RelationsStage(artifact, keyed, data))

    def relation_examples(self, sentences: Artifact, kinds: Sequence[str]) -> dict[str, Artifact]:
        """Return the artifacts with the examples from retrieval data or pairs, keyed by kind."""
        artifacts = {}
        for kind in kinds:
            parameters = {
                **self._example_parameters(kind),
                "combinations": self.config.examples.combinations,
            }
            artifact, keyed = self._key("examples", parameters, reads=[sentences])
            artifacts[kind] = self._add(RelationExamplesStage(artifact, keyed, sentences))
        return artifacts

    def tokens(self, sentences: Artifact, kinds: Sequence[str]) -> Sides[Artifact]:
        """Return the artifacts with the model's tokens.

        They also contain embeddings if the reference, mining or scoring needs them.
        """
        config = self.config
        reference = self.encoders[config.reference_encoder]
        embedding = [*reference.sides.distinct]
        if kinds and config.examples.are_nearest:
            mining_encoder = self.encoders[config.mining_encoder]
            embedding.append(mining_encoder.on("document"))
        if "scored_pair" in kinds:
            embedding += [
                self.encoders[expert].on("document") for expert in config.examples.experts
            ]
        encodings = [_encoding(encoder) for encoder in embedding]

        def tokens_of(model: _Encoder) -> Artifact:
            if _encoding(model) in encodings:
                return self.encoded(sentences, model, "tuned")
            artifact, keyed = self._key("tokens", _tokenization(model), reads=[sentences])
            return self._add(TokensStage(artifact, keyed, sentences, model.config))

        return self.encoders[config.model].sides.map(tokens_of)

    def embeddings(self, sentences: Artifact, reference: _Encoder) -> Sides[Artifact]:
        """Return the artifacts with the reference encoder's embeddings."""
        return reference.sides.map(lambda encoder: self.encoded(sentences, encoder, "reference"))

    def encoded(self, sentences: Artifact, located: _Encoder, role: Role) -> Artifact:
        artifact, keyed = self._key("encoded", _encoding(located), reads=[sentences])
        return self._add(
            EncodedStage(artifact, keyed, sentences, located.config, role, located.side)
        )

    def teacher(self, sentences: Artifact, teacher: Teacher) -> Artifact:
        parameters: dict[str, Any] = {
            "encoder": teacher.identity,
            "prompt": teacher.encoder.prompt_on("document"),
            "max_tokens": teacher.encoder.max_tokens,
            "weights": teacher.weights,
            "trained_on": teacher.trained_on,
        }
        if teacher.encoder.precision != "fp32":
            parameters["precision"] = teacher.encoder.precision
        artifact, keyed = self._key("teacher", parameters, reads=[sentences])
        return self._add(TeacherStage(artifact, keyed, sentences, teacher))

    def examples(self, sentences: Artifact, kinds: Sequence[str]) -> dict[str, Artifact]:
        """Return the artifacts with examples from mined neighbors, keyed by kind."""
        if not kinds:
            return {}
        mining = self.config.examples
        neighbors = self._neighbors(sentences)
        artifacts = {}
        for kind in kinds:
            parameters = self._example_parameters(kind)
            random_neighbors = None
            if kind != "positive_pair" and mining.negatives == "random":
                random_neighbors = self._random_neighbors(sentences)
            if kind != "positive_pair" and mining.negative_ranks is not None:
                parameters["negative_ranks"] = mining.negative_ranks
            if kind != "positive_pair" and mining.max_similarity is not None:
                parameters["max_similarity"] = mining.max_similarity
            if kind == "triplet" and mining.relative_margin is not None:
                parameters["relative_margin"] = mining.relative_margin
            reads = [sentences, neighbors, *([random_neighbors] if random_neighbors else [])]
            artifact, keyed = self._key("examples", parameters, reads)
            artifacts[kind] = self._add(
                ExamplesStage(artifact, keyed, sentences, neighbors, random_neighbors)
            )
        return artifacts

    def joined(self, given: Artifact) -> Artifact:
        """Return the artifact with the given sentences, followed by the joined ones."""
        parameters = {"joined": True, **self._sample()}
        artifact, keyed = self._key("sentences", parameters, reads=[given])
        return self._add(JoinedStage(artifact, keyed, given))

    def all_pairs(
        self, sentences: Artifact, given: Artifact, kinds: Sequence[str]
    ) -> dict[str, Artifact]:
        """Return the artifacts with examples from all ordered pairs of the same class, keyed by kind."""
        artifacts = {}
        for kind in kinds:
            parameters = {**self._example_parameters(kind), "mode": "all"}
            artifact, keyed = self._key("examples", parameters, reads=[sentences])
            artifacts[kind] = self._add(AllPairsStage(artifact, keyed, sentences, given))
        return artifacts

    def _example_parameters(self, kind: str) -> dict[str, Any]:
        """Return the parameters for one kind of example that do not depend on how pairs are formed."""
        mining = self.config.examples
        parameters = {
            "example_kind": kind,
            "target": mining.target,
            "seed": self.config.seed,
            **self._sample(),
        }
        if kind == "scored_pair":
            parameters["cosines"] = [mining.same_class_cosine, mining.other_class_cosine]
        return parameters

    def _sample(self) -> dict[str, Any]:
        """Return the parameters that determine the choice of anchors."""
        per_class = self.config.examples.anchors_per_class
        return {"anchors_per_class": per_class, "seed": self.config.seed} if per_class else {}

    def scores(
        self, sentences: Artifact, examples: Mapping[str, Artifact], reference: Artifact
    ) -> dict[str, Artifact]:
        """Return the artifacts with the experts' scores for scored pairs, keyed by split; empty without experts."""
        encoders = self.config.examples.experts
        if not encoders or "scored_pair" not in examples:
            return {}
        experts = tuple(
            self.encoded(sentences, self.encoders[encoder].on("document"), "expert")
            for encoder in encoders
        )
        names = [expert.name for expert in experts]
        artifacts = {}
        for split, source in (("train", examples["scored_pair"]), ("dev", reference)):
            parameters = {"split": split, "experts": names, "source": source.name}
            artifact, keyed = self._key("scores", parameters, reads=[sentences, source, *experts])
            artifacts[split] = self._add(ScoresStage(artifact, keyed, sentences, experts, source))
        return artifacts

    def _neighbors(self, sentences: Artifact) -> Artifact:
        mining = self.config.examples
        if mining.neighbors == "random":
            return self._random_neighbors(sentences)
        encoder = self.encoders[self.config.mining_encoder].on("document")
        encoded = self.encoded(sentences, encoder, "expert")
        parameters: dict[str, Any] = {
            "k": mining.k,
            "mode": mining.neighbors,
            "min_similarity": mining.min_similarity,
        }
        if mining.index != "exact":
            parameters |= {"index": mining.index, "seed": self.config.seed, "cells": CELLS}
        artifact, keyed = self._key("neighbors", parameters, reads=[sentences, encoded])
        return self._add(NeighborsStage(artifact, keyed, sentences, encoded))

    def _random_neighbors(self, sentences: Artifact) -> Artifact:
        mining = self.config.examples
        parameters = {"k": mining.k, "mode": "random", "seed": self.config.seed, **self._sample()}
        artifact, keyed = self._key("neighbors", parameters, reads=[sentences])
        return self._add(RandomNeighborsStage(artifact, keyed, sentences))

    def _key(
        self, kind: str, parameters: Mapping[str, Any], reads: Sequence[Artifact]
    ) -> tuple[Artifact, dict[str, Any]]:
        """Return the artifact and all parameters that are hashed into its key."""
        keyed = {**parameters, "reads": sorted(artifact.name for artifact in reads)}
        return self.store.artifact(kind, keyed), keyed

    def _add(self, stage: ArtifactStage) -> Artifact:
        self.stages.setdefault(stage.artifact, stage)
        return stage.artifact
