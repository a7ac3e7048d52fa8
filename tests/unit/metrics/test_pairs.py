"""Measures of pairs, against scikit-learn and direct sums."""

import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, precision_recall_curve

from raysweep.metrics.pairs import (
    average_precision,
    cosine_divergence,
    precision_recall,
    weighted_average_precision,
)


@pytest.mark.parametrize("decimals", [1, 2, 8])  # with one, most pairs are tied
@pytest.mark.parametrize("seed", range(3))
def test_average_precision_and_its_curve_equal_scikit_learns(seed: int, decimals: int) -> None:
    rng = np.random.default_rng(seed)
    same_class = rng.random(400) < 0.3
    cosines = np.round(rng.normal(size=400) * 0.3 + 0.2 * same_class, decimals)
    assert average_precision(same_class, cosines) == pytest.approx(
        average_precision_score(same_class, cosines)
    )
    precision, recall, _ = precision_recall_curve(same_class, cosines)
    curve = precision_recall(same_class, cosines)
    np.testing.assert_allclose(curve.precision[::-1], precision[:-1])
    np.testing.assert_allclose(curve.recall[::-1], recall[:-1])


def test_perfect_order_has_an_area_of_one() -> None:
    assert average_precision([0, 1, 1], [0.1, 0.9, 0.2]) == 1


def test_a_weight_equals_repetition() -> None:
    rng = np.random.default_rng(0)
    same_class, cosines = rng.random(60) < 0.4, rng.normal(size=60).round(1)
    weights = rng.integers(0, 4, (3, 60))
    areas = weighted_average_precision(same_class, cosines, weights)
    for area, counts in zip(areas, weights, strict=True):
        assert area == pytest.approx(
            average_precision(same_class.repeat(counts), cosines.repeat(counts))
        )
    before, after = rng.uniform(-1, 1, (2, 60))
    repeated = cosine_divergence(before.repeat(weights[0]), after.repeat(weights[0]))
    assert cosine_divergence(before, after, weights[0]) == pytest.approx(repeated)


def test_no_pair_of_the_same_class_has_no_area() -> None:
    areas = weighted_average_precision([1, 0], [0.2, 0.1], [[0, 2], [1, 0]])
    np.testing.assert_array_equal(areas, [np.nan, 1])


def test_curve_at_equal_steps_of_recall() -> None:
    same_class, cosines = [1, 0, 1, 1, 0, 1], [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
    curve = precision_recall(same_class, cosines)
    np.testing.assert_allclose(curve.at_equal_steps(4), [1, 2 / 3, 3 / 4, 4 / 6])
    np.testing.assert_allclose(curve.at_equal_steps(2), [2 / 3, 4 / 6])
    for count in range(1, 60):
        assert curve.at_equal_steps(count)[-1] == pytest.approx(4 / 6)


def test_divergence_equals_a_direct_sum() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.uniform(-1, 1, 500), rng.normal(0.5, 0.2, 700).clip(-1, 1)
    counts = [[1] * 200, [1] * 200]
    for histogram, cosines in zip(counts, (before, after), strict=True):
        for cosine in cosines:
            histogram[min(int((cosine + 1) * 100), 199)] += 1
    p, q = ([count / sum(histogram) for count in histogram] for histogram in counts)
    pairs = list(zip(p, q, strict=True))
    forward = sum(a * math.log(a / b) for a, b in pairs)
    backward = sum(b * math.log(b / a) for a, b in pairs)
    assert cosine_divergence(before, after) == pytest.approx((forward + backward) / 2)


def test_equal_cosines_do_not_diverge() -> None:
    cosines = np.linspace(-1, 1, 50)
    assert cosine_divergence(cosines, cosines) == 0
    assert cosine_divergence([1.0000001], [1.0]) == 0
