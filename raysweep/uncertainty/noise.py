"""What noise does to whatever is computed from several points at once, such as a hypervolume: resamples and intervals.

The area of a front is a sum of maxima, so noise makes it greater on average: of two equal points the luckier one counts. A
percentile interval holds this bias twice. Here the bootstrap's estimate of it is taken off, and counts as one more standard
error, since near ties the bootstrap sees only a part of it. What queries and what seeds add to it are two such errors, whose
squares are added, as those of independent parts are; ``benchmarks.calibration`` measures what that covers.
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
"""From P and S (resamples, points, 2) of points to one number (resamples,) for each resample."""


@dataclass(frozen=True)
class SeedDraws:
    """What other seeds would have changed: deviations (resamples, points, 2), and the degrees of freedom of their size."""

    deviations: Float64Array
    degrees: float

    def variance(self, functional: Functional, means: Float64Array) -> Variance:
        """That of what points of these means (points, 2) are worth."""
        drawn = functional(means + self.deviations)
        return Variance(float(drawn.var(ddof=1)), self.degrees)


@dataclass(frozen=True)
class Noise:
    """P and S (points, 2) of points as they were measured, and as resamples of their queries have them."""

    means: Float64Array
    resampled: Float64Array  # (resamples, points, 2)
    num_queries: int
    seeds: SeedDraws | None = None

    @classmethod
    def of_queries(cls, scores: Float64Array, seed: int, resamples: int = RESAMPLES) -> "Noise":
        """That of ``scores`` (points, 2, queries), by the paired bootstrap."""
        return cls(scores.mean(axis=-1), resampled_means(scores, seed, resamples), scores.shape[-1])

    def estimate(self, functional: Functional) -> float:
        """What the points are worth as they were measured."""
        return float(functional(self.means[None])[0])

    def interval(self, functional: Functional, level: float = LEVEL) -> Interval:
        """Of what the same points are worth at their true scores."""
        estimate = self.estimate(functional)
        drawn = functional(self.resampled)
        variance = self._of_queries(drawn)
        mean_by_queries = float(drawn.mean())
        biases = [mean_by_queries - estimate]
        if self.seeds is not None:
            moved = functional(self.resampled + self.seeds.deviations)
            biases.append(float(moved.mean()) - mean_by_queries)
            variance += self.seeds.variance(functional, self.means)
        corrected = estimate - sum(biases)
        squared_error = variance.value + sum(bias**2 for bias in biases)
        return interval.around(corrected, squared_error, variance.degrees, level)

    def _of_queries(self, drawn: Float64Array) -> Variance:
        """A bootstrap's variance is one over n queries, and an unbiased one is over n - 1."""
        spare = self.num_queries - 1
        if spare < 1:
            return Variance(np.inf, 0.0)
        return Variance(float(drawn.var(ddof=1)) * self.num_queries / spare, spare)
