"""Operating points, which are the retrieval encoders obtained from one rung of a trial.

e_R and e_M are a sentence's unit embeddings under the reference encoder R and the tuned encoder M, and d_R and d_M are
their widths. cos_R and cos_M are the corresponding cosines between a query and a sentence. p is a sentence's class
probabilities. With the ``separate`` tower, M has separate encoders for queries and documents.

==================== ================================== ================================= ===============
point                retrieval score                    embedding                         width
==================== ================================== ================================= ===============
``plain``            cos_M                              e_M                               d_M
``concat(g)``        cos_R + g cos_M                    [e_R; sqrt(g) e_M]                d_R + d_M
``class_concat(g)``  cos_R + g p(query) . p(sentence)   [e_R; sqrt(g) p]                  d_R + classes
``interpolate(a)``   cos_a                              e_a                               d_M
``truncate(d)``      cosine of the first d coordinates  the first d coordinates of e_M    d
``labeled(g)``       cos_R + g p(query)[label]          query [e_R; sqrt(g) p],           d_R + classes
                                                        sentence [e_R; sqrt(g) one-hot]
``query``            cos(e_M(query), e_R(sentence))     query e_M, sentence e_R           d_R
``query_concat(g)``  cos_R + g cos(e_M(query),          query e_R + g e_M, sentence e_R   d_R
                     e_R(sentence))
==================== ================================== ================================= ===============

e_a and cos_a are the embedding and the cosine under the interpolated weights (1 - a) base + a tuned. Only
``interpolate`` requires encoding the queries and the pool again. ``labeled`` is reported separately because it uses the
labels of the pool. Trials with the ``query`` tower have only the last two points because their documents keep the
reference encoder's embeddings.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from raysweep.config import matryoshka
from raysweep.config.sides import Sides, Tower
from raysweep.config.sweep import PointsConfig
from raysweep.encoders.side_encoders import Encoders
from raysweep.evaluation.evaluation_set import EvaluationSet, ScoredSet, TrialDivergedError
from raysweep.evaluation.relation_set import RelationSet
from raysweep.evaluation.sequence_set import SequenceSet, join_scores
from raysweep.metrics import retrieval
from raysweep.metrics.arrays import Float32Array, Float64Array
from raysweep.results.types import QUERY_KINDS, PointKey

FloatArray = TypeVar("FloatArray", Float32Array, Float64Array)


@dataclass(frozen=True)
class Head:
    """A softmax head on unit embeddings, with ``weight`` (classes, width) and ``bias`` (classes,).

    Both are already divided by ``temperature``, which :mod:`raysweep.evaluation.calibration` fits.
    """

    weight: Float32Array
    bias: Float32Array
    temperature: float = 1.0

    def at_temperature(self, temperature: float) -> "Head":
        """Return this head with its logits further divided by ``temperature``."""
        divisor = np.float32(temperature)
        return Head(self.weight / divisor, self.bias / divisor, self.temperature * temperature)

    def logits(self, embeddings: Float32Array) -> Float32Array:
        """Return the logits (n, classes) of unit embeddings (n, width), like :func:`raysweep.training.losses.logits`."""
        scale = np.float32(self.weight.shape[1] ** 0.5)
        logits: Float32Array = embeddings @ (self.weight.T * scale) + self.bias
        return logits

    def probabilities(self, embeddings: Float32Array) -> Float32Array:
        """Return the class probabilities (n, classes) of unit embeddings (n, width)."""
        return softmax(self.logits(embeddings))


def softmax(logits: FloatArray) -> FloatArray:
    """Return the class probabilities for ``logits``, both (n, classes)."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities: FloatArray = powers / powers.sum(axis=1, keepdims=True)
    return probabilities


@dataclass(frozen=True)
class TunedEncoder:
    """A tuned encoder with its current weights and, if the loss has one, its softmax head.

    Within ``interpolated(a)``, which ``interpolate`` points require, the encoders have the weights (1 - a) base + a
    tuned.
    """

    encoders: Encoders
    head: Head | None = None
    interpolated: Callable[[float], AbstractContextManager[None]] | None = None

    @property
    def width(self) -> int:
        """Return the embedding dimension."""
        return self.encoders.query.width


@dataclass(frozen=True)
class Encoded:
    """Unit embeddings of the queries and the pool, and class probabilities if there is a head."""

    queries: Float32Array
    pool: Float32Array
    query_classes: Float32Array | None = None
    pool_classes: Float32Array | None = None

    def under(self, head: Head | None) -> "Encoded":
        """Return the same embeddings with class probabilities from a head, if any."""
        if head is None:
            return Encoded(self.queries, self.pool)
        return Encoded(
            self.queries, self.pool, head.probabilities(self.queries), head.probabilities(self.pool)
        )

    def truncated(self, width: int) -> "Encoded":
        """Return unit embeddings from the first ``width`` coordinates, without class probabilities.

        Raises:
            InputError: If ``width`` is not less than the number of coordinates.
        """
        matryoshka.check_truncated(width, self.queries.shape[1])
        return Encoded(_unit(self.queries[:, :width]), _unit(self.pool[:, :width]))


def _unit(vectors: Float32Array) -> Float32Array:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    result: Float32Array = vectors / np.maximum(norms, np.finfo(np.float32).tiny)
    return result


LABELED = "labeled"


def wanted_labeled(grid: PointsConfig, *, has_head: bool) -> list[PointKey]:
    """Return the keys of the grid's ``labeled`` points, or an empty list if there is no softmax head."""
    return [(LABELED, value) for value in grid.labeled] if has_head else []


QUERY, QUERY_CONCAT = QUERY_KINDS


def keep_documents(keys: Iterable[PointKey]) -> bool:
    """Return whether documents keep the reference encoder's embeddings at these points."""
    return any(kind in QUERY_KINDS for kind, _ in keys)


def wanted(grid: PointsConfig, *, has_head: bool, tower: Tower = "both") -> list[PointKey]:
    """Return the keys of the tuned encoder's own point and of the applicable points in the grid."""
    if tower == "query":
        return [(QUERY, None), *((QUERY_CONCAT, value) for value in grid.query_concat)]
    keys: list[PointKey] = [("plain", None)]
    keys += [("concat", value) for value in grid.concat]
    if has_head:
        keys += [("class_concat", value) for value in grid.class_concat]
    keys += [("interpolate", value) for value in grid.interpolate]
    keys += [("truncate", float(value)) for value in grid.truncate]
    return keys


def width(key: PointKey, tuned: TunedEncoder, evaluation: ScoredSet) -> int:
    """Return the embedding dimension of an operating point."""
    kind, value = key
    if kind == "truncate":
        assert value is not None
        return int(value)
    reference_width = int(evaluation.reference_queries.shape[1])
    if kind in QUERY_KINDS:
        return reference_width
    if kind == "concat":
        return reference_width + tuned.width
    if kind in ("class_concat", LABELED):
        assert tuned.head is not None
        return reference_width + len(tuned.head.bias)
    return tuned.width


def encode(tuned: TunedEncoder, evaluation: ScoredSet) -> Encoded:
    """Encode the queries and the pool with the current weights, in fp32.

    Raises:
        TrialDivergedError: If an embedding is not finite.
    """
    queries = tuned.encoders.query.embed(evaluation.queries)
    pool = tuned.encoders.document.embed(evaluation.pool)
    if not (np.isfinite(queries).all() and np.isfinite(pool).all()):
        raise TrialDivergedError("the embeddings are not finite")
    return Encoded(queries, pool).under(tuned.head)


def embed_on_both_sides(
    tuned: TunedEncoder, evaluation: ScoredSet, queries: Float32Array
) -> Sides[Float32Array]:
    """Return the unit embeddings (queries, width) of the split's sentences as queries and as documents.

    ``queries`` contains their embeddings as queries.
    """
    if tuned.encoders.is_shared:
        return Sides.same(queries)
    return Sides(queries, tuned.encoders.document.embed(evaluation.queries))


def measure(
    tuned: TunedEncoder,
    evaluation: ScoredSet,
    keys: Sequence[PointKey],
    encoded: Encoded | None = None,
) -> dict[PointKey, retrieval.Scores]:
    """Return the per-query scores of these points, in the order of ``keys``.

    ``encoded`` is the result of :func:`encode` for the same encoder and set. If it is None, it is computed when needed.

    Raises:
        TrialDivergedError: If an embedding is not finite.
    """
    scores: dict[PointKey, retrieval.Scores] = {}
    direct = [(kind, value) for kind, value in keys if kind not in ("interpolate", "truncate")]
    needs_encoded = any(kind != "interpolate" for kind, _ in keys)
    if encoded is None and needs_encoded:
        encoded = encode(tuned, evaluation)
    if encoded is not None and direct:
        scores |= score_encoded(encoded, evaluation, direct)
    for kind, value in keys:
        if kind == "interpolate":
            assert tuned.interpolated is not None and value is not None
            with tuned.interpolated(value):
                interpolated = encode(replace(tuned, head=None), evaluation)
            interpolated_scores = score_encoded(interpolated, evaluation, [("plain", None)])
            del interpolated  # free its memory before computing more embeddings
            scores[kind, value] = interpolated_scores["plain", None]
        elif kind == "truncate":
            assert encoded is not None and value is not None
            truncated = encoded.truncated(int(value))
            truncated_scores = score_encoded(truncated, evaluation, [("plain", None)])
            scores[kind, value] = truncated_scores["plain", None]
    return {key: scores[key] for key in keys}


def score_encoded(
    encoded: Encoded, evaluation: ScoredSet, keys: Sequence[PointKey]
) -> dict[PointKey, retrieval.Scores]:
    """Return the per-query scores of points other than ``interpolate`` and ``truncate``."""
    if isinstance(evaluation, RelationSet):
        weights = [value for _, value in keys]
        return dict(
            zip(keys, evaluation.score_sums(encoded.queries, encoded.pool, weights), strict=True)
        )
    if isinstance(evaluation, SequenceSet):  # each data set has its own pool
        of_tasks = [
            score_encoded(Encoded(encoded.queries[queries], encoded.pool[pool]), task, keys)
            for task, queries, pool in evaluation.slices()
        ]
        return {key: join_scores([scores[key] for scores in of_tasks]) for key in keys}
    assert isinstance(evaluation, EvaluationSet)
    num_queries = len(encoded.queries)
    shape = (num_queries, evaluation.k)
    retrieved = {key: np.empty(shape, np.int64) for key in keys}
    for start in range(0, num_queries, retrieval.QUERIES_PER_BLOCK):
        stop = start + retrieval.QUERIES_PER_BLOCK
        block = slice(start, stop)
        products = _Products.of(encoded, evaluation, block)
        positions_by_key = products.retrieve(keys, evaluation.k)
        for key, positions in positions_by_key.items():
            retrieved[key][block] = positions
    retrievals = list(retrieved.values())
    scores = evaluation.score_several(retrievals)
    return dict(zip(retrieved, scores, strict=True))


@dataclass(frozen=True)
class _Products:
    """Cosines (queries, pool) between a block of queries and the pool, under the tuned and the reference encoder."""

    tuned: Float32Array
    reference: Float32Array
    query_classes: Float32Array | None  # only for the queries in the block
    pool_classes: Float32Array | None
    pool_labels: npt.NDArray[np.integer]

    @classmethod
    def of(cls, encoded: Encoded, evaluation: EvaluationSet, block: slice) -> "_Products":
        tuned = encoded.queries[block] @ encoded.pool.T
        reference = evaluation.reference_queries[block] @ evaluation.reference_pool.T
        query_classes = None if encoded.query_classes is None else encoded.query_classes[block]
        return cls(tuned, reference, query_classes, encoded.pool_classes, evaluation.pool_labels)

    def retrieve(self, keys: Sequence[PointKey], k: int) -> dict[PointKey, npt.NDArray[np.int64]]:
        """Return the pool positions (queries, k) that each operating point retrieves."""
        retrieved: dict[PointKey, npt.NDArray[np.int64]] = {}
        for kind in ("plain", QUERY):
            if (kind, None) in keys:
                retrieved[kind, None] = retrieval.top_k(self.tuned, k)
        for kind in ("concat", QUERY_CONCAT, "class_concat", LABELED):
            values = [value for key_kind, value in keys if key_kind == kind and value is not None]
            if not values:
                continue
            # The retrieval score is cos_R plus ``added`` times the point's value.
            if kind in ("concat", QUERY_CONCAT):
                added = self.tuned
            else:
                assert self.query_classes is not None and self.pool_classes is not None
                if kind == LABELED:
                    added = self.query_classes.take(self.pool_labels, axis=1)
                else:
                    added = self.query_classes @ self.pool_classes.T
            positions_by_value = retrieval.top_k_of_sums(self.reference, added, values, k)
            for value, positions in zip(values, positions_by_value, strict=True):
                retrieved[kind, value] = positions
        return retrieved
