"""Differences between points on the same queries, and which of several exceed noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from raysweep.metrics.arrays import Float64Array
from raysweep.uncertainty import interval
from raysweep.uncertainty.interval import LEVEL, Interval


@dataclass(frozen=True)
class Difference:
    """The difference between two points' means, its individual interval, and its two-sided p-value.

    ``adjusted`` is the p-value adjusted by Holm's method if this is one of several differences.
    """

    estimate: float
    interval: Interval
    p_value: float
    adjusted: float

    def is_real(self, level: float = LEVEL) -> bool:
        """Return whether the difference exceeds noise.

        Among all differences compared, the probability of any false positive is below 1 - level.
        """
        return self.adjusted < 1 - level


def paired(differences: Sequence[Float64Array], level: float = LEVEL) -> tuple[Difference, ...]:
    """Return the mean per-query differences (queries,) with paired t-tests, adjusted for their number."""
    p_values = [_p_value(each) for each in differences]
    return tuple(
        Difference(float(each.mean()), interval.of_mean(each, level), p_value, adjusted)
        for each, p_value, adjusted in zip(differences, p_values, holm(p_values), strict=True)
    )


def _p_value(differences: Float64Array) -> float:
    num_queries = len(differences)
    if num_queries < 2:
        return 1.0
    mean = abs(float(differences.mean()))
    deviation = float(differences.std(ddof=1))
    error = deviation / math.sqrt(num_queries)
    if not error:
        return 0.0 if mean else 1.0
    one_sided = stdtr(num_queries - 1, -mean / error)
    return float(2 * one_sided)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's step-down method (1979), in the given order.

    With probability 1 - alpha, all differences with an adjusted p-value below alpha are real. The i-th smallest of m is
    multiplied by m - i + 1, and none is smaller than the one before it.
    """
    count = len(p_values)
    adjusted = [1.0] * count
    greatest = 0.0
    rising = np.argsort(p_values, kind="stable")
    for rank, index in enumerate(rising.tolist()):
        factor = count - rank
        multiplied = min(p_values[index] * factor, 1.0)
        greatest = max(greatest, multiplied)
        adjusted[index] = greatest
    return adjusted
