"""The oracle front, an upper bound for any encoder."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.retrieval import top_k

DEFAULT_BONUSES = (
    *(0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.125, 0.15, 0.175),
    *(0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8, 1.0, 2.0),
)
"""Bonuses of the oracle front.

Cosines are in [-1, 1], so a bonus of 2 ranks all sentences of the query's class first, which maximizes P.
"""

BLOCK_ELEMENTS = 1 << 21  # elements of a (queries, pool) block: 16 MB in float64


def oracle_scores(
    cosines: NDArray[np.floating],
    same_label: NDArray[np.bool_],
    weights: ArrayLike,
    bonuses: Sequence[float] = DEFAULT_BONUSES,
) -> Float64Array:
    """Return P and S (bonuses, queries, 2) of retrieval by ``cosines + bonus * same_label``.

    The means over queries (bonuses, 2) are an upper bound for any encoder. Ties are broken by pool position.

    Args:
        cosines: Cosines (queries, pool) under the reference encoder.
        same_label: Mask (queries, pool) of the sentences with the query's label.
        weights: Rank weights (k,), k <= pool.

    Raises:
        ValueError: If k is not in 1..pool, the shapes differ, or there are no queries.
    """
    rank_weights = np.asarray(weights, dtype=np.float64)
    k = len(rank_weights)
    num_queries, num_pool = cosines.shape
    is_valid_k = 1 <= k <= num_pool
    has_same_shape = same_label.shape == cosines.shape
    if not is_valid_k or not has_same_shape or num_queries == 0:
        raise ValueError(
            f"k is {k}, cosines have shape {cosines.shape}, same_label {same_label.shape}; "
            "allowed: equal shapes with at least one query, and k from 1 to the number of columns"
        )
    scores: Float64Array = np.empty((len(bonuses), num_queries, 2))
    num_rows = max(1, BLOCK_ELEMENTS // num_pool)
    for start in range(0, num_queries, num_rows):
        rows = slice(start, start + num_rows)
        block = np.asarray(cosines[rows], dtype=np.float64)
        is_own_class = np.asarray(same_label[rows])
        # For any bonus, only the k nearest sentences in the query's class and the k nearest outside it can be retrieved.
        # If there are fewer than k, the others have a cosine of minus infinity.
        own_columns, own_cosines = _nearest(block, is_own_class, k)
        other_columns, other_cosines = _nearest(block, ~is_own_class, k)
        columns = np.hstack([own_columns, other_columns])
        pool_order = np.argsort(columns, axis=1, kind="stable")
        nearest_cosines = np.hstack([own_cosines, other_cosines])
        candidates = np.take_along_axis(nearest_cosines, pool_order, axis=1)
        in_class = pool_order < k  # the first k columns are in the query's class
        for index, bonus in enumerate(bonuses):
            sums = candidates + bonus * in_class
            order = np.argsort(-sums, axis=1, kind="stable")
            retrieved = order[:, :k]
            scores[index, rows, 0] = _sum_by_rank(in_class, retrieved, rank_weights)
            scores[index, rows, 1] = _sum_by_rank(candidates, retrieved, rank_weights)
    return scores


def _nearest(
    cosines: Float64Array, allowed: NDArray[np.bool_], k: int
) -> tuple[NDArray[np.int64], Float64Array]:
    """Return the ascending columns and the cosines of the k nearest ``allowed`` sentences, each (queries, k)."""
    allowed_cosines = np.where(allowed, cosines, -np.inf)
    columns = np.sort(top_k(allowed_cosines, k), axis=1)
    return columns, np.take_along_axis(allowed_cosines, columns, axis=1)


def _sum_by_rank(
    values: NDArray[Any], retrieved: NDArray[np.int64], rank_weights: Float64Array
) -> Float64Array:
    """Return the rank-weighted sum (queries,) of each query's retrieved values."""
    by_rank = np.take_along_axis(values, retrieved, axis=1)
    total: Float64Array = by_rank @ rank_weights
    return total
