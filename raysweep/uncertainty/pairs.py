"""Intervals for pair measures, from a bootstrap over sentences.

Pairs that share a sentence are not independent, so sentences are resampled instead of pairs (Owen 2007, "The
pigeonhole bootstrap"). A pair's weight is the product of its two sentences' counts.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysweep.metrics import pairs
from raysweep.metrics.arrays import Float64Array
from raysweep.uncertainty.interval import LEVEL, Interval

RESAMPLES = 500
_WEIGHTS_AT_ONCE = 1 << 21  # elements of a (resamples, pairs) table: 16 MB


def of_average_precision(
    positions: NDArray[np.integer], same_class: ArrayLike, cosines: ArrayLike, seed: int = 0
) -> Interval:
    """Return the interval for :func:`raysweep.metrics.pairs.average_precision`.

    ``positions`` (n, 2) holds the indices of each pair's sentences. Resamples without same-class pairs are ignored.
    """
    is_same = np.asarray(same_class, bool)
    estimate = pairs.average_precision(is_same, cosines)

    def statistic(weights: Float64Array) -> Float64Array:
        return pairs.weighted_average_precision(is_same, cosines, weights)

    return _interval(positions, statistic, estimate, seed).within(0.0, 1.0)


def of_divergence(
    positions: NDArray[np.integer], before: ArrayLike, after: ArrayLike, seed: int = 0
) -> Interval:
    """Return the interval for :func:`raysweep.metrics.pairs.cosine_divergence`.

    ``positions`` (n, 2) holds the indices of each pair's sentences.
    """
    estimate = pairs.cosine_divergence(before, after)

    def statistic(weights: Float64Array) -> Float64Array:
        return np.array([pairs.cosine_divergence(before, after, row) for row in weights])

    return _interval(positions, statistic, estimate, seed).within(0.0, np.inf)


def _interval(
    positions: NDArray[np.integer],
    statistic: Callable[[Float64Array], Float64Array],
    estimate: float,
    seed: int,
) -> Interval:
    """Return the percentile interval, shifted to remove the bias of the resamples.

    Resampled divergences are too large on average because the histograms of resamples are rougher.
    """
    resampled = np.concatenate([statistic(weights) for weights in draw_weights(positions, seed)])
    resampled = resampled[np.isfinite(resampled)]
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    bias = resampled.mean() - estimate
    return Interval(float(low - bias), float(high - bias))


def draw_weights(positions: NDArray[np.integer], seed: int) -> Iterator[Float64Array]:
    """Yield blocks of pair weights, (resamples, pairs)."""
    rng = np.random.default_rng(seed)
    num_sentences = int(positions.max()) + 1
    shares = np.full(num_sentences, 1 / num_sentences)
    at_once = max(1, _WEIGHTS_AT_ONCE // len(positions))
    for start in range(0, RESAMPLES, at_once):
        size = min(at_once, RESAMPLES - start)
        counts = rng.multinomial(num_sentences, shares, size).astype(np.float64)
        first, second = positions.T
        yield counts[:, first] * counts[:, second]
