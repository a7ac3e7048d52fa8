"""The two-proportion z-test that papers on retrieval apply to P, with the design effect of sentences sharing a query.

With uniform rank weights, P is the share of n k retrieved sentences that have the query's label. The k sentences of a
query are correlated, so they carry less information than k independent ones. Notation:

    p, n, k   P of a row, its queries, and the sentences retrieved for each
    s^2       variance of P over queries
    D         design effect (Kish, "Survey Sampling", 1965, chapter 5): s^2 over the binomial variance p (1 - p) / k
    p_0       share of the sentences of both rows together
    z         (p_1 - p_2) / sqrt(p_0 (1 - p_0) (D_1 / (n_1 k_1) + D_2 / (n_2 k_2)))

For independent sentences, D = 1 and z is the textbook statistic.
"""

import math
from dataclasses import dataclass

from scipy.special import ndtr


@dataclass(frozen=True)
class Proportion:
    """P of a row in [0, 1], over ``num_queries`` queries with k sentences each.

    ``deviation`` is its standard deviation over queries, if known.
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
        """Design effect, or None if the deviation is unknown or 0, or all sentences agree."""
        binomial = self.share * (1 - self.share) / self.k
        if not self.deviation or not binomial:
            return None
        return self.deviation**2 / binomial


@dataclass(frozen=True)
class ZTest:
    """Test of whether two rows differ by more than noise.

    ``binomial_z`` treats sentences as independent; ``z`` does not. ``design_effect`` is that of both rows together, and
    ``p_value`` is two-sided, based on ``z``.
    """

    difference: float
    binomial_z: float
    design_effect: float
    z: float
    p_value: float


def z_test(one: Proportion, other: Proportion) -> ZTest | None:
    """Return the test of the difference between two rows, or None if neither design effect is known.

    A row with an unknown design effect uses the other row's.
    """
    effect = one.design_effect or other.design_effect
    other_effect = other.design_effect or effect
    num_alike = one.share * one.num_sentences + other.share * other.num_sentences
    together = num_alike / (one.num_sentences + other.num_sentences)
    of_one = together * (1 - together)
    if effect is None or other_effect is None or not of_one:
        return None
    binomial = of_one / one.num_sentences
    other_binomial = of_one / other.num_sentences
    independent = binomial + other_binomial
    variance = effect * binomial + other_effect * other_binomial
    difference = one.share - other.share
    z = difference / math.sqrt(variance)
    return ZTest(
        difference=difference,
        binomial_z=difference / math.sqrt(independent),
        design_effect=variance / independent,
        z=z,
        p_value=float(2 * ndtr(-abs(z))),
    )
