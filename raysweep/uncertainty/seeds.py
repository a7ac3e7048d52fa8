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


@dataclass(frozen=True)
class RunNoise:
    """How the means of runs over the queries differ: ``seeds`` is v_a, that of their seeds, and ``rest`` is v_e / n."""

    seeds: Variance
    rest: float

    @property
    def reliability(self) -> float:
        """The part of how a run's mean differs from the others' that its seed is expected to do on other queries too."""
        total = self.seeds.value + self.rest
        return self.seeds.value / total if total else 0.0


def of_runs(configurations: Sequence[Sequence[Float64Array]]) -> RunNoise | None:
    """Pooled over configurations; None where none has a second run.

    A configuration is the scores (runs, queries) of each of its points that are pooled, which have their seeds in common:
    they are averaged, and count as one.
    """
    found: list[Float64Array] = []
    degrees: list[int] = []
    for points in configurations:
        spare = len(points[0]) - 1
        if spare:
            parts = [_of_one(scores) for scores in points]
            found.append(np.mean(parts, axis=0))
            degrees.append(spare)
    if not found:
        return None
    by_seed, rest = np.average(found, axis=0, weights=degrees).tolist()
    not_negative = max(by_seed, 0.0)
    variance = Variance(not_negative, sum(degrees))
    return RunNoise(variance, rest)


def _of_one(scores: Float64Array) -> tuple[float, float]:
    """(MS_s - MS_e) / n, which may be below 0, and MS_e / n of one point (runs, queries).

    MS_s / n is the variance of the runs' means.
    """
    runs, num_queries = scores.shape
    by_run = scores.mean(axis=1)
    rest = scores - by_run[:, None] - scores.mean(axis=0) + scores.mean()
    spare = (runs - 1) * max(num_queries - 1, 1)
    mean_square = float(np.sum(rest**2)) / spare
    of_rest = mean_square / num_queries
    return float(by_run.var(ddof=1)) - of_rest, of_rest


def drawn_deviations(
    run_means: Float64Array, sizes: Float64Array, rng: np.random.Generator, draws: int
) -> Float64Array:
    """What other seeds would do to a configuration's points (draws, points, 2), by the standard deviations ``sizes``.

    ``run_means`` are (runs, points, 2), ``sizes`` (points, 2). What the points have in common is taken from how the runs
    differ. With a single run all points move together, P and S apart.
    """
    runs = len(run_means)
    if runs == 1:
        moves = rng.normal(size=(draws, 1, 2))
    else:
        drawn = rng.normal(size=(draws, runs - 1))
        moves = np.tensordot(drawn, _unit_contrasts(run_means), axes=1)
    return moves * sizes


def _unit_contrasts(means: Float64Array) -> Float64Array:
    """How runs (runs, points, 2) differ, as independent parts (runs - 1, points, 2) whose squares sum to 1 or 0."""
    runs = len(means)
    # The columns of a unitary matrix, the first of them constant: the others take the mean away.
    basis, _ = np.linalg.qr(np.column_stack([np.ones(runs), np.eye(runs)[:, 1:]]))
    parts: Float64Array = np.tensordot(basis[:, 1:].T, means, axes=1)
    length = np.sqrt(np.sum(parts**2, axis=0))
    parts /= np.where(length > 1e-12, length, 1.0)
    return parts
