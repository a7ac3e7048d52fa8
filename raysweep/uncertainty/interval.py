"""Confidence intervals, and those of means and of ratios of means over queries."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from raysweep.metrics.arrays import Float64Array

LEVEL = 0.9


@dataclass(frozen=True)
class Interval:
    """From ``low`` to ``high``, both in the unit of what is estimated; both infinite where nothing can be said."""

    low: float
    high: float

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.high - self.low)

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high

    def within(self, low: float, high: float) -> "Interval":
        """The interval without what lies outside a range, for scores that cannot leave it."""
        return Interval(min(max(self.low, low), high), min(max(self.high, low), high))


@dataclass(frozen=True)
class ScoreIntervals:
    """Those of one point's P, S and retention; that of the retention is None where S of the reference is not known."""

    polarity: Interval
    similarity: Interval
    retention: Interval | None


EVERYTHING = Interval(-math.inf, math.inf)


def around(estimate: float, variance: float, degrees: float, level: float = LEVEL) -> Interval:
    """The t interval of an estimate with this variance, which was estimated with so many degrees of freedom."""
    if degrees <= 0 or not math.isfinite(variance):
        return EVERYTHING
    half_width = t_quantile(degrees, level) * math.sqrt(max(variance, 0.0))
    return Interval(estimate - half_width, estimate + half_width)


def t_quantile(degrees: float, level: float = LEVEL) -> float:
    """Half the width of a two-sided t interval in standard errors."""
    return float(stdtrit(degrees, (1 + level) / 2))


def of_mean(scores: Float64Array, level: float = LEVEL) -> Interval:
    """The t interval of the mean of ``scores`` (queries,)."""
    return of_means(scores[None], level)[0]


def of_means(scores: Float64Array, level: float = LEVEL) -> list[Interval]:
    """Those of several points' means, of ``scores`` (points, queries)."""
    return _all_around(scores.mean(axis=-1), scores, level)


def of_ratio(scores: Float64Array, unit: Float64Array, level: float = LEVEL) -> Interval:
    """The interval of the mean of ``scores`` over the mean of ``unit``, both (queries,) and of the same queries."""
    return of_ratios(scores[None], unit, level)[0]


def of_ratios(scores: Float64Array, unit: Float64Array, level: float = LEVEL) -> list[Interval]:
    """Those of several points, of ``scores`` (points, queries).

    The ratio is linearised (Cochran, "Sampling Techniques", 1977, chapter 6), so that what a query does to both counts once.
    """
    mean_unit = float(unit.mean())
    if not mean_unit:
        return [EVERYTHING] * len(scores)
    ratios = scores.mean(axis=-1) / mean_unit
    residuals = (scores - ratios[:, None] * unit) / mean_unit
    return _all_around(ratios, residuals, level)


def _all_around(estimates: Float64Array, scores: Float64Array, level: float) -> list[Interval]:
    """By the variances of the means of ``scores`` (points, queries)."""
    num_queries = scores.shape[-1]
    if num_queries < 2:
        return [EVERYTHING] * len(scores)
    variances = np.var(scores, axis=-1, ddof=1) / num_queries
    pairs = zip(estimates.tolist(), variances.tolist(), strict=True)
    return [around(estimate, variance, num_queries - 1, level) for estimate, variance in pairs]
