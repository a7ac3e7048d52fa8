"""Intervals, variance components and adjusted p-values, compared with SciPy, textbooks and simulations."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from raysweep.metrics.scores import GOALS
from raysweep.uncertainty import interval, seeds
from raysweep.uncertainty.configurations import (
    Replicated,
    Scored,
    SeedNoise,
    Trained,
    intervals,
    noise_of,
)
from raysweep.uncertainty.differences import holm, paired
from raysweep.uncertainty.interval import Interval
from raysweep.uncertainty.seeds import Variance, of_queries, of_runs
from raysweep.uncertainty.selection import between_splits, optimism

RNG = np.random.default_rng(0)


def test_interval_of_a_mean_equals_scipys() -> None:
    scores = RNG.beta(2, 1, size=30)
    expected = stats.t.interval(0.9, 29, scores.mean(), stats.sem(scores))
    t_interval = interval.of_mean(scores)
    assert (t_interval.low, t_interval.high) == pytest.approx(expected)


def test_interval_of_a_ratio_is_near_the_jackknifes() -> None:
    unit = RNG.uniform(0.3, 0.6, size=400)
    scores = unit * RNG.normal(0.9, 0.1, size=400)
    left_out = [np.delete(scores, i).mean() / np.delete(unit, i).mean() for i in range(400)]
    error = math.sqrt(399 / 400 * np.sum((np.array(left_out) - np.mean(left_out)) ** 2))
    (t_interval,) = interval.of_ratios(scores[None], unit)
    assert t_interval.half_width == pytest.approx(stats.t.ppf(0.95, 399) * error, rel=0.01)
    assert (t_interval.low + t_interval.high) / 2 == pytest.approx(scores.mean() / unit.mean())


def test_one_query_has_infinite_width_and_equal_scores_have_width_zero() -> None:
    assert interval.of_mean(np.array([0.5])) == Interval(-math.inf, math.inf)
    assert interval.of_mean(np.full(9, 0.5)) == Interval(0.5, 0.5)
    assert interval.of_ratios(np.ones((1, 3)), np.zeros(3)) == [interval.EVERYTHING]
    assert interval.of_mean(np.array([0.9, 1.0, 1.0])).within(0, 1).high == 1


def test_variance_components_are_those_of_a_two_way_table() -> None:
    """The expected sums of squares are computed cell by cell."""
    table = RNG.normal(size=(4, 6)) + RNG.normal(size=(4, 1)) + RNG.normal(size=6)
    rows, columns, mean = table.mean(1), table.mean(0), table.mean()
    square_of_runs = 6 * sum((row - mean) ** 2 for row in rows) / 3
    residual = (
        sum((table[i, j] - rows[i] - columns[j] + mean) ** 2 for i in range(4) for j in range(6))
        / 15
    )
    square_of_queries = 4 * sum((column - mean) ** 2 for column in columns) / 5
    pooled = of_runs([[table]])
    assert pooled is not None
    assert pooled.seeds == Variance(pytest.approx(max(0.0, (square_of_runs - residual) / 6)), 3)
    assert pooled.residual == pytest.approx(residual / 6)
    assert of_queries(table) == Variance(pytest.approx(square_of_queries / 24), 5)


def test_seeds_are_pooled_over_configurations_by_their_runs() -> None:
    tables = [RNG.normal(size=(runs, 50)) + RNG.normal(size=(runs, 1)) for runs in (2, 3, 5, 1)]
    alone = [of_runs([[table]]) for table in tables[:3]]
    expected = np.average([noise.seeds.value for noise in alone if noise], weights=[1, 2, 4])
    residual = np.average([noise.residual for noise in alone if noise], weights=[1, 2, 4])
    pooled = of_runs([[table] for table in tables])
    assert pooled is not None and pooled.seeds == Variance(pytest.approx(expected), 7)
    assert pooled.residual == pytest.approx(residual)
    assert pooled.reliability == pytest.approx(expected / (expected + residual))
    assert of_runs([[tables[3]]]) is None
    assert of_runs([]) is None


def test_degrees_of_freedom_are_satterthwaites() -> None:
    both = Variance(2.0, 10) + Variance(1.0, 4)
    assert both == Variance(3.0, pytest.approx(9 / (4 / 10 + 1 / 4)))
    assert Variance(2.0, 10) + Variance(0.0, 1) == Variance(2.0, 10)
    assert Variance(2.0, 10) + Variance(2.0, 10) == Variance(4.0, pytest.approx(20))
    assert Variance(3.0, 5).over(3) == Variance(1.0, 5)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_the_step_down_test(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for alpha in (0.05, 0.1, 0.5):
        rejected = set()
        for tried, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
            if p_values[index] * (len(p_values) - tried) > alpha:
                break
            rejected.add(index)
        assert {index for index, value in enumerate(adjusted) if value <= alpha} == rejected


def test_paired_differences_are_scipys_and_adjusted() -> None:
    first, second = RNG.normal(0.2, 1, 60), RNG.normal(size=60)
    differences = paired([first - second, first - first, first - 5])
    expected = stats.ttest_rel(first, second)
    assert differences[0].p_value == pytest.approx(expected.pvalue)
    bounds = expected.confidence_interval(0.9)
    assert (differences[0].interval.low, differences[0].interval.high) == pytest.approx(
        (bounds.low, bounds.high)
    )
    assert (differences[1].estimate, differences[1].p_value, differences[1].is_real()) == (
        0,
        1,
        False,
    )
    assert differences[2].is_real() and differences[0].adjusted == pytest.approx(
        min(1, 2 * expected.pvalue)
    )


def test_between_splits_is_welchs() -> None:
    dev, test = RNG.normal(size=50), RNG.normal(0.3, 2, size=80)
    bounds = stats.ttest_ind(dev, test, equal_var=False).confidence_interval(0.9)
    welch = between_splits(dev, test)
    assert (welch.low, welch.high) == pytest.approx((bounds.low, bounds.high))


def test_single_run_uses_the_noise_of_other_configurations() -> None:
    shared = RNG.normal(size=200)

    def table(runs: int) -> np.ndarray:
        scores = (
            shared
            + RNG.normal(0, 0.5, size=(runs, 1, 1, 1))
            + RNG.normal(0, 0.1, size=(runs, 1, 2, 200))
        )
        return 0.5 + scores / 20

    repeated = [Replicated(("plain",), table(3)) for _ in range(6)]
    alone = Replicated(("plain",), table(1))
    noise = SeedNoise([*repeated, alone])
    variance = noise.of("plain", 0).seeds
    assert variance.degrees == 12 and variance.value == pytest.approx((0.5 / 20) ** 2, rel=0.9)
    assert noise.of("another", 0).seeds.degrees == 12
    reference = np.full((2, 200), 0.5)
    by_configuration = intervals([*repeated, alone], reference, noise, GOALS)
    narrow, wide = by_configuration[0][0], by_configuration[-1][0]
    assert wide.polarity.half_width > 1.3 * narrow.polarity.half_width
    assert wide.retention is not None and wide.retention.half_width > 0
    trained = Trained(
        [Scored.by_all_runs(configuration) for configuration in (*repeated, alone)], noise
    )
    sampled = noise_of(trained, reference[None], seed=0, resamples=4000)
    assert sampled.seeds is not None
    size = sampled.seeds.deviations[:, :7, 0].std(axis=0)
    np.testing.assert_allclose(size, np.sqrt(variance.value / np.array([3] * 6 + [1])), rtol=0.05)
    assert not sampled.seeds.deviations[:, 7].any()
    assert not SeedNoise([alone]).is_known


def test_luck_of_a_selected_run_is_subtracted() -> None:
    """The run that is best on dev is selected. After the luck is subtracted, its mean on test is unbiased."""
    rng = np.random.default_rng(3)
    runs, num_queries, seed_deviation, residual_deviation = 3, 40, 0.02, 0.1
    remaining, errors = [], []
    key = (("plain",),)
    table = rng.normal(0, seed_deviation, (600, runs, 1, 2, 1))
    table = table + rng.normal(0, residual_deviation, (600, runs, 1, 2, num_queries))
    noise = SeedNoise([Replicated(key[0], 0.5 + scores) for scores in table])
    untrained = np.full((1, 2, num_queries), 0.5)
    for _ in range(400):
        effects = rng.normal(0, seed_deviation, runs)
        dev = 0.5 + effects[:, None] + rng.normal(0, residual_deviation, (runs, num_queries))
        best = int(dev.mean(axis=1).argmax())
        scores = np.stack([dev, rng.normal(0.5, residual_deviation, (runs, num_queries))], axis=1)[
            :, None
        ]
        test = np.full((1, 2, num_queries), 0.5)
        test[0, 0] += effects[best]
        scored = Scored(Replicated(("plain",), scores), test, ((best,),))
        sampled = noise_of(Trained([scored], noise), untrained, seed=0, resamples=200)
        assert sampled.seeds is not None
        remaining.append(sampled.means[0, 0] - 0.5)
        errors.append(sampled.seeds.deviations[:, 0, 0].std())
    expected = noise.of("plain", 0)
    assert expected.reliability == pytest.approx(
        seed_deviation**2 / (seed_deviation**2 + residual_deviation**2 / num_queries), rel=0.1
    )
    assert abs(np.mean(remaining)) < 3 * np.std(remaining) / 20, (
        "unbiased although the best run was selected"
    )
    assert np.std(remaining) == pytest.approx(np.mean(errors), rel=0.1)
    unseen = (1 - expected.reliability) * (1 - 1 / runs)
    assert np.mean(errors) == pytest.approx(
        math.sqrt(expected.seeds.value * (1 / runs + unseen)), rel=0.03
    )


def test_sampled_deviations_keep_the_correlation_of_points() -> None:
    common = RNG.normal(size=(5, 1, 1))
    means = common * np.array([[[1.0, -2.0], [3.0, 0.5]]])  # all points move together
    sizes = np.array([[0.1, 0.2], [0.3, 0.4]])
    deviations = seeds.sample_deviations(means, sizes, np.random.default_rng(0), num_samples=20_000)
    flat = deviations.reshape(len(deviations), -1)
    np.testing.assert_allclose(flat.std(axis=0), sizes.ravel(), rtol=0.03)
    signs = np.sign([1, -2, 3, 0.5])
    np.testing.assert_allclose(np.corrcoef(flat.T), np.outer(signs, signs), atol=1e-9)


def test_optimism_equals_the_lead_of_the_best_of_equal_points() -> None:
    """The best of 40 equally good points leads by 2.16 standard errors, the expected maximum of 40 normal variables."""
    best = lambda means: [int(means[:, 0].argmax())]  # noqa: E731
    num_queries = 100
    added, estimated = [], []
    for index in range(60):
        scores = np.random.default_rng(index).normal(size=(40, 2, num_queries))
        means = scores.mean(axis=-1)
        added.append(means[best(means)[0], 0])
        estimated.append(optimism(scores, seed=index, select=best))
    expected = 2.16 / math.sqrt(num_queries)
    assert np.mean(added) == pytest.approx(expected, rel=0.1)
    assert np.mean(estimated, axis=0) == pytest.approx([expected, 0], abs=0.06)


def test_optimism_of_an_outstanding_point_is_zero() -> None:
    scores = RNG.normal(0, 0.01, size=(5, 2, 50)) + np.arange(5)[:, None, None]
    assert optimism(scores, seed=0) == pytest.approx([0, 0], abs=1e-12)
