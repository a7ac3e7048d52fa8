"""Evaluation data, which consists of the queries of one split and a pool of training sentences."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from raysweep.config.sweep import EvaluationConfig
from raysweep.data.prepared import Prepared
from raysweep.metrics import retrieval
from raysweep.metrics.scores import spec_of
from raysweep.results.query_scores import PointName
from raysweep.results.readings import Reading, readable_rows
from raysweep.results.scores import Score, with_ratios
from raysweep.results.types import Point, ScoredSplit


class TrialDivergedError(RuntimeError):
    """Raised if a trial's loss, weights or embeddings are not finite."""


@dataclass(frozen=True, kw_only=True)
class ScoredSet(ABC):
    """Data for scoring encoders on one split.

    ``queries`` (q,) and ``pool`` (p,) are sentence ids. ``reference_queries`` (q, width) and ``reference_pool``
    (p, width) are their unit embeddings under the reference encoder.
    """

    split: ScoredSplit
    queries: npt.NDArray[np.integer]
    pool: npt.NDArray[np.integer]
    reference_queries: npt.NDArray[np.float32]
    reference_pool: npt.NDArray[np.float32]

    @property
    @abstractmethod
    def reference_scores(self) -> retrieval.Scores:
        """Return the reference encoder's scores."""

    @property
    def num_scored(self) -> int:
        """Return the number of scored queries or groups."""
        first, *_ = self.reference_scores.named.values()
        return len(first)

    def reading(self, scores: Mapping[PointName, retrieval.Scores]) -> Reading | None:
        """Return the sentences that points retrieve, or None if the set does not store them."""
        return None

    def point(self, scores: retrieval.Scores, **identity: Any) -> Point:
        """Return the operating point with these scores; ``identity`` contains its trial, step, kind, value and width."""
        measured = {}
        for name, values in scores.named.items():
            deviation = None if spec_of(name).is_binary else float(values.std())
            measured[name] = Score(float(values.mean()), deviation)
        reference = {name: self.reference_scores.mean(name) for name in self.reference_scores.named}
        return Point(split=self.split, scores=with_ratios(measured, reference), **identity)


@dataclass(frozen=True, kw_only=True)
class EvaluationSet(ScoredSet):
    """Labeled queries, and a pool of labeled sentences from which k are retrieved for each query."""

    query_labels: npt.NDArray[np.integer]
    pool_labels: npt.NDArray[np.integer]
    k: int
    rank_weights: retrieval.RankWeights

    @classmethod
    def of(
        cls,
        prepared: Prepared,
        split: ScoredSplit,
        config: EvaluationConfig,
        max_queries: int | None = None,
    ) -> "EvaluationSet":
        """Return the evaluation set of a split, with a seeded sample of the training sentences as the pool.

        If the split has more than ``max_queries`` queries, an evenly spaced subset is used.

        Raises:
            InputError: If k exceeds the size of the pool.
        """
        sentences = prepared.sentences
        train = sentences.ids("train")
        queries = sentences.ids(split)
        if max_queries is not None and max_queries < len(queries):
            queries = queries[np.linspace(0, len(queries) - 1, max_queries).astype(np.int64)]
        rows = retrieval.sample_pool(
            len(train), len(queries), size=config.num_pool, seed=config.pool_seed
        )
        pool = train[rows]
        retrieval.check_k(config.k, len(pool))
        return cls(
            split=split,
            queries=queries,
            pool=pool,
            query_labels=np.asarray(sentences.labels[queries]),
            pool_labels=np.asarray(sentences.labels[pool]),
            reference_queries=np.asarray(prepared.reference_embeddings.query[queries]),
            reference_pool=np.asarray(prepared.reference_embeddings.document[pool]),
            k=config.k,
            rank_weights=config.rank_weights,
        )

    def shifted(self, offset: int) -> "EvaluationSet":
        """Return the same set with an offset added to all sentence ids."""
        return replace(self, queries=self.queries + offset, pool=self.pool + offset)

    @cached_property
    def weights(self) -> npt.NDArray[np.float64]:
        """Return the rank weights (k,)."""
        return retrieval.rank_weights(self.rank_weights, self.k)

    @cached_property
    def reference_scores(self) -> retrieval.Scores:
        return self.score(self.reference_queries, self.reference_pool)

    def score(
        self, queries: npt.NDArray[np.float32], pool: npt.NDArray[np.float32]
    ) -> retrieval.Scores:
        """Return the retrieval scores of unit embeddings of the queries (q, width) and the pool (p, width)."""
        return self.score_retrieved(retrieval.retrieve(queries, pool, self.k))

    def score_retrieved(self, positions: npt.NDArray[np.int64]) -> retrieval.Scores:
        """Return the scores of a retrieval, given the retrieved pool ``positions`` (q, k), best first."""
        return self.score_several([positions])[0]

    def score_several(self, retrievals: Sequence[npt.NDArray[np.int64]]) -> list[retrieval.Scores]:
        """Return the scores of several retrievals; see :meth:`score_retrieved`."""
        cosines = retrieval.cosines_of_several(
            retrievals, self.reference_queries, self.reference_pool
        )
        all_scores = []
        for positions, cosines_of_retrieved in zip(retrievals, cosines, strict=True):
            scores = retrieval.score(
                positions, cosines_of_retrieved, self.query_labels, self.pool_labels, self.weights
            )
            retrieved = positions[self.readable].astype(np.int32)
            all_scores.append(replace(scores, retrieved=retrieved))
        return all_scores

    @cached_property
    def readable(self) -> npt.NDArray[np.int64]:
        """Return the rows of the queries whose retrieved sentences are stored."""
        return readable_rows(len(self.queries))

    def reading(self, scores: Mapping[PointName, retrieval.Scores]) -> Reading:
        """Return the sentences that points retrieve for the queries in :attr:`readable`.

        All ``scores`` must contain the retrieved positions.
        """
        retrieved = [point.retrieved for point in scores.values() if point.retrieved is not None]
        queries = self.reference_queries[self.readable]
        cosines = [
            retrieval.cosines_of_retrieved(positions, queries, self.reference_pool)
            for positions in retrieved
        ]
        return Reading(
            tuple(scores), self.pool[np.stack(retrieved)], np.stack(cosines).astype(np.float32)
        )
