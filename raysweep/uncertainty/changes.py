"""Tests of how much tuning changes a measure: a z-test and a paired bootstrap.

Following Vasilyev et al. (arXiv 2407.00923, section 2.3), the z-test treats two PNDs over the same N (positive,
negative) pairs as independent proportions. Pairs from the same query are correlated, so the test reports significant
differences too often. The paired bootstrap (Efron, 1979) instead resamples independent units, which are queries or the
labeled pairs in a pair file. Both encoders are measured on the same resamples.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.ranking import ErrorCounts, Flags, Integers
from raysweep.uncertainty.interval import EVERYTHING, Interval, t_quantile
from raysweep.uncertainty.resamples import RESAMPLES, Resamples

LEVEL = 0.95
"""Coverage of the bootstrap intervals for changes."""

_CELLS_AT_ONCE = 1 << 22  # elements of a (resamples, pairs) table


def z_statistic(before: float, after: float, num_pairs: int) -> float:
    """Return the statistic of a pooled two-proportion z-test with ``num_pairs`` pairs per proportion.

    z = (p1 - p0) / sqrt(2 P (1 - P) / N), with P = (p0 + p1) / 2. If P is 0 or 1, z is 0.
    """
    pooled = (before + after) / 2
    variance = 2 * pooled * (1 - pooled) / num_pairs
    return (after - before) / math.sqrt(variance) if variance > 0 else 0.0


@dataclass(frozen=True)
class Change:
    """The 95% interval for the change in a measure (after minus before)."""

    interval: Interval

    @property
    def is_significant(self) -> bool:
        """Return whether the interval excludes 0."""
        return not self.interval.contains(0.0)

    @classmethod
    def of_resamples(cls, differences: Float64Array, num_units: int) -> "Change":
        """Return the change with the expanded percentile interval of ``differences`` (resamples,).

        The plain percentile interval is too narrow if there are few units. The expanded interval (Hesterberg, "What Teachers
        Should Know About the Bootstrap", 2015) widens it by the ratio of a t-interval with the unbiased variance to a normal
        interval with the biased variance. If there is only one unit, the interval is infinite.
        """
        if num_units < 2:
            return cls(EVERYTHING)
        num_errors = math.sqrt(num_units / (num_units - 1)) * t_quantile(num_units - 1, LEVEL)
        tail = float(ndtr(-num_errors))
        low, high = np.quantile(differences, [tail, 1 - tail])
        return cls(Interval(float(low), float(high)))


def bootstrap_means(
    before: Float64Array, after: Float64Array, seed: int, count: int = RESAMPLES
) -> Change:
    """Bootstrap the change in the mean of a per-query measure, given as arrays (queries,)."""
    differences = after - before
    resamples = Resamples(len(differences), seed, count)
    means = resamples.means(differences[None, None])
    return Change.of_resamples(means.ravel(), len(differences))


def bootstrap_over_pairs(
    before: ErrorCounts, after: ErrorCounts, seed: int, count: int = RESAMPLES
) -> Change:
    """Bootstrap the change in the PND over all pairs, by resampling queries together with their pairs."""
    errors = (after.errors - before.errors).astype(np.float64)
    pairs = before.pairs.astype(np.float64)
    resamples = Resamples(len(pairs), seed, count)
    means = resamples.means(np.stack([errors, pairs])[None])
    mean_errors, mean_pairs = means[:, 0].T
    return Change.of_resamples(mean_errors / mean_pairs, len(pairs))


def bootstrap_pair_file(
    before: Float64Array, after: Float64Array, is_positive: Flags, seed: int, count: int = RESAMPLES
) -> Change:
    """Bootstrap the change in a pair file's PND.

    Positive and negative pairs are resampled separately.

    Args:
        before: Closeness of each labeled pair under the first encoder, (pairs,).
        after: Closeness of each labeled pair under the second encoder, (pairs,).
        is_positive: Label of each pair, (pairs,).
    """
    # Use the same order as :class:`raysweep.metrics.ranking.Ranking`.
    order_before = np.lexsort((is_positive, -before))
    order_after = np.lexsort((is_positive, -after))
    differences = []
    for weights in _draw_weights(is_positive, seed, count):
        shares_before = _weighted_pnd(is_positive, weights, order_before)
        shares_after = _weighted_pnd(is_positive, weights, order_after)
        differences.append(shares_after - shares_before)
    num_positives = int(is_positive.sum())
    num_negatives = len(is_positive) - num_positives
    return Change.of_resamples(np.concatenate(differences), min(num_positives, num_negatives))


def _weighted_pnd(is_positive: Flags, weights: Float64Array, order: Integers) -> Float64Array:
    """Return the PND (resamples,) of pairs sorted by ``order`` (pairs,), with ``weights`` (resamples, pairs)."""
    is_positive = is_positive[order]
    weights = weights[:, order]
    positive_weights = weights[:, is_positive]
    negative_weights = np.where(is_positive, 0.0, weights)
    negatives_above = np.cumsum(negative_weights, axis=1)
    errors = np.einsum("ij,ij->i", positive_weights, negatives_above[:, is_positive])
    num_pairs = positive_weights.sum(axis=1) * negative_weights.sum(axis=1)
    shares: Float64Array = errors / num_pairs
    return shares


def _draw_weights(is_positive: Flags, seed: int, count: int) -> Iterator[Float64Array]:
    """Yield blocks (resamples, pairs) that count how often each pair is drawn."""
    rng = np.random.default_rng(seed)
    at_once = max(1, _CELLS_AT_ONCE // len(is_positive))
    for start in range(0, count, at_once):
        num_rows = min(at_once, count - start)
        weights = np.empty((num_rows, len(is_positive)))
        for mask in (is_positive, ~is_positive):
            num_pairs = int(mask.sum())
            chances = np.full(num_pairs, 1 / num_pairs)
            weights[:, mask] = rng.multinomial(num_pairs, chances, size=num_rows)
        yield weights
