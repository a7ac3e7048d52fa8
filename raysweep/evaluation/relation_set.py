"""Data for scoring an encoder on relations, in which each query has its own documents to rank."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from raysweep.config.sweep import EvaluationConfig
from raysweep.data.prepared import Prepared
from raysweep.data.relations import GroupedPairs
from raysweep.evaluation.evaluation_set import EvaluationSet, ScoredSet
from raysweep.evaluation.sequence_set import SequenceSet
from raysweep.metrics import retrieval
from raysweep.metrics.arrays import Float32Array, Float64Array
from raysweep.metrics.closeness import closeness
from raysweep.metrics.ranking import Ranking, agreement, count_errors
from raysweep.results.types import ScoredSplit


@dataclass(frozen=True, kw_only=True)
class RelationSet(ScoredSet):
    """A split's queries and documents, from the groups that have both positives and negatives.

    ``pool`` contains the documents. ``pairs`` contains indices into ``queries`` and ``pool``.
    """

    pairs: GroupedPairs

    @classmethod
    def of(cls, prepared: Prepared, split: ScoredSplit) -> "RelationSet":
        """Select the groups of a split that have both positives and negatives."""
        all_pairs = prepared.sentences.pairs(split)
        is_kept = all_pairs.are_measured[all_pairs.group]
        queries, first = np.unique(all_pairs.first[is_kept], return_inverse=True)
        pool, second = np.unique(all_pairs.second[is_kept], return_inverse=True)
        groups, group = np.unique(all_pairs.group[is_kept], return_inverse=True)
        pairs = GroupedPairs(first, second, all_pairs.is_positive[is_kept], group, len(groups))
        return cls(
            split=split,
            queries=queries,
            pool=pool,
            reference_queries=np.asarray(prepared.reference_embeddings.query[queries]),
            reference_pool=np.asarray(prepared.reference_embeddings.document[pool]),
            pairs=pairs,
        )

    @cached_property
    def reference_scores(self) -> retrieval.Scores:
        return self.score(self._reference_closeness)

    @cached_property
    def _reference_closeness(self) -> Float64Array:
        return self.closeness(self.reference_queries, self.reference_pool)

    def closeness(self, queries: Float32Array, pool: Float32Array) -> Float64Array:
        """Return the cosine of each pair, (pairs,)."""
        return closeness("cosine", queries, pool, (self.pairs.first, self.pairs.second))

    def score(self, values: Float64Array) -> retrieval.Scores:
        """Return the scores of each group if its pairs are ranked by ``values``.

        ``ranking`` is 1 - PND. ``agreement`` compares the ranking with that of the reference encoder.
        """
        pairs = self.pairs
        ranking = Ranking.of(values, pairs.is_positive, pairs.group, pairs.num_groups)
        errors = count_errors(ranking)
        agreements = agreement(values, self._reference_closeness, pairs.group, pairs.num_groups)
        return retrieval.Scores({"ranking": 1 - errors.by_group, "agreement": agreements})

    def score_sums(
        self, queries: Float32Array, pool: Float32Array, weights: Sequence[float | None]
    ) -> list[retrieval.Scores]:
        """Return the scores of cos_R + g cos_M for each weight g, or of cos_M if g is None.

        R is the reference encoder, and M is the tuned encoder that computed ``queries`` and ``pool``.
        """
        tuned = self.closeness(queries, pool)
        reference = self._reference_closeness
        return [
            self.score(tuned if weight is None else reference + weight * tuned)
            for weight in weights
        ]


def scored_set(prepared: Prepared, split: ScoredSplit, config: EvaluationConfig) -> ScoredSet:
    """Return the data for scoring encoders on a split.

    Raises:
        InputError: If k exceeds the size of a pool.
    """
    if prepared.tasks:
        return SequenceSet.of(prepared, split, config)
    if prepared.sentences.are_related:
        return RelationSet.of(prepared, split)
    return EvaluationSet.of(prepared, split, config)
