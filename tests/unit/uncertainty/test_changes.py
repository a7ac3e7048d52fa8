"""Significance of changes, on formulas, other libraries and data with a known truth."""

import math

import numpy as np
import pytest
from scipy import stats

from raysweep.metrics.closeness import closeness
from raysweep.metrics.measured_value import CRITICAL_Z, MeasuredValue
from raysweep.metrics.ranking import ErrorCounts, Ranking, count_errors
from raysweep.uncertainty import changes
from raysweep.uncertainty.changes import (
    bootstrap_means,
    bootstrap_over_pairs,
    bootstrap_pair_file,
    z_statistic,
)

NUM_SETS = 1000


def test_z_of_the_published_improvement():
    share = 0.047
    z = z_statistic(share, share * (1 - 0.0730), 357_642)
    assert round(abs(z), 2) == 6.98


@pytest.mark.parametrize("seed", range(20))
def test_z_equals_that_of_the_chi_square_test(seed):
    rng = np.random.default_rng(seed)
    num_pairs = int(rng.integers(50, 5000))
    before, after = rng.integers(1, num_pairs, 2)
    z = z_statistic(before / num_pairs, after / num_pairs, num_pairs)
    table = [[before, num_pairs - before], [after, num_pairs - after]]
    result = stats.chi2_contingency(table, correction=False)
    assert abs(z) == pytest.approx(math.sqrt(result.statistic), abs=1e-9, rel=1e-9)
    assert (z > 0) == (after > before)


def test_z_of_equal_shares_is_zero():
    for share in (0, 0.3, 1):
        assert z_statistic(share, share, 10) == 0


def bounds_of(differences, num_units):
    """Return the expanded percentiles of resampled differences."""
    tail = stats.norm.cdf(
        -stats.t.ppf(0.975, num_units - 1) * math.sqrt(num_units / (num_units - 1))
    )
    return np.quantile(differences, [tail, 1 - tail])


def random_counts(num_queries=12, seed=0):
    rng = np.random.default_rng(seed)
    pairs = rng.integers(1, 40, num_queries)
    return tuple(ErrorCounts(rng.binomial(pairs, share), pairs) for share in (0.2, 0.4))


def test_bootstrap_over_queries_equals_explicit_resamples():
    before, after = random_counts()
    indices = np.random.default_rng(3).integers(12, size=(500, 12))
    differences = (after.errors - before.errors)[indices].sum(axis=1) / before.pairs[indices].sum(
        axis=1
    )
    change = bootstrap_over_pairs(before, after, 3, 500)
    assert (change.interval.low, change.interval.high) == pytest.approx(bounds_of(differences, 12))
    means = (after.by_group - before.by_group)[indices].mean(axis=1)
    change = bootstrap_means(before.by_group, after.by_group, 3, 500)
    assert (change.interval.low, change.interval.high) == pytest.approx(bounds_of(means, 12))


def test_nothing_is_known_from_one_query():
    counts = ErrorCounts(np.array([3]), np.array([4]))
    better = ErrorCounts(np.array([0]), np.array([4]))
    assert not bootstrap_over_pairs(counts, better, 0).is_significant


def pnd_of(closeness_of_pairs, is_positive):
    positives = closeness_of_pairs[is_positive]
    negatives = closeness_of_pairs[~is_positive]
    return float((positives[:, None] <= negatives).mean())


def test_bootstrap_of_a_pair_file_equals_explicit_resamples():
    rng = np.random.default_rng(0)
    is_positive = np.arange(25) < 10
    before, after = rng.integers(0, 6, (2, 25)) + is_positive * [[2], [1]]
    weights = next(changes._draw_weights(is_positive, 5, 50))
    assert (weights[:, is_positive].sum(axis=1) == 10).all()
    assert (weights[:, ~is_positive].sum(axis=1) == 15).all()
    differences = []
    for counts in weights.astype(int):
        rows = np.repeat(np.arange(25), counts)
        differences.append(
            pnd_of(after[rows], is_positive[rows]) - pnd_of(before[rows], is_positive[rows])
        )
    change = bootstrap_pair_file(before.astype(float), after.astype(float), is_positive, 5, 50)
    assert (change.interval.low, change.interval.high) == pytest.approx(bounds_of(differences, 10))


def test_blocks_of_resamples_do_not_change_the_interval(monkeypatch):
    rng = np.random.default_rng(0)
    is_positive = np.arange(30) % 3 == 0
    before, after = rng.normal(size=(2, 30))
    num_drawn = [len(block) for block in changes._draw_weights(is_positive, 1, 100)]
    assert num_drawn == [100]
    monkeypatch.setattr(changes, "_CELLS_AT_ONCE", 900)
    blocks = [len(block) for block in changes._draw_weights(is_positive, 1, 100)]
    assert blocks == [30, 30, 30, 10]
    change = bootstrap_pair_file(before, after, is_positive, 1, 100)
    assert change.interval.contains(pnd_of(after, is_positive) - pnd_of(before, is_positive))


@pytest.fixture(scope="module")
def null_sets():
    """Return ErrorCounts of two encoders over 1,000 sets without a true change, each of 40 queries with 3 + 3 documents.

    The encoders move a query's positives together, in random directions, so its pairs are not independent.
    """
    rng = np.random.default_rng(0)
    num_queries, num_documents = 40, 6
    is_positive = np.arange(num_documents) < 3
    shape = (NUM_SETS * num_queries, num_documents)
    shared = rng.normal(size=shape) + 1.5 * is_positive
    group = np.repeat(np.arange(shape[0]), num_documents)
    labels = np.tile(is_positive, shape[0])
    counts = []
    for _ in range(2):
        shift = 1.0 * rng.normal(size=(shape[0], 1)) * is_positive
        values = shared + shift + 0.3 * rng.normal(size=shape)
        counts.append(count_errors(Ranking.of(values.ravel(), labels, group, shape[0])))
    before, after = counts
    sets = []
    for start in range(0, shape[0], num_queries):
        queries = slice(start, start + num_queries)
        sets.append(
            [ErrorCounts(each.errors[queries], each.pairs[queries]) for each in (before, after)]
        )
    return sets


def test_null_sets_are_rarely_significant_by_the_bootstrap(null_sets):
    significant = [
        bootstrap_over_pairs(*pair, seed, 300).is_significant for seed, pair in enumerate(null_sets)
    ]
    assert 0.03 <= np.mean(significant) <= 0.07


def test_null_sets_are_often_significant_by_the_z_test(null_sets):
    statistics = [
        z_statistic(before.over_pairs, after.over_pairs, before.num_pairs)
        for before, after in null_sets
    ]
    assert np.mean(np.abs(statistics) > CRITICAL_Z) > 0.1


def made_set(seed, direction):
    """Return closeness of two encoders in 60 queries with 5 + 5 documents, and ErrorCounts.

    The base encoder sees the class on coordinate 0 and noise on the others. The tuned encoder gains weight
    ``direction`` on coordinate 1, which agrees with the class if it is positive and contradicts it if negative; both
    encoders are equal if it is 0.
    """
    rng = np.random.default_rng(seed)
    num_queries, num_documents, width = 60, 10, 6
    classes = rng.choice([-1, 1], num_queries)
    is_positive = np.tile(np.arange(num_documents) < 5, num_queries)
    group = np.repeat(np.arange(num_queries), num_documents)
    document_classes = np.where(is_positive, classes[group], -classes[group])
    queries = rng.normal(size=(num_queries, width))
    documents = rng.normal(size=(len(group), width))
    queries[:, 0] += 2 * classes
    documents[:, 0] += document_classes
    documents[:, 1] += 2 * np.sign(direction) * document_classes
    queries[:, 1] = 0
    tuned = queries.copy()
    tuned[:, 1] = abs(direction) * classes
    pairs = group, np.arange(len(group))
    counts = []
    for encoder in (queries, tuned):
        values = closeness(
            "cosine", encoder.astype(np.float32), documents.astype(np.float32), pairs
        )
        counts.append(count_errors(Ranking.of(values, is_positive, group, num_queries)))
    return counts


@pytest.mark.parametrize("seed", range(20))
def test_planted_changes_are_classified(seed):
    verdicts = {"improved": 1.0, "worsened": -1.0, "unchanged": 0.0}
    for expected, direction in verdicts.items():
        before, after = made_set(seed, direction)
        z = z_statistic(before.over_pairs, after.over_pairs, before.num_pairs)
        change = bootstrap_over_pairs(before, after, seed, 300)
        mean_change = bootstrap_means(before.by_group, after.by_group, seed, 300)
        for interval in (change.interval, mean_change.interval):
            value = MeasuredValue(
                "PND",
                "cosine",
                after.over_pairs,
                before.over_pairs,
                interval.low,
                interval.high,
                before.num_pairs,
                z,
            )
            assert value.verdict == value.z_verdict == expected
