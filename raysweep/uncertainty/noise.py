"""Noise in quantities computed from several points at once, such as a hypervolume: resamples and intervals.

A front's area is a sum of maxima, so noise increases it on average: of two equally good points, the luckier one counts.
A percentile interval counts this bias twice. Here the bootstrap estimate of the bias is subtracted and also counted
as an additional standard error, because the bootstrap captures only part of the bias near ties. Queries and seeds each
contribute one such error; the errors are independent, so their squares are added. ``benchmarks.calibration`` measures
the coverage.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.uncertainty import interval
from raysweep.uncertainty.interval import LEVEL, Interval
from raysweep.uncertainty.resamples import RESAMPLES, resampled_means
from raysweep.uncertainty.seeds import Variance

Functional = Callable[[Float64Array], Float64Array]
"""Maps the points' P and S (resamples, points, 2) to one number per resample, (resamples,)."""


@dataclass(frozen=True)
class SeedSamples:
    """Sampled effects of other seeds: deviations (resamples, points, 2) and their variance's degrees of freedom."""

    deviations: Float64Array
    degrees: float

    def variance(self, functional: Functional, means: Float64Array) -> Variance:
        """Return the variance, due to seeds, of a functional of points with ``means`` (points, 2)."""
        values = functional(means + self.deviations)
        return Variance(float(values.var(ddof=1)), self.degrees)


@dataclass(frozen=True)
class Noise:
    """Measured P and S (points, 2), and their values in resamples of the queries."""

    means: Float64Array
    resampled: Float64Array  # (resamples, points, 2)
    num_queries: int
    seeds: SeedSamples | None = None

    @classmethod
    def of_queries(cls, scores: Float64Array, seed: int, resamples: int = RESAMPLES) -> "Noise":
        """Return the noise in ``scores`` (points, 2, queries), estimated with the paired bootstrap."""
        return cls(scores.mean(axis=-1), resampled_means(scores, seed, resamples), scores.shape[-1])

    def estimate(self, functional: Functional) -> float:
        """Return the functional's value at the measured scores."""
        return float(functional(self.means[None])[0])

    def interval(self, functional: Functional, level: float = LEVEL) -> Interval:
        """Return the interval for the functional's value at the points' true scores."""
        estimate = self.estimate(functional)
        values = functional(self.resampled)
        mean = float(values.mean())
        variance = Variance(np.inf, 0.0)
        degrees = self.num_queries - 1
        if degrees >= 1:
            # correct the bootstrap's divisor from n to n - 1
            by_queries = float(values.var(ddof=1)) * self.num_queries / degrees
            variance = Variance(by_queries, degrees)
        biases = [mean - estimate]
        if self.seeds is not None:
            values_by_seeds = functional(self.resampled + self.seeds.deviations)
            mean_by_seeds = float(values_by_seeds.mean())
            biases.append(mean_by_seeds - mean)
            variance += self.seeds.variance(functional, self.means)
        corrected = estimate - sum(biases)
        squared_error = variance.value + sum(bias**2 for bias in biases)
        return interval.around(corrected, squared_error, variance.degrees, level)
