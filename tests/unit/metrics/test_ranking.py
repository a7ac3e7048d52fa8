"""Measures of rankings against brute force and other libraries."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sklearn.metrics import label_ranking_average_precision_score, ndcg_score, roc_auc_score

from raysweep.metrics import ranking
from raysweep.metrics.ranking import RANKING_MEASURES, ErrorCounts, Ranking, agreement, count_errors

ANY_SEED = range(30)


def groups_with_ties(seed, num_groups=8, num_values=4):
    """Return random candidates in random order: groups of unequal size with many ties, some without one of the kinds."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 15, num_groups)
    group = rng.permutation(np.repeat(np.arange(num_groups), sizes))
    closeness = rng.integers(0, num_values, len(group)).astype(np.float64)
    return closeness, rng.random(len(group)) < 0.4, group, num_groups


def positives_and_negatives(closeness, is_positive, group, number):
    in_group = group == number
    return closeness[in_group & is_positive], closeness[in_group & ~is_positive]


def measured_groups(closeness, is_positive, group, num_groups):
    """Yield the closeness of positives and negatives of each group that has both."""
    for number in range(num_groups):
        positives, negatives = positives_and_negatives(closeness, is_positive, group, number)
        if len(positives) and len(negatives):
            yield positives, negatives


def labels_in_order(positives, negatives):
    """Return the labels of a group's candidates, best first, with negatives first among equals."""
    candidates = [(-value, 1) for value in positives] + [(-value, 0) for value in negatives]
    return [label for _, label in sorted(candidates)]


def brute_force(labels, cutoff=None):
    """Return all measures of one ranking by their definitions."""

    def average_precision(depth):
        precisions = [
            sum(labels[: rank + 1]) / (rank + 1)
            for rank in range(len(labels[:depth]))
            if labels[rank]
        ]
        return sum(precisions) / min(sum(labels), depth or len(labels))

    def gain(ranked):
        return sum(label / math.log2(place + 2) for place, label in enumerate(ranked[:10]))

    return {
        "MRR": 1 / (labels.index(1) + 1),
        "MAP": average_precision(None),
        "P@1": labels[0],
        "nDCG@10": gain(labels) / gain(sorted(labels, reverse=True)),
        "mAP@10": average_precision(10),
    }


@pytest.mark.parametrize("seed", ANY_SEED)
def test_measures_equal_brute_force(seed):
    candidates = groups_with_ties(seed)
    ranked = Ranking.of(*candidates)
    pairs = list(measured_groups(*candidates))
    assert len(ranked.groups) == len(pairs)
    expected = [brute_force(labels_in_order(*pair)) for pair in pairs]
    for name, measure in RANKING_MEASURES.items():
        np.testing.assert_allclose(
            measure(ranked), [values[name] for values in expected], atol=1e-15
        )


@pytest.mark.parametrize("seed", ANY_SEED)
def test_errors_equal_brute_force(seed):
    candidates = groups_with_ties(seed)
    counts = count_errors(Ranking.of(*candidates))
    pairs = list(measured_groups(*candidates))
    errors = [int((positives[:, None] <= negatives).sum()) for positives, negatives in pairs]
    num_pairs = [len(positives) * len(negatives) for positives, negatives in pairs]
    assert counts.errors.tolist() == errors
    assert counts.pairs.tolist() == num_pairs
    assert counts.over_pairs == sum(errors) / sum(num_pairs)
    assert counts.mean_over_groups == pytest.approx(np.mean(np.divide(errors, num_pairs)))


def test_the_two_means_differ_for_groups_of_unequal_size():
    counts = ErrorCounts(np.array([1, 0]), np.array([1, 9]))
    assert (counts.mean_over_groups, counts.over_pairs) == (0.5, 0.1)


def test_groups_without_positives_or_negatives_are_skipped():
    closeness = np.array([0.9, 0.8, 0.7, 0.6])
    is_positive = np.array([True, False, True, False])
    ranked = Ranking.of(closeness, is_positive, np.array([1, 2, 4, 4]), 5)
    assert ranked.groups.tolist() == [4]
    empty = Ranking.of(closeness[:2], is_positive[:2], np.array([1, 2]), 3)
    assert len(empty.groups) == 0
    assert math.isnan(count_errors(empty).over_pairs)
    assert all(len(measure(empty)) == 0 for measure in RANKING_MEASURES.values())


def test_ties_are_errors_in_every_measure():
    labels = np.array([True, False, False])
    ranked = Ranking.of(np.zeros(3), labels, np.zeros(3, np.int64), 1)
    assert count_errors(ranked).over_pairs == 1
    assert ranking.reciprocal_rank(ranked) == pytest.approx(1 / 3)
    assert ranking.precision_at_1(ranked) == 0


def groups_without_ties(seed, num_groups=6, size=25):
    rng = np.random.default_rng(seed)
    closeness = rng.permutation(num_groups * size).reshape(num_groups, size) / 1000
    is_positive = rng.random((num_groups, size)) < 0.3
    is_positive[:, :2] = [True, False]
    return closeness, is_positive


def ranking_of_rows(closeness, is_positive):
    num_groups, size = closeness.shape
    return Ranking.of(
        closeness.ravel(), is_positive.ravel(), np.repeat(np.arange(num_groups), size), num_groups
    )


@pytest.mark.parametrize("seed", range(5))
def test_measures_equal_those_of_scikit_learn(seed):
    closeness, is_positive = groups_without_ties(seed)
    ranked = ranking_of_rows(closeness, is_positive)
    average_precisions = label_ranking_average_precision_score(is_positive, closeness)
    assert ranking.average_precision(ranked).mean() == pytest.approx(average_precisions, abs=1e-12)
    assert ranking.ndcg(ranked).mean() == pytest.approx(
        ndcg_score(is_positive, closeness, k=10), abs=1e-12
    )
    areas = [roc_auc_score(*row) for row in zip(is_positive, closeness, strict=True)]
    assert 1 - count_errors(ranked).by_group == pytest.approx(areas, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_measures_equal_those_of_sentence_transformers(seed):
    closeness, is_positive = groups_without_ties(seed)
    ranked = ranking_of_rows(closeness, is_positive)
    ours = {name: measure(ranked) for name, measure in RANKING_MEASURES.items()}
    for row, labels in enumerate(is_positive):
        documents = [str(number) for number in range(len(labels))]
        evaluator = InformationRetrievalEvaluator(
            {"q": "query"},
            dict.fromkeys(documents, "text"),
            {"q": set(map(str, np.flatnonzero(labels)))},
            map_at_k=[10, 25],
        )
        evaluator.mrr_at_k = [25]
        hits = [
            {"corpus_id": document, "score": float(value)}
            for document, value in zip(documents, closeness[row], strict=True)
        ]
        theirs = evaluator.compute_metrics([hits])
        assert ours["MRR"][row] == pytest.approx(theirs["mrr@k"][25], abs=1e-12)
        assert ours["MAP"][row] == pytest.approx(theirs["map@k"][25], abs=1e-12)
        assert ours["mAP@10"][row] == pytest.approx(theirs["map@k"][10], abs=1e-12)
        assert ours["nDCG@10"][row] == pytest.approx(theirs["ndcg@k"][10], abs=1e-12)
        assert ours["P@1"][row] == theirs["precision@k"][1]


def test_measures_do_not_depend_on_the_order_of_candidates():
    closeness, is_positive, group, num_groups = groups_with_ties(1)
    order = np.random.default_rng(0).permutation(len(group))
    shuffled = Ranking.of(closeness[order], is_positive[order], group[order], num_groups)
    ranked = Ranking.of(closeness, is_positive, group, num_groups)
    for measure in RANKING_MEASURES.values():
        assert measure(shuffled).tolist() == measure(ranked).tolist()


@pytest.mark.parametrize("seed", range(10))
def test_agreement_equals_the_library(seed):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 6, 60)
    first, second = rng.integers(0, 5, (2, 60)).astype(np.float64)
    correlations = agreement(first, second, group, 6)
    for number in range(6):
        is_own = group == number
        assert correlations[number] == pytest.approx(
            spearmanr(first[is_own], second[is_own]).statistic
        )


def test_agreement_of_constant_values():
    group = np.array([0, 0, 1, 1, 2])
    ones = np.ones(5)
    assert agreement(ones, ones, group, 4).tolist() == [1, 1, 1, 1]
    assert agreement(ones, np.arange(5.0), group, 4).tolist() == [0, 0, 1, 1]
