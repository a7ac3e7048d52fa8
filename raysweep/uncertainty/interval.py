"""Confidence intervals for means over queries and for ratios of such means."""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.scores import Goals, spec_of

LEVEL = 0.9


@dataclass(frozen=True)
class Interval:
    """A confidence interval. Both bounds are infinite if nothing is known."""

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
        """Return the interval clipped to the range from ``low`` to ``high``."""
        return Interval(min(max(self.low, low), high), min(max(self.high, low), high))


@dataclass(frozen=True)
class ScoreIntervals:
    """Intervals for one point's P, S and retention; ``retention`` is None if the reference's S is unknown."""

    polarity: Interval
    similarity: Interval
    retention: Interval | None

    def within(self, goals: Goals) -> "ScoreIntervals":
        """Return the intervals with P and S clipped to the ranges of the two goals."""
        p, s = spec_of(goals.p), spec_of(goals.s)
        polarity = self.polarity.within(p.minimum, p.maximum)
        similarity = self.similarity.within(s.minimum, s.maximum)
        return replace(self, polarity=polarity, similarity=similarity)

    def named(self, goals: Goals) -> dict[str, Interval]:
        """Return the intervals by score name, without undefined ones."""
        intervals = {goals.p: self.polarity, goals.s: self.similarity}
        if goals.ratio is not None and self.retention is not None:
            intervals[goals.ratio] = self.retention
        return intervals


EVERYTHING = Interval(-math.inf, math.inf)


def around(estimate: float, variance: float, degrees: float, level: float = LEVEL) -> Interval:
    """Return the t-interval for an estimate whose variance has ``degrees`` degrees of freedom."""
    if degrees <= 0 or not math.isfinite(variance):
        return EVERYTHING
    half_width = t_quantile(degrees, level) * math.sqrt(max(variance, 0.0))
    return Interval(estimate - half_width, estimate + half_width)


def t_quantile(degrees: float, level: float = LEVEL) -> float:
    """Return the half-width of a two-sided t-interval in standard errors."""
    return float(stdtrit(degrees, (1 + level) / 2))


def of_mean(scores: Float64Array) -> Interval:
    """Return the t-interval for the mean of ``scores`` (queries,)."""
    return of_means(scores[None])[0]


def of_means(scores: Float64Array) -> list[Interval]:
    """Return the t-interval for each point's mean, given ``scores`` (points, queries)."""
    return _all_around(scores.mean(axis=-1), scores)


def of_ratios(scores: Float64Array, unit: Float64Array) -> list[Interval]:
    """Return the interval for each point's mean of ``scores`` (points, queries) over the mean of ``unit`` (queries,).

    The ratio is linearized (Cochran, "Sampling Techniques", 1977, chapter 6) because its numerator and denominator are
    correlated.
    """
    mean_unit = float(unit.mean())
    if not mean_unit:
        return [EVERYTHING] * len(scores)
    ratios = scores.mean(axis=-1) / mean_unit
    residuals = (scores - ratios[:, None] * unit) / mean_unit
    return _all_around(ratios, residuals)


def _all_around(estimates: Float64Array, scores: Float64Array) -> list[Interval]:
    """Return t-intervals around the estimates, using the variances of the means of ``scores`` (points, queries)."""
    num_queries = scores.shape[-1]
    if num_queries < 2:
        return [EVERYTHING] * len(scores)
    variances = np.var(scores, axis=-1, ddof=1) / num_queries
    pairs = zip(estimates.tolist(), variances.tolist(), strict=True)
    return [around(estimate, variance, num_queries - 1) for estimate, variance in pairs]
