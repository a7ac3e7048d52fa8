"""The z-test of two proportions, with independent sentences and with a design effect."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from raysweep.uncertainty.differences import Proportion, z_test

COUNTS = st.tuples(st.integers(2, 400), st.integers(1, 64), st.floats(0.01, 0.99))


@given(COUNTS, COUNTS)
def test_binomial_deviations_yield_pearsons_test(
    first: tuple[int, int, float], second: tuple[int, int, float]
) -> None:
    rows = [Proportion(p, n, k, math.sqrt(p * (1 - p) / k)) for n, k, p in (first, second)]
    test = z_test(*rows)
    assert test is not None and test.design_effect == pytest.approx(1)
    assert test.z == pytest.approx(test.binomial_z)
    table = [[p * n * k, (1 - p) * n * k] for n, k, p in (first, second)]
    expected = stats.chi2_contingency(table, correction=False)
    assert test.binomial_z**2 == pytest.approx(expected.statistic, abs=1e-9)
    assert test.p_value == pytest.approx(expected.pvalue, abs=1e-9)
    assert test.difference == pytest.approx(first[2] - second[2])


def test_z_test_by_hand() -> None:
    """Each row has 100 queries with 4 sentences; 280 and 240 have the label, and the deviations are 0.3 and 0.35."""
    one, other = Proportion(0.7, 100, 4, 0.3), Proportion(0.6, 100, 4, 0.35)
    assert one.design_effect == pytest.approx(0.09 / 0.0525)
    assert other.design_effect == pytest.approx(0.1225 / 0.06)
    test = z_test(one, other)
    assert test is not None
    assert test.binomial_z == pytest.approx(0.1 / math.sqrt(0.65 * 0.35 / 200))
    variance = 0.65 * 0.35 / 400 * (0.09 / 0.0525 + 0.1225 / 0.06)
    assert test.z == pytest.approx(0.1 / math.sqrt(variance))
    assert test.design_effect == pytest.approx((0.09 / 0.0525 + 0.1225 / 0.06) / 2)
    assert test.p_value == pytest.approx(2 * stats.norm.sf(test.z))


def test_unknown_deviation_uses_the_others_design_effect() -> None:
    known, unknown = Proportion(0.63, 872, 16, 0.219), Proportion(0.8316, 872, 16)
    test, reverse = z_test(known, unknown), z_test(unknown, known)
    assert test is not None and reverse is not None and known.design_effect is not None
    assert test.design_effect == pytest.approx(known.design_effect)
    assert (
        test.z
        == pytest.approx(test.binomial_z / math.sqrt(known.design_effect))
        == pytest.approx(-reverse.z)
    )
    assert z_test(unknown, unknown) is None
    assert z_test(Proportion(1.0, 9, 2, 0.0), Proportion(1.0, 9, 2, 0.0)) is None
    assert z_test(Proportion(0.5, 9, 2, 0.0), Proportion(0.4, 9, 2, 0.0)) is None, (
        "the stated deviations are 0"
    )


def test_level_holds_for_correlated_sentences() -> None:
    """The rows are equally good, on different queries; each query has its own share of sentences with the label."""
    rng = np.random.default_rng(0)
    num_queries, k = 200, 16
    rejected = []
    for _ in range(2000):
        rows = []
        for _ in range(2):
            of_query = rng.beta(2, 1, num_queries)
            scores = rng.binomial(k, of_query) / k
            rows.append(Proportion(float(scores.mean()), num_queries, k, float(scores.std())))
        test = z_test(*rows)
        assert test is not None
        rejected.append((abs(test.z) > 1.96, abs(test.binomial_z) > 1.96))
    by_z, by_binomial = np.mean(rejected, axis=0)
    assert by_z == pytest.approx(0.05, abs=0.015)
    assert by_binomial > 0.3, "the k sentences of a query are not independent"
