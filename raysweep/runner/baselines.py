"""The points that a front is compared with, and between which it lies: the reference encoder's, and the oracle's."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.metrics import retrieval
from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.oracle import DEFAULT_BONUSES, oracle_front
from raysweep.results.types import Point

NO_TRIAL: dict[str, Any] = {"trial": None, "step": None}


def baseline_points(evaluation: EvaluationSet) -> Iterator[Point]:
    """The reference encoder's point on this split, then the oracle's, one for each of its bonuses."""
    width = evaluation.reference_queries.shape[1]
    yield evaluation.point(evaluation.reference_scores, kind="reference", value=None, width=width, **NO_TRIAL)
    for bonus, (polarity, similarity) in zip(DEFAULT_BONUSES, _oracle_means(evaluation), strict=True):
        # Means only: the oracle is no encoder, so there is nothing whose spread over queries could be asked for.
        scores = retrieval.Scores(np.full(1, polarity), np.full(1, similarity))
        yield evaluation.point(scores, kind="oracle", value=bonus, width=None, **NO_TRIAL)


def _oracle_means(evaluation: EvaluationSet) -> Float64Array:
    """Mean P and S of the oracle over all queries, (bonuses, 2), computed block by block of queries."""
    num_queries = len(evaluation.queries)
    totals = np.zeros((len(DEFAULT_BONUSES), 2))
    for start in range(0, num_queries, retrieval.QUERIES_PER_BLOCK):
        stop = start + retrieval.QUERIES_PER_BLOCK
        queries = evaluation.reference_queries[start:stop]
        labels = evaluation.query_labels[start:stop]
        cosines = queries @ evaluation.reference_pool.T
        same_label = labels[:, None] == evaluation.pool_labels
        means = oracle_front(cosines, same_label, evaluation.weights)
        totals += len(queries) * means
    return totals / num_queries
