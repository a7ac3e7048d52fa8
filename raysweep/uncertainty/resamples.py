"""The paired bootstrap over queries: each resample draws queries once, and every point is averaged over the same ones."""

from collections.abc import Iterator

import numpy as np

from raysweep.metrics.arrays import Float64Array

RESAMPLES = 1000
_CELLS_AT_ONCE = 1 << 22  # of a table of resamples by queries: 32 MB


def resampled_means(scores: Float64Array, seed: int, resamples: int = RESAMPLES) -> Float64Array:
    """Means (resamples, points, 2) of ``scores`` (points, 2, queries), which are P and S of each point and query.

    A resample is the multinomial number of times that each query is drawn (Efron, 1979), and its means one product of
    matrices. Memory beyond the result is bounded.
    """
    num_points, num_scores, num_queries = scores.shape
    by_query = np.ascontiguousarray(scores.reshape(num_points * num_scores, num_queries).T)
    means = [shares @ by_query for shares in _shares(num_queries, seed, resamples)]
    return np.concatenate(means).reshape(resamples, num_points, num_scores)


def _shares(num_queries: int, seed: int, resamples: int) -> Iterator[Float64Array]:
    """Blocks (some, queries) of resamples: which part of each one a query is."""
    rng = np.random.default_rng(seed)
    at_once = max(1, _CELLS_AT_ONCE // num_queries)
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        drawn = rng.integers(num_queries, size=(size, num_queries))
        drawn += num_queries * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * num_queries)
        yield counts.reshape(size, num_queries) / num_queries
