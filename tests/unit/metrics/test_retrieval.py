"""Retrieval and its scores against brute force."""

from fractions import Fraction

import hypothesis.extra.numpy as hnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.errors import InputError
from raysweep.metrics import measures, retrieval


def unit_rows(rng: np.random.Generator, rows: int, width: int) -> np.ndarray:
    array = rng.normal(size=(rows, width)).astype(np.float32)
    return array / np.linalg.norm(array, axis=1, keepdims=True)


@pytest.mark.parametrize("k", [1, 2, 5, 16])
def test_rank_weights_follow_their_formula(k: int) -> None:
    assert retrieval.rank_weights("uniform", k) == pytest.approx([1 / k] * k)
    linear = [2 * (k + 1 - i) / (k * (k + 1)) for i in range(1, k + 1)]
    assert retrieval.rank_weights("linear", k) == pytest.approx(linear)
    assert sum(linear) == pytest.approx(1)


@pytest.mark.parametrize("kind", ["uniform", "linear"])
@pytest.mark.parametrize(("num_classes", "k"), [(2, 1), (2, 7), (4, 5), (3, 40)])
def test_scores_equal_a_brute_force_loop(
    kind: retrieval.RankWeights, num_classes: int, k: int
) -> None:
    rng = np.random.default_rng(num_classes * 100 + k)
    queries, pool = unit_rows(rng, 30, 8), unit_rows(rng, 40, 8)
    reference_queries, reference_pool = unit_rows(rng, 30, 6), unit_rows(rng, 40, 6)
    query_labels, pool_labels = (
        rng.integers(num_classes, size=30),
        rng.integers(num_classes, size=40),
    )
    retrieved = retrieval.retrieve(queries, pool, k)
    cosines = retrieval.cosines_of_retrieved(retrieved, reference_queries, reference_pool)
    scores = retrieval.score(
        retrieved, cosines, query_labels, pool_labels, retrieval.rank_weights(kind, k)
    )
    for q in range(30):
        order = sorted(range(40), key=lambda p: (-float(queries[q] @ pool[p]), p))[:k]
        weights = (
            [1 / k] * k if kind == "uniform" else [2 * (k - i) / (k * (k + 1)) for i in range(k)]
        )
        polarity = sum(
            w for w, p in zip(weights, order, strict=True) if pool_labels[p] == query_labels[q]
        )
        similarity = sum(
            w * float(np.dot(reference_queries[q].astype(float), reference_pool[p].astype(float)))
            for w, p in zip(weights, order, strict=True)
        )
        assert scores["polarity"][q] == pytest.approx(polarity)
        assert scores["similarity"][q] == pytest.approx(similarity)
        assert "accuracy" in scores.named
        assert scores["accuracy"][q] == (
            exact_vote([pool_labels[p] for p in order], kind) == query_labels[q]
        )


def exact_vote(labels: list[int], kind: str) -> int:
    """Return the label with the largest weight, computed in fractions so that ties are exact."""
    k = len(labels)
    votes: dict[int, Fraction] = {}
    for rank, label in enumerate(labels, 1):
        weight = Fraction(1, k) if kind == "uniform" else Fraction(2 * (k + 1 - rank), k * (k + 1))
        votes[label] = votes.get(label, Fraction(0)) + weight
    maximum = max(votes.values())
    return next(label for label in labels if votes[label] == maximum)


@settings(deadline=None)
@given(
    st.sampled_from(["uniform", "linear"]),
    st.integers(1, 40),
    st.integers(1, 5),
    st.integers(0, 99),
)
def test_vote_returns_largest_weight_and_breaks_ties_by_rank(
    kind: retrieval.RankWeights, k: int, num_classes: int, seed: int
) -> None:
    labels = np.random.default_rng(seed).integers(-num_classes, 0, size=(20, k))
    expected = [exact_vote(row, kind) for row in labels.tolist()]
    assert measures.vote(labels, retrieval.rank_weights(kind, k)).tolist() == expected


def test_vote_does_not_depend_on_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.random.default_rng(0).integers(0, 3, size=(50, 6))
    weights = retrieval.rank_weights("linear", 6)
    winners = measures.vote(labels, weights)
    monkeypatch.setattr(measures, "VOTES_PER_BLOCK", 7 * 36)
    assert measures.vote(labels, weights).tolist() == winners.tolist()


@settings(deadline=None, max_examples=100)
@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 6), st.integers(1, 12)),
        elements=st.sampled_from([-1, 0, 0.5, 1]),
    ),
    st.data(),
)
def test_top_k_equals_stable_sort(values: np.ndarray, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, values.shape[1]))
    assert (retrieval.top_k(values, k) == np.argsort(-values, axis=1, kind="stable")[:, :k]).all()


FEW = st.sampled_from([-1, 0, 0.25, 0.5, 1])  # sums are often equal
ANY = st.floats(-1, 1, width=32)  # sums are sometimes equal, by rounding


@settings(deadline=None, max_examples=200)
@given(st.data(), st.sampled_from([FEW, ANY]), st.integers(1, 6), st.integers(1, 25))
def test_top_k_of_sums_equals_stable_sort_of_each_sum(
    data: st.DataObject, elements: st.SearchStrategy[float], rows: int, columns: int
) -> None:
    first, second = (
        data.draw(hnp.arrays(np.float32, (rows, columns), elements=elements)) for _ in range(2)
    )
    any_weight = st.one_of(st.sampled_from([0.25, 0.5, 1.0]), st.floats(1e-3, 100))
    weights = data.draw(st.lists(any_weight, min_size=1, max_size=60))
    k = data.draw(st.integers(1, columns))
    tops = retrieval.top_k_of_sums(first, second, weights, k)
    assert len(tops) == len(weights)
    for weight, top in zip(weights, tops, strict=True):
        sums = first + np.float32(weight) * second
        np.testing.assert_array_equal(top, np.argsort(-sums, axis=1, kind="stable")[:, :k])


def test_cosines_of_several_equal_cosines_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The results are identical for all block sizes."""
    rng = np.random.default_rng(0)
    queries, pool = unit_rows(rng, 23, 9), unit_rows(rng, 40, 9)
    retrievals = [rng.integers(0, 40, (23, 5)) for _ in range(7)]
    expected = [
        retrieval.cosines_of_retrieved(retrieved, queries, pool) for retrieved in retrievals
    ]
    for pairs, cells in ((2**13, 2**23), (3, 100), (1, 1)):
        monkeypatch.setattr(retrieval, "PAIRS_PER_BLOCK", pairs)
        monkeypatch.setattr(retrieval, "CELLS_PER_BLOCK", cells)
        np.testing.assert_array_equal(
            retrieval.cosines_of_several(retrievals, queries, pool), expected
        )
    retrieved, query, neighbor = retrievals[0], 4, 2
    exact = np.dot(queries[query].astype(float), pool[retrieved[query, neighbor]].astype(float))
    assert expected[0][query, neighbor] == pytest.approx(exact, abs=1e-12)


def test_pool_equals_pandas_sample() -> None:
    frame = pd.DataFrame({"row": range(1000)})
    for queries in (10, 100, 500):
        size = min(1000, 5 * queries)
        expected = frame.sample(size, random_state=42).row.to_numpy()
        assert (retrieval.sample_pool(1000, queries) == expected).all()


@pytest.mark.parametrize("k", [0, 11])
def test_k_outside_pool_is_rejected(k: int) -> None:
    with pytest.raises(InputError, match=f"k is {k}; allowed: 1 to 10"):
        retrieval.check_k(k, 10)
