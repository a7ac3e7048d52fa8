"""Ray Data workers: callables that are created once per process and called with chunks of rows.

Most results are stored as shards of an artifact, and only reports are returned.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from raysweep.cluster.resources import Request
from raysweep.config.loss_spec import ExampleKind
from raysweep.config.sides import Side
from raysweep.config.sweep import EncoderConfig
from raysweep.data import examples
from raysweep.data.artifacts import Artifact
from raysweep.data.dataset import Sentences
from raysweep.data.expert_scores import ExpertScores
from raysweep.data.neighbor_shard import NeighborShard
from raysweep.data.neighbors import merge
from raysweep.data.random_neighbors import RandomNeighbors, sample_anchors
from raysweep.data.shards import Shard, ShardSet, open_array
from raysweep.encoders import encoder
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.encoders.traits import Role
from raysweep.prepare.neighbor_shards import SearchJob, as_shard
from raysweep.training.teacher import LoadedTeacher, Teacher

TRIED_SENTENCES = 32

Columns = dict[str, npt.NDArray[Any]]
"""Arrays of equal length, keyed by name.

The columns of a chunk have length 1: ``number``, ``start``, ``stop`` (exclusive) and those of its job.
"""


class Worker(Protocol):
    """Callable that takes a chunk and returns columns, or a shard for a :class:`StoringWorker` to store."""

    def __call__(self, chunk: Columns, /) -> Any: ...


def chunk_number(chunk: Columns) -> int:
    return int(chunk["number"][0])


def row_range(chunk: Columns) -> tuple[int, int]:
    """Return the chunk's start and stop (exclusive)."""
    return int(chunk["start"][0]), int(chunk["stop"][0])


class StoringWorker:
    """Worker that stores the shards returned by an inner worker, and returns one JSON report per chunk."""

    def __init__(
        self, shards: ShardSet, kind: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> None:
        self.shards = shards
        self.worker = kind(*arguments)

    def __call__(self, chunk: Columns) -> Columns:
        shard: Shard = self.worker(chunk)
        facts = {**shard.facts, "rows": list(row_range(chunk))}
        report = self.shards.write(chunk_number(chunk), Shard(shard.columns, facts))
        return {"report": np.array([json.dumps(report)], object)}


class EncodeWorker:
    """Worker that returns an encoder's tokens and unit embeddings for chunks of sentences.

    The first chunk's report also describes the encoder. No tokens are returned if the encoder does not embed stored
    tokens.
    """

    def __init__(
        self,
        sentences: Artifact,
        config: EncoderConfig,
        identity: str,
        role: Role,
        side: Side,
        request: Request,
    ) -> None:
        self.artifacts = sentences.location
        self.sentences = Sentences(sentences.folder)
        self.config = config
        self.identity = identity
        self.role = role
        self.request = request
        self.side = side

    @cached_property
    def model(self) -> LoadedEncoder:
        """Return the encoder, loaded on first use.

        If the constructor loaded it, Ray would report an error only as a dead actor.
        """
        encoder.use_threads(self.request.threads)
        device = "cuda" if self.request.gpus else "cpu"
        return LoadedEncoder.load(
            self.config, self.role, identity=self.identity, artifacts=self.artifacts, device=device
        )

    def __call__(self, chunk: Columns) -> Shard:
        start, stop = row_range(chunk)
        texts = self.sentences.texts(np.arange(start, stop))
        if not self.model.traits.embeds_tokens:
            embeddings = self.model.embed_texts(texts, side=self.side)
            return Shard({"embeddings": embeddings}, self._facts(start, 0))
        tokens = self.model.tokenize(texts)
        columns = {"embeddings": self.model.embed(tokens), "tokens": tokens.as_lists}
        facts = self._facts(start, len(tokens.flat))
        if num_truncated := self.model.count_truncated(texts, tokens):
            facts["num_truncated"] = num_truncated
        return Shard(columns, facts)

    def _facts(self, start: int, num_tokens: int) -> dict[str, Any]:
        facts: dict[str, Any] = {"num_tokens": num_tokens}
        if start == 0:
            facts["parameter_names"] = self.model.parameter_names
            facts["width"] = self.model.width
        return facts


class TokenWorker(EncodeWorker):
    """Worker that returns only tokens for chunks of sentences.

    The first sentences are also embedded, so that non-finite weights are detected before any trial starts.
    """

    def __call__(self, chunk: Columns) -> Shard:
        start, stop = row_range(chunk)
        texts = self.sentences.texts(np.arange(start, stop))
        tokens = self.model.tokenize(texts)
        if start == 0:
            self.model.embed_texts(texts[:TRIED_SENTENCES])
        return Shard({"tokens": tokens.as_lists}, self._facts(start, len(tokens.flat)))


class TeacherWorker:
    """Worker that returns the teacher's class probabilities for chunks of sentences."""

    def __init__(self, sentences: Artifact, teacher: Teacher, request: Request) -> None:
        self.artifacts = sentences.location
        self.sentences = Sentences(sentences.folder)
        self.teacher = teacher
        self.request = request

    @cached_property
    def model(self) -> LoadedTeacher:
        """Return the teacher, loaded on first use; see :attr:`EncodeWorker.model`."""
        encoder.use_threads(self.request.threads)
        return self.teacher.load("cuda" if self.request.gpus else "cpu", self.artifacts)

    def __call__(self, chunk: Columns) -> Shard:
        start, stop = row_range(chunk)
        texts = self.sentences.texts(np.arange(start, stop))
        return Shard({"probabilities": self.model.probabilities(texts)}, {})


class NeighborWorker:
    """Worker that returns the neighbors of chunks of rows, used if there is only one shard."""

    def __init__(self, job: SearchJob, request: Request) -> None:
        self.source = job.open_vectors()
        self.job = job
        self.shard = NeighborShard(self.source, np.arange(len(self.source)), request.threads)

    def __call__(self, chunk: Columns) -> Shard:
        rows = row_range(chunk)
        queries = self.source.read(np.arange(*rows))
        neighbors = self.shard.search(queries, self.job.search)
        return as_shard(merge([neighbors], self.job.search), rows)


class RandomNeighborWorker:
    """Worker that draws random neighbors for chunks of rows."""

    def __init__(self, sentences: Artifact, parameters: Mapping[str, Any]) -> None:
        self.seed = parameters["seed"]
        dataset = Sentences(sentences.folder)
        train = dataset.ids("train")
        labels = np.asarray(dataset.labels[train])
        groups = np.asarray(dataset.duplicate_groups[train])
        is_anchor = None
        if per_class := parameters.get("anchors_per_class"):
            is_anchor = sample_anchors(labels, per_class, self.seed)
        self.neighbors = RandomNeighbors(labels, groups, parameters["k"], is_anchor)

    def __call__(self, chunk: Columns) -> Shard:
        rows = row_range(chunk)
        stream = np.random.SeedSequence(self.seed, spawn_key=(rows[0],))
        neighbors = self.neighbors.draw(*rows, np.random.default_rng(stream))
        return as_shard(neighbors, rows)


class ScoreWorker:
    """Worker that returns the experts' cosines for sentence pairs, and whether the classes match."""

    def __init__(self, sentences: Artifact, pairs: Artifact, experts: Sequence[Artifact]) -> None:
        self.labels = np.asarray(Sentences(sentences.folder).labels)
        self.pairs = open_array(pairs.folder, "ids")
        self.embeddings = [open_array(expert.folder, "embeddings") for expert in experts]

    def __call__(self, chunk: Columns) -> Shard:
        start, stop = row_range(chunk)
        pairs = np.asarray(self.pairs[start:stop])
        scores = ExpertScores.of(pairs, self.labels, self.embeddings)
        return Shard(scores.columns, {"num_active": scores.num_active})


class CandidateNeighbors:
    """Neighbors of anchors, subject to the limits on negatives in the example parameters.

    Neighbors of other classes come from ``random_neighbors``, if given.
    """

    def __init__(
        self,
        neighbors: Artifact,
        parameters: Mapping[str, Any],
        random_neighbors: Artifact | None = None,
    ) -> None:
        self.ranks: tuple[int, int] | None = parameters.get("negative_ranks")
        self.max_similarity: float | None = parameters.get("max_similarity")
        self.relative_margin: float | None = parameters.get("relative_margin")
        limits = (self.ranks, self.max_similarity, self.relative_margin)
        has_limits = any(limit is not None for limit in limits)
        self.ids = open_array(neighbors.folder, "ids")
        self.cosines = open_array(neighbors.folder, "cosines") if has_limits else None
        self.random_ids = None
        if random_neighbors is not None:
            self.random_ids = open_array(random_neighbors.folder, "ids")

    def read(
        self, start: int, stop: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64] | None]:
        """Return the rows' neighbors, (rows, 2, k), and the number of negatives per positive (None if not limited)."""
        ids = np.asarray(self.ids[start:stop])
        if self.random_ids is not None:
            return examples.with_negatives_of(np.asarray(self.random_ids[start:stop]), ids), None
        if self.cosines is None:
            return ids, None
        cosines = np.asarray(self.cosines[start:stop])
        if self.ranks is not None:
            ids, cosines = examples.keep_ranks(*self.ranks, ids, cosines)
        if self.max_similarity is not None:
            ids, cosines = examples.keep_similar_up_to(self.max_similarity, ids, cosines)
        return ids, examples.num_negatives(ids, cosines, self.relative_margin)


class CandidateCounter:
    """Worker that counts the examples of one kind that each anchor in a chunk could yield."""

    def __init__(
        self,
        neighbors: Artifact,
        parameters: Mapping[str, Any],
        random_neighbors: Artifact | None = None,
    ) -> None:
        self.neighbors = CandidateNeighbors(neighbors, parameters, random_neighbors)
        self.kind: ExampleKind = parameters["example_kind"]

    def __call__(self, chunk: Columns) -> Columns:
        ids, negatives = self.neighbors.read(*row_range(chunk))
        return {"counts": examples.num_candidates(self.kind, ids, negatives)}


class ExampleWorker:
    """Worker that draws examples for chunks of anchors. ``quotas`` is the number of examples per anchor."""

    def __init__(
        self,
        sentences: Artifact,
        neighbors: Artifact,
        parameters: Mapping[str, Any],
        random_neighbors: Artifact | None = None,
    ) -> None:
        self.train = Sentences(sentences.folder).ids("train")
        self.neighbors = CandidateNeighbors(neighbors, parameters, random_neighbors)
        self.kind = parameters["example_kind"]
        self.seed = parameters["seed"]
        self.cosines = tuple(parameters.get("cosines", (1.0, 0.0)))

    def __call__(self, chunk: Columns) -> Shard:
        start, stop = row_range(chunk)
        neighbor_ids, negatives = self.neighbors.read(start, stop)
        anchors = examples.Chunk(
            number=start // examples.CHUNK,
            anchors=np.arange(start, stop),
            neighbor_ids=neighbor_ids,
            quotas=np.stack(list(chunk["quotas"][0])),
            negatives=negatives,
        )
        positions, targets = examples.draw(self.kind, anchors, self.seed, self.cosines)
        # Neighbors are numbered within train, examples within all sentences.
        columns: Columns = {"ids": self.train[positions].astype(np.int32)}
        if targets is not None:
            columns["targets"] = targets
        return Shard(columns, {})
