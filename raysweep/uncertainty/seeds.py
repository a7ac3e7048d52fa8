"""Noise of seeds beside that of queries: crossed random effects, whose variance of seeds is pooled over configurations.

Notation, after Searle, Casella and McCulloch, "Variance Components" (1992), chapter 4, two crossed random factors without
repetition, each run being scored on the same queries:

    r, n        runs of a configuration, and queries
    x_sq        score of run s on query q: mean + a_s + b_q + e_sq, of the variances v_a, v_b, v_e
    MS_s        mean square of runs: n sum (x_s. - x..)^2 / (r - 1), with the expectation n v_a + v_e
    MS_q        mean square of queries: r sum (x_.q - x..)^2 / (n - 1), with the expectation r v_b + v_e
    MS_e        mean square of the rest, with the expectation v_e
    x..         mean of all, of the variance v_a / r + v_b / n + v_e / (r n) = v_a / r + E[MS_q] / (r n)

v_a is estimated by (MS_s - MS_e) / n, and averaged over configurations: of two or three runs, one configuration's own says
next to nothing. The degrees of freedom of the sum of two variances are Satterthwaite's (1946).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raysweep.metrics.arrays import Float64Array


@dataclass(frozen=True)
class Variance:
    """An estimate of a variance, and the degrees of freedom that it has."""

    value: float
    degrees: float

    def __add__(self, other: "Variance") -> "Variance":
        """The variance of the sum of two independent quantities, with Satterthwaite's degrees of freedom."""
        parts = [part for part in (self, other) if part.value > 0]
        total = sum(part.value for part in parts)
        if not parts:
            return Variance(0.0, min(self.degrees, other.degrees))
        if not math.isfinite(total):
            return Variance(total, 0.0)
        return Variance(total, total**2 / sum(part.value**2 / part.degrees for part in parts))

    def over(self, count: int) -> "Variance":
        """The variance of a mean of so many."""
        return Variance(self.value / count, self.degrees)


def of_queries(scores: Float64Array) -> Variance:
    """The variance of the mean of ``scores`` (runs, queries) that comes from the queries: E[MS_q] / (r n)."""
    num_queries = scores.shape[1]
    if num_queries < 2:
        return Variance(math.inf, 0.0)
    by_query = scores.mean(axis=0)
    return Variance(float(by_query.var(ddof=1)), num_queries - 1).over(num_queries)


def of_seeds(configurations: Sequence[Sequence[Float64Array]]) -> Variance | None:
    """The variance v_a of one run, pooled over configurations; None where none has a second run.

    A configuration is the scores (runs, queries) of each of its points that are pooled, which have their seeds in common:
    they are averaged, and count as one.
    """
    values, degrees = [], []
    for points in configurations:
        runs = len(points[0])
        if runs > 1:
            values.append(float(np.mean([_of_one(scores) for scores in points])))
            degrees.append(runs - 1)
    if not values:
        return None
    pooled = float(np.average(values, weights=degrees))
    return Variance(max(pooled, 0.0), sum(degrees))


def _of_one(scores: Float64Array) -> float:
    """(MS_s - MS_e) / n of one point (runs, queries), which may be below 0. MS_s / n is the variance of the runs' means."""
    runs, num_queries = scores.shape
    by_run = scores.mean(axis=1)
    rest = scores - by_run[:, None] - scores.mean(axis=0) + scores.mean()
    mean_square = float(np.sum(rest**2)) / ((runs - 1) * max(num_queries - 1, 1))
    of_runs = float(by_run.var(ddof=1))
    return float(of_runs - mean_square / num_queries)


def drawn_deviations(
    run_means: Sequence[Float64Array], deviations: Float64Array, seed: int, draws: int
) -> list[Float64Array]:
    """What other seeds would do to the means of configurations: for each one (draws, points, 2).

    ``run_means``: of each configuration (runs, points, 2). ``deviations`` (points, 2) are the pooled standard deviations of
    one run, of the points of all configurations in their order. What the points of a configuration have in common is taken
    from how its own runs differ, and only the size is pooled. With a single run its points move together, P and S apart.
    """
    rng = np.random.default_rng(seed)
    drawn = []
    first = 0
    for means in run_means:
        runs, num_points, _ = means.shape
        size = deviations[first : first + num_points]
        first += num_points
        if runs > 1:
            unit = _unit_contrasts(means)
            moves = np.tensordot(rng.normal(size=(draws, runs - 1)), unit, axes=1)
        else:
            moves = np.broadcast_to(rng.normal(size=(draws, 1, 2)), (draws, num_points, 2))
        drawn.append(moves * size / math.sqrt(runs))
    return drawn


def _unit_contrasts(means: Float64Array) -> Float64Array:
    """How runs (runs, points, 2) differ, as independent parts (runs - 1, points, 2) whose squares sum to 1 or 0."""
    runs = len(means)
    # The columns of a unitary matrix, the first of them constant: the others take the mean away.
    basis, _ = np.linalg.qr(np.column_stack([np.ones(runs), np.eye(runs)[:, 1:]]))
    parts: Float64Array = np.tensordot(basis[:, 1:].T, means, axes=1)
    length = np.sqrt(np.sum(parts**2, axis=0))
    parts /= np.where(length > 1e-12, length, 1.0)
    return parts
