"""Accuracy, Spearman's correlation and their intervals, against SciPy and their nominal coverage."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, spearmanr

from raysweep.evaluation.tasks.scores import accuracy, spearman

VALUES = st.integers(0, 6).map(float)  # few values, so that many are equal


@given(st.integers(1, 400), st.data())
def test_accuracy_interval_is_wilson(num_rows: int, data: st.DataObject) -> None:
    num_right = data.draw(st.integers(0, num_rows))
    score = accuracy(np.arange(num_rows) < num_right)
    interval = binomtest(num_right, num_rows).proportion_ci(0.95, method="wilson")
    assert score.num_rows == num_rows
    assert (score.value, score.low, score.high) == pytest.approx(
        (num_right / num_rows, *interval), abs=1e-7
    )


@given(st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=40))
def test_spearman_is_scipys_with_ties(pairs: list[tuple[float, float]]) -> None:
    gold, predicted = (np.array(column) for column in zip(*pairs, strict=True))
    score = spearman(gold, predicted)
    if len(set(gold)) == 1 or len(set(predicted)) == 1:
        assert math.isnan(score.value)
    else:
        assert score.value == pytest.approx(spearmanr(gold, predicted).statistic, abs=1e-12)


def test_spearman_of_real_numbers_is_scipys() -> None:
    rng = np.random.default_rng(0)
    gold = rng.normal(size=500)
    predicted = gold + rng.normal(size=500)
    assert spearman(gold, predicted).value == pytest.approx(
        spearmanr(gold, predicted).statistic, abs=1e-12
    )


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_coverage_of_the_correlation_interval(correlation: float) -> None:
    rng = np.random.default_rng(1)
    # Spearman's of a normal pair with this correlation of Pearson's
    true = 6 / math.pi * math.asin(correlation / 2)
    num_samples = 1000
    num_paused = 0
    for _ in range(num_samples):
        first, noise = rng.normal(size=(2, 60))
        second = correlation * first + math.sqrt(1 - correlation**2) * noise
        score = spearman(first, second)
        num_paused += score.low <= true <= score.high
    assert 0.92 < num_paused / num_samples < 0.98


def test_undefined_scores_are_nan() -> None:
    assert math.isnan(accuracy(np.zeros(0, bool)).value)
    assert math.isnan(spearman(np.array([1.0, 2.0]), np.array([3.0, 3.0])).value)
    three = spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]))
    assert three.value == pytest.approx(0.5)
    assert math.isnan(three.low) and math.isnan(three.high)
    perfect = spearman(np.arange(9.0), np.arange(9.0) ** 3)
    assert (perfect.value, perfect.low, perfect.high) == pytest.approx((1, 1, 1))
