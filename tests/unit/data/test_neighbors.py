"""Neighbors of any number of shards, compared with a brute-force loop."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.data import neighbor_shard, neighbors
from raysweep.data.neighbor_shard import NeighborShard
from raysweep.data.neighbors import NeighborSearch, VectorFile, exact_cosines, merge


def unit(rng, n, d):
    rows = rng.normal(size=(n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def whole(embeddings, labels, groups):
    return VectorFile(embeddings, np.arange(len(labels)), labels, groups)


def find(source, rows, search, num_shards=1):
    """Return the merged neighbors of shards of about equal size."""
    parts = np.array_split(np.arange(len(source)), num_shards)
    shards = [NeighborShard(source, part, 1) for part in parts if len(part)]
    queries = source.read(rows)
    return merge([shard.search(queries, search) for shard in shards], search)


def brute_force(source, rows, search):
    """Return two lists of (id, cosine) per row."""
    exact = source.embeddings[source.places].astype(np.float64)
    cosines = (exact[rows] @ exact.T).astype(np.float32)
    labels, groups, k = source.labels, source.duplicate_groups, search.k
    neighbors = []
    for row, of_row in zip(rows, cosines, strict=True):
        allowed = [other for other in range(len(labels)) if groups[other] != groups[row]]
        if search.min_similarity is not None:
            allowed = [other for other in allowed if of_row[other] >= search.min_similarity]
        allowed.sort(key=lambda other: (-of_row[other], other))
        if search.mode == "pooled":
            allowed = allowed[:k]
        own = [other for other in allowed if labels[other] == labels[row]][:k]
        others = [other for other in allowed if labels[other] != labels[row]][:k]
        neighbors.append([[(other, of_row[other]) for other in side] for side in (own, others)])
    return neighbors


def assert_same(result, expected, k):
    assert result.ids.dtype == np.int32 and result.cosines.dtype == np.float32
    assert result.ids.shape == result.cosines.shape == (len(expected), 2, k)
    for row, sides in enumerate(expected):
        for slot, side in enumerate(sides):
            padding = k - len(side)
            assert result.ids[row, slot].tolist() == [other for other, _ in side] + [-1] * padding
            np.testing.assert_array_equal(
                result.cosines[row, slot], [c for _, c in side] + [np.nan] * padding
            )


def assert_same_bytes(one, other):
    assert one.ids.tobytes() == other.ids.tobytes()
    assert one.cosines.tobytes() == other.cosines.tobytes()


@st.composite
def problems(draw):
    """Draw vectors on a grid, so that brute force has no rounding errors and many cosines tie."""
    n = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    width = draw(st.sampled_from([1, 2, 5, 32]))
    if draw(st.booleans()):
        embeddings = rng.integers(-2, 3, (n, width)).astype(np.float32) / np.float32(8)
    else:
        embeddings = unit(rng, n, width)
    # Copied embeddings are exact ties: of the same text when in one group, else of texts that a tokenizer merges.
    copied = rng.integers(0, n, draw(st.integers(0, n)))
    embeddings[rng.integers(0, n, len(copied))] = embeddings[copied]
    labels = rng.integers(-2, -2 + draw(st.integers(1, 5)), n)
    groups = (
        rng.integers(0, max(1, n // draw(st.integers(1, 20))), n)
        if draw(st.booleans())
        else np.arange(n)
    )
    rows = rng.permutation(n)[: draw(st.integers(0, n))]
    return whole(embeddings, labels, groups), rows


@settings(deadline=None, max_examples=150)
@given(
    problems(),
    st.integers(1, 12),
    st.sampled_from(["per_class", "pooled"]),
    st.sampled_from([None, -0.5, 0.0, 0.6, 1.0]),
    st.sampled_from([1, 8]),
)
def test_any_number_of_shards_matches_brute_force(problem, k, mode, min_similarity, slack):
    source, rows = problem
    search = NeighborSearch(k, mode, min_similarity)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbor_shard, "SLACK", slack)
        patch.setattr(neighbor_shard, "ROWS_AT_ONCE", 16)
        results = {
            num_shards: find(source, rows, search, num_shards) for num_shards in (1, 2, 3, 7)
        }
    assert_same(results[1], brute_force(source, rows, search), k)
    for num_shards in (2, 3, 7):
        assert_same_bytes(results[1], results[num_shards])


@pytest.mark.parametrize("mode", ["per_class", "pooled"])
def test_duplicate_groups_larger_than_the_fetched_rows(mode):
    rng = np.random.default_rng(0)
    embeddings, labels, groups = unit(rng, 300, 16), rng.integers(0, 3, 300), np.arange(300)
    # the same text a hundred times, whatever its label
    embeddings[50:150], groups[50:150] = (
        embeddings[50],
        50,
    )
    source, rows, search = (
        whole(embeddings, labels, groups),
        np.arange(40, 160),
        NeighborSearch(5, mode),
    )
    neighbors = find(source, rows, search)
    assert (neighbors.ids >= 0).sum(axis=(1, 2)).min() == (10 if mode == "per_class" else 5)
    assert_same(neighbors, brute_force(source, rows, search), 5)


def test_ties_beyond_the_fetched_rows_go_to_the_lower_id():
    embeddings = np.zeros((200, 4), dtype=np.float32)
    embeddings[:, 0] = 1
    source = whole(embeddings, np.arange(200) % 2, np.arange(200))
    for num_shards in (1, 3):
        neighbors = find(source, np.array([3, 100]), NeighborSearch(4), num_shards)
        assert neighbors.ids.tolist() == [
            [[1, 5, 7, 9], [0, 2, 4, 6]],
            [[0, 2, 4, 6], [1, 3, 5, 7]],
        ]


def test_result_does_not_depend_on_the_distribution_of_rows(monkeypatch):
    rng = np.random.default_rng(1)
    source = whole(unit(rng, 400, 24), rng.integers(0, 4, 400), rng.integers(0, 380, 400))
    search = NeighborSearch(6)
    at_once = find(source, np.arange(400), search)
    monkeypatch.setattr(neighbor_shard, "COSINES_AT_ONCE", 900)
    monkeypatch.setattr(neighbors, "PRODUCTS_AT_ONCE", 50)
    parts = [find(source, rows, search, 2) for rows in np.array_split(np.arange(400), 9)]
    np.testing.assert_array_equal(at_once.ids, np.concatenate([part.ids for part in parts]))
    np.testing.assert_array_equal(at_once.cosines, np.concatenate([part.cosines for part in parts]))


def test_cosine_depends_on_its_two_vectors_only():
    rng = np.random.default_rng(2)
    for width in (1, 2, 3, 7, 384, 385):
        left, right = unit(rng, 40, width), unit(rng, 40, width)
        rows = rng.permutation(40)
        together = exact_cosines(left, rows, right, rows[::-1])
        single = [
            exact_cosines(left, rows[i : i + 1], right, rows[::-1][i : i + 1])[0] for i in range(40)
        ]
        assert together.tolist() == single
        exact = (left[rows].astype(np.float64) * right[rows[::-1]]).sum(axis=1)
        np.testing.assert_allclose(together, exact, rtol=0, atol=1e-7)


def test_rows_of_memory_mapped_embeddings_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(neighbor_shard, "ROWS_AT_ONCE", 16)
    rng = np.random.default_rng(2)
    np.save(tmp_path / "embeddings.npy", unit(rng, 150, 8))
    mapped = np.load(tmp_path / "embeddings.npy", mmap_mode="r")
    places = np.sort(rng.permutation(150)[:100])
    source = VectorFile(mapped, places, rng.integers(0, 2, 100), np.arange(100))
    search = NeighborSearch(3)
    assert_same(find(source, np.arange(100), search, 2), brute_force(source, range(100), search), 3)


def test_one_class_and_one_row():
    source = whole(unit(np.random.default_rng(0), 1, 4), np.zeros(1, int), np.zeros(1, int))
    assert (find(source, np.array([0]), NeighborSearch(3)).ids == -1).all()
    assert find(source, np.array([], dtype=int), NeighborSearch(3)).ids.shape == (0, 2, 3)
