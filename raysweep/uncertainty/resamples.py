"""Paired bootstrap over queries, in which all points share the same resamples."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from raysweep.metrics.arrays import Float64Array

RESAMPLES = 1000
_CELLS_AT_ONCE = 1 << 22  # elements of a (resamples, queries) table: 32 MB


@dataclass(frozen=True)
class Resamples:
    """``count`` resamples of ``num_queries`` queries, determined by ``seed``."""

    num_queries: int
    seed: int
    count: int = RESAMPLES

    def means(self, scores: Float64Array) -> Float64Array:
        """Return the resampled means (resamples, points, 2) of P and S, given as ``scores`` (points, 2, queries).

        A resample is a vector that counts how often each query is drawn (Efron, 1979), so the means are a matrix product.
        Large tables of resamples are processed in blocks to limit memory use.
        """
        num_points, num_scores, _ = scores.shape
        by_query = scores.reshape(num_points * num_scores, self.num_queries).T
        fits_in_memory = self.count * self.num_queries <= _CELLS_AT_ONCE
        blocks = [self._table] if fits_in_memory else self._draw_blocks()
        means = [shares @ by_query for shares in blocks]
        return np.concatenate(means).reshape(self.count, num_points, num_scores)

    @cached_property
    def _table(self) -> Float64Array:
        return np.concatenate(list(self._draw_blocks()))

    def _draw_blocks(self) -> Iterator[Float64Array]:
        """Yield blocks (resamples, queries) with each query's share of the draws."""
        rng = np.random.default_rng(self.seed)
        at_once = max(1, _CELLS_AT_ONCE // self.num_queries)
        for start in range(0, self.count, at_once):
            size = min(at_once, self.count - start)
            indices = rng.integers(self.num_queries, size=(size, self.num_queries))
            first = self.num_queries * np.arange(size)
            cells = indices + first[:, None]
            counts = np.bincount(cells.ravel(), minlength=indices.size)
            yield counts.reshape(indices.shape) / self.num_queries


def resampled_means(scores: Float64Array, seed: int, resamples: int = RESAMPLES) -> Float64Array:
    """Return the resampled means (resamples, points, 2) of ``scores`` (points, 2, queries)."""
    return Resamples(scores.shape[-1], seed, resamples).means(scores)
