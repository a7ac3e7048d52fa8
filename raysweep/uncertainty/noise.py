"""Intervals for quantities computed from several points at once, such as a hypervolume.

Noise increases a front's area on average, because the area is a sum of maxima. A percentile interval counts this bias
twice. The intervals here instead subtract the bootstrap estimate of the bias. Near ties, the bootstrap captures only
part of the bias, so the squared estimate is also added to the variance. The biases due to queries and seeds are
estimated separately. ``benchmarks.calibration`` measures the coverage.
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
    """Sampled deviations due to seeds, (resamples, points, 2), and the degrees of freedom of their variance."""

    deviations: Float64Array
    degrees: float

    def variance(self, functional: Functional, means: Float64Array) -> Variance:
        """Return a functional's variance due to seeds, for points with ``means`` (points, 2)."""
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
