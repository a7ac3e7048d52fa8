"""Differences between points, and tests of whether they are significant.

Points scored on the same queries are compared with paired t-tests. Rows of a table of encoders are compared with a
two-proportion z-test on P. With uniform rank weights, P is the fraction of the n k retrieved sentences that have the
query's label. The k sentences retrieved for a query are correlated, so the test includes a design effect. Notation:

    p, n, k   a row's P, its number of queries, and the number of sentences retrieved per query
    s^2       variance of P over queries
    D         design effect (Kish, "Survey Sampling", 1965, chapter 5): s^2 over the binomial variance p (1 - p) / k
    p_0       P over the sentences of both rows
    z         (p_1 - p_2) / sqrt(p_0 (1 - p_0) (D_1 / (n_1 k_1) + D_2 / (n_2 k_2)))

If the sentences are independent, D = 1 and z is the textbook statistic.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, stdtr

from raysweep.metrics.arrays import Float64Array
from raysweep.uncertainty import interval
from raysweep.uncertainty.interval import LEVEL, Interval


@dataclass(frozen=True)
class Difference:
    """The difference between two points' means, with its interval and two-sided p-value.

    ``adjusted`` is the p-value with Holm's correction for multiple comparisons.
    """

    estimate: float
    interval: Interval
    p_value: float
    adjusted: float

    def is_real(self) -> bool:
        """Return whether the difference is significant at a family-wise error rate of 1 - LEVEL."""
        return self.adjusted < 1 - LEVEL


def paired(differences: Sequence[Float64Array]) -> tuple[Difference, ...]:
    """Run a paired t-test on each array of differences (queries,), with adjustment for multiple comparisons."""
    estimates = [float(difference.mean()) for difference in differences]
    intervals = map(interval.of_mean, differences)
    p_values = [_p_value(difference) for difference in differences]
    return tuple(map(Difference, estimates, intervals, p_values, holm(p_values)))


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
    """Return the p-values adjusted by Holm's step-down method (1979), in the original order.

    The i-th smallest of m p-values is multiplied by m - i + 1, capped at 1, and raised to the previous adjusted p-value if
    that is larger.
    """
    count = len(p_values)
    adjusted = [1.0] * count
    maximum = 0.0
    rising = np.argsort(p_values, kind="stable")
    for rank, index in enumerate(rising.tolist()):
        factor = count - rank
        multiplied = min(p_values[index] * factor, 1.0)
        maximum = max(maximum, multiplied)
        adjusted[index] = maximum
    return adjusted


@dataclass(frozen=True)
class Proportion:
    """A row's P in [0, 1], over ``num_queries`` queries with k retrieved sentences each.

    ``deviation`` is the standard deviation of P over queries, if known.
    """

    share: float
    num_queries: int
    k: int
    deviation: float | None = None

    @property
    def num_sentences(self) -> int:
        return self.num_queries * self.k

    @property
    def design_effect(self) -> float | None:
        """Return the design effect, or None if the deviation is unknown or 0, or if P is 0 or 1."""
        binomial = self.share * (1 - self.share) / self.k
        if not self.deviation or not binomial:
            return None
        return self.deviation**2 / binomial


@dataclass(frozen=True)
class ZTest:
    """A z-test of the difference between two rows.

    ``binomial_z`` treats sentences as independent; ``z`` does not. ``design_effect`` applies to both rows combined, and
    ``p_value`` is the two-sided p-value for ``z``.
    """

    difference: float
    binomial_z: float
    design_effect: float
    z: float
    p_value: float


def z_test(first: Proportion, second: Proportion) -> ZTest | None:
    """Return the test for the difference between two rows, or None if neither row's design effect is known.

    If only one row's design effect is known, it is used for both.
    """
    effect = first.design_effect or second.design_effect
    second_effect = second.design_effect or effect
    first_same_label = first.share * first.num_sentences
    second_same_label = second.share * second.num_sentences
    num_sentences = first.num_sentences + second.num_sentences
    pooled = (first_same_label + second_same_label) / num_sentences
    sentence_variance = pooled * (1 - pooled)
    if effect is None or second_effect is None or not sentence_variance:
        return None
    first_binomial = sentence_variance / first.num_sentences
    second_binomial = sentence_variance / second.num_sentences
    independent = first_binomial + second_binomial
    variance = effect * first_binomial + second_effect * second_binomial
    difference = first.share - second.share
    z = difference / math.sqrt(variance)
    binomial_z = difference / math.sqrt(independent)
    one_sided = float(ndtr(-abs(z)))
    return ZTest(
        difference=difference,
        binomial_z=binomial_z,
        design_effect=variance / independent,
        z=z,
        p_value=2 * one_sided,
    )
