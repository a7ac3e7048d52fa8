"""Differences of points on the same queries, and which of many are more than noise."""

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
    """By how much one point's mean exceeds another's, the interval of it alone, and its two-sided p-value.

    ``adjusted`` is the p-value by Holm's method, where this is one of several differences.
    """

    estimate: float
    interval: Interval
    p_value: float
    adjusted: float

    def is_real(self, level: float = LEVEL) -> bool:
        """Whether it is more than noise: among all that were compared, one falsely named so is rarer than 1 - level."""
        return self.adjusted < 1 - level


def paired(differences: Sequence[Float64Array], level: float = LEVEL) -> tuple[Difference, ...]:
    """The means of per-query differences (queries,), by paired t tests, adjusted for how many there are."""
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
    """P-values adjusted by Holm's step-down method (1979), in the given order: below alpha, all that are hold at once.

    The i-th least of m is multiplied by m - i + 1, and none is less than the one before it.
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
