"""The oracle front: the limit that no encoder can pass."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.retrieval import top_k

DEFAULT_BONUSES = (
    *(0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.125, 0.15, 0.175),
    *(0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8, 1.0, 2.0),
)
"""Bonuses of the oracle front. Cosines lie in [-1, 1], so a bonus of 2 ranks the whole class first: P has its limit."""


BLOCK_ELEMENTS = 1 << 21  # of a (queries, pool) block: 16 MB in float64


def oracle_front(
    cosines: NDArray[np.floating],
    same_label: NDArray[np.bool_],
    weights: ArrayLike,
    bonuses: Sequence[float] = DEFAULT_BONUSES,
) -> Float64Array:
    """The limit no encoder can pass: mean P and S (bonuses, 2) of retrieval by ``cosines + bonus * same_label``.

    ``cosines`` (queries, pool) are the reference encoder's, ``same_label`` (queries, pool) says which sentences have
    the query's label, ``weights`` (k,) are the rank weights, k <= pool. Each query retrieves its k greatest sums, in
    falling order, of equal sums the earlier in the pool. Bonus 0 is the reference encoder itself.
    """
    rank_weights = np.asarray(weights, dtype=np.float64)
    k = len(rank_weights)
    num_queries, num_pool = cosines.shape
    if not 1 <= k <= num_pool or same_label.shape != cosines.shape or num_queries == 0:
        raise ValueError(f"k is {k}, cosines are {cosines.shape}, same_label is {same_label.shape}")
    totals: Float64Array = np.zeros((len(bonuses), 2))
    num_rows = max(1, BLOCK_ELEMENTS // num_pool)
    for start in range(0, num_queries, num_rows):
        block = np.asarray(cosines[start : start + num_rows], dtype=np.float64)
        same = np.asarray(same_label[start : start + num_rows])
        # Whatever the bonus, what is retrieved is among the k nearest of the class and the k nearest outside it.
        classes = [np.where(member, block, -np.inf) for member in (same, ~same)]
        columns = [np.sort(top_k(values, k), axis=1) for values in classes]
        nearest = np.hstack([np.take_along_axis(v, c, axis=1) for v, c in zip(classes, columns, strict=True)])
        in_class = np.broadcast_to(np.arange(2 * k) < k, nearest.shape)
        by_position = np.argsort(np.hstack(columns), axis=1, kind="stable")
        nearest = np.take_along_axis(nearest, by_position, axis=1)
        in_class = np.take_along_axis(in_class, by_position, axis=1)
        for row, bonus in enumerate(bonuses):
            retrieved = np.argsort(-(nearest + bonus * in_class), axis=1, kind="stable")[:, :k]
            totals[row, 0] += (np.take_along_axis(in_class, retrieved, axis=1) @ rank_weights).sum()
            totals[row, 1] += (np.take_along_axis(nearest, retrieved, axis=1) @ rank_weights).sum()
    totals /= num_queries
    return totals
