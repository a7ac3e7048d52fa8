"""Neighbours against a brute-force loop."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.data import neighbours
from raysweep.data.neighbours import NeighbourIndex


def unit(rng, n, d):
    rows = rng.normal(size=(n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def brute_force(embeddings, labels, groups, rows, k, mode="per_class", min_similarity=None):  # noqa: PLR0913 (as search)
    """For each row, two lists of (id, cosine)."""
    exact = (embeddings.astype(np.float64) @ embeddings.astype(np.float64).T).astype(np.float32)
    found = []
    for row in rows:
        allowed = [other for other in range(len(labels)) if groups[other] != groups[row]]
        if min_similarity is not None:
            allowed = [other for other in allowed if exact[row, other] >= min_similarity]
        allowed.sort(key=lambda other: (-exact[row, other], other))
        if mode == "pooled":
            allowed = allowed[:k]
        own = [other for other in allowed if labels[other] == labels[row]][:k]
        others = [other for other in allowed if labels[other] != labels[row]][:k]
        found.append([[(other, exact[row, other]) for other in side] for side in (own, others)])
    return found


def assert_same(result, expected, k):
    assert result.ids.dtype == np.int32 and result.cosines.dtype == np.float32
    assert result.ids.shape == result.cosines.shape == (len(expected), 2, k)
    for row, sides in enumerate(expected):
        for slot, side in enumerate(sides):
            padding = k - len(side)
            assert result.ids[row, slot].tolist() == [other for other, _ in side] + [-1] * padding
            np.testing.assert_array_equal(result.cosines[row, slot], [c for _, c in side] + [np.nan] * padding)


@st.composite
def problems(draw):
    n = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    embeddings = unit(rng, n, draw(st.sampled_from([2, 5, 32])))
    # Copied embeddings are exact ties: of the same text when in one group, else of texts that a tokeniser merges.
    copied = rng.integers(0, n, draw(st.integers(0, n)))
    embeddings[rng.integers(0, n, len(copied))] = embeddings[copied]
    labels = rng.integers(-2, -2 + draw(st.integers(1, 5)), n)
    groups = rng.integers(0, max(1, n // draw(st.integers(1, 20))), n) if draw(st.booleans()) else np.arange(n)
    rows = rng.permutation(n)[: draw(st.integers(0, n))]
    return embeddings, labels, groups, rows


@settings(deadline=None, max_examples=100)
@given(
    problems(),
    st.integers(1, 12),
    st.sampled_from(["per_class", "pooled"]),
    st.sampled_from([None, -0.5, 0.0, 0.6, 1.0]),
    st.sampled_from([1, 8]),
)
def test_equal_to_brute_force(problem, k, mode, min_similarity, slack):
    embeddings, labels, groups, rows = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "SLACK", slack)
        found = NeighbourIndex(embeddings, labels, groups, 1).search(rows, k, mode, min_similarity)
    assert_same(found, brute_force(embeddings, labels, groups, rows, k, mode, min_similarity), k)


@pytest.mark.parametrize("mode", ["per_class", "pooled"])
def test_duplicate_groups_larger_than_what_is_fetched(mode):
    rng = np.random.default_rng(0)
    embeddings, labels, groups = unit(rng, 300, 16), rng.integers(0, 3, 300), np.arange(300)
    embeddings[50:150], groups[50:150] = embeddings[50], 50  # the same text a hundred times, whatever its label
    rows = np.arange(40, 160)
    found = NeighbourIndex(embeddings, labels, groups).search(rows, 5, mode)
    assert (found.ids >= 0).sum(axis=(1, 2)).min() == (10 if mode == "per_class" else 5)
    assert_same(found, brute_force(embeddings, labels, groups, rows, 5, mode), 5)


def test_ties_beyond_what_is_fetched_go_to_the_lower_id():
    embeddings = np.zeros((200, 4), dtype=np.float32)
    embeddings[:, 0] = 1
    labels = np.arange(200) % 2
    found = NeighbourIndex(embeddings, labels, np.arange(200)).search(np.array([3, 100]), 4)
    assert found.ids.tolist() == [[[1, 5, 7, 9], [0, 2, 4, 6]], [[0, 2, 4, 6], [1, 3, 5, 7]]]


def test_does_not_depend_on_how_rows_are_spread(monkeypatch):
    rng = np.random.default_rng(1)
    embeddings, labels, groups = unit(rng, 400, 24), rng.integers(0, 4, 400), rng.integers(0, 380, 400)
    index = NeighbourIndex(embeddings, labels, groups)
    whole = index.search(np.arange(400), 6)
    monkeypatch.setattr(neighbours, "QUERIES_AT_ONCE", 7)
    monkeypatch.setattr(neighbours, "COSINES_AT_ONCE", 900)
    parts = [index.search(rows, 6) for rows in np.array_split(np.arange(400), 9)]
    np.testing.assert_array_equal(whole.ids, np.concatenate([part.ids for part in parts]))
    np.testing.assert_array_equal(whole.cosines, np.concatenate([part.cosines for part in parts]))


def test_memory_mapped_embeddings(tmp_path, monkeypatch):
    monkeypatch.setattr(neighbours, "ROWS_AT_ONCE", 16)
    rng = np.random.default_rng(2)
    embeddings, labels, groups = unit(rng, 100, 8), rng.integers(0, 2, 100), np.arange(100)
    np.save(tmp_path / "embeddings.npy", embeddings)
    mapped = np.load(tmp_path / "embeddings.npy", mmap_mode="r")
    found = NeighbourIndex(mapped, labels, groups).search(np.arange(100), 3)
    assert_same(found, brute_force(embeddings, labels, groups, range(100), 3), 3)


def test_one_class_and_one_row():
    index = NeighbourIndex(unit(np.random.default_rng(0), 1, 4), np.zeros(1, int), np.zeros(1, int))
    assert (index.search(np.array([0]), 3).ids == -1).all()
    assert index.search(np.array([], dtype=int), 3).ids.shape == (0, 2, 3)
