"""Seed noise, estimated with crossed random effects and pooled over configurations.

Notation, after Searle, Casella and McCulloch, "Variance Components" (1992), chapter 4, for two crossed random factors
without replication (each run is scored on the same queries):

    r, n        a configuration's number of runs, and the number of queries
    x_sq        score of run s on query q: mean + a_s + b_q + e_sq, with variances v_a, v_b, v_e
    MS_s        mean square of runs: n sum (x_s. - x..)^2 / (r - 1), with expectation n v_a + v_e
    MS_q        mean square of queries: r sum (x_.q - x..)^2 / (n - 1), with expectation r v_b + v_e
    MS_e        residual mean square, with expectation v_e
    x..         overall mean, with variance v_a / r + v_b / n + v_e / (r n) = v_a / r + E[MS_q] / (r n)

v_a is estimated as (MS_s - MS_e) / n and averaged over configurations, because two or three runs of a single
configuration provide almost no information about it. The degrees of freedom of a sum of two variances follow
Satterthwaite (1946).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raysweep.metrics.arrays import Float64Array


@dataclass(frozen=True)
class Variance:
    """An estimated variance and its degrees of freedom."""

    value: float
    degrees: float

    def __add__(self, other: "Variance") -> "Variance":
        """Return the variance of a sum of two independent quantities, with Satterthwaite's degrees of freedom."""
        parts = [part for part in (self, other) if part.value > 0]
        total = sum(part.value for part in parts)
        if not parts:
            return Variance(0.0, min(self.degrees, other.degrees))
        if not math.isfinite(total):
            return Variance(total, 0.0)
        return Variance(total, total**2 / sum(part.value**2 / part.degrees for part in parts))

    def over(self, count: int) -> "Variance":
        """Return the variance of a mean over ``count`` values."""
        return Variance(self.value / count, self.degrees)


def of_queries(scores: Float64Array) -> Variance:
    """Return the variance due to queries, MS_q / (r n), of the mean of ``scores`` (runs, queries)."""
    num_queries = scores.shape[1]
    if num_queries < 2:
        return Variance(math.inf, 0.0)
    by_query = scores.mean(axis=0)
    return Variance(float(by_query.var(ddof=1)), num_queries - 1).over(num_queries)


@dataclass(frozen=True)
class RunNoise:
    """The variance components of a run's mean over queries: ``seeds`` is v_a and ``residual`` is v_e / n."""

    seeds: Variance
    residual: float

    @property
    def reliability(self) -> float:
        """Return the expected share of a run's lead that is due to its seed and thus persists on other queries."""
        total = self.seeds.value + self.residual
        return self.seeds.value / total if total else 0.0


def of_runs(configurations: Sequence[Sequence[Float64Array]]) -> RunNoise | None:
    """Return the noise pooled over configurations, or None if no configuration has a second run.

    A configuration is given as one array of scores (runs, queries) per point. Its points come from the same runs, so their
    estimates are averaged and counted once.
    """
    estimates: list[Float64Array] = []
    degrees: list[int] = []
    for points in configurations:
        num_replicates = len(points[0]) - 1
        if num_replicates:
            parts = [_of_one(scores) for scores in points]
            estimates.append(np.mean(parts, axis=0))
            degrees.append(num_replicates)
    if not estimates:
        return None
    by_seed, residual = np.average(estimates, axis=0, weights=degrees).tolist()
    not_negative = max(by_seed, 0.0)
    variance = Variance(not_negative, sum(degrees))
    return RunNoise(variance, residual)


def _of_one(scores: Float64Array) -> tuple[float, float]:
    """Return (MS_s - MS_e) / n, which may be negative, and MS_e / n for one point's scores (runs, queries).

    MS_s / n is the variance of the runs' means.
    """
    runs, num_queries = scores.shape
    by_run = scores.mean(axis=1)
    residuals = scores - by_run[:, None] - scores.mean(axis=0) + scores.mean()
    degrees = (runs - 1) * max(num_queries - 1, 1)
    mean_square = float(np.sum(residuals**2)) / degrees
    residual = mean_square / num_queries
    return float(by_run.var(ddof=1)) - residual, residual


def sample_deviations(
    run_means: Float64Array, sizes: Float64Array, rng: np.random.Generator, num_samples: int
) -> Float64Array:
    """Sample the effects of other seeds on a configuration's points, (samples, points, 2).

    The correlation between points is estimated from the differences between runs. If there is only one run, points are
    assumed to be fully correlated, and P and S to be independent.

    Args:
        run_means: Means over queries, (runs, points, 2).
        sizes: Standard deviations, (points, 2).
    """
    runs = len(run_means)
    if runs == 1:
        moves = rng.normal(size=(num_samples, 1, 2))
    else:
        weights = rng.normal(size=(num_samples, runs - 1))
        moves = np.tensordot(weights, _unit_contrasts(run_means), axes=1)
    return moves * sizes


def _unit_contrasts(means: Float64Array) -> Float64Array:
    """Return independent contrasts (runs - 1, points, 2) between runs with ``means`` (runs, points, 2).

    Their squares sum to 1, or to 0 if the runs are equal.
    """
    runs = len(means)
    # The first column of the orthogonal matrix is constant, so the remaining columns sum to 0.
    basis, _ = np.linalg.qr(np.column_stack([np.ones(runs), np.eye(runs)[:, 1:]]))
    parts: Float64Array = np.tensordot(basis[:, 1:].T, means, axes=1)
    length = np.sqrt(np.sum(parts**2, axis=0))
    parts /= np.where(length > 1e-12, length, 1.0)
    return parts
