"""The inverted file: exact search of the probed cells, and recall, compared with brute force."""

import numpy as np
import pytest

from raysweep.data import inverted_file, neighbor_shard
from raysweep.data.inverted_file import Quantizer
from raysweep.data.neighbor_shard import NeighborShard
from raysweep.data.neighbors import NeighborSearch, VectorFile, merge


def source(n=600, width=12, classes=3):
    """Vectors in clumps, some of them copied."""
    rng = np.random.default_rng(3)
    middles = rng.normal(size=(20, width))
    rows = middles[rng.integers(0, 20, n)] + 0.3 * rng.normal(size=(n, width))
    rows[rng.integers(0, n, 60)] = rows[rng.integers(0, n, 60)]
    embeddings = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return VectorFile(embeddings, np.arange(n), rng.integers(0, classes, n), rng.integers(0, n, n))


def find(data, quantizer, search, num_shards, num_probes):
    return search_shards(
        data, quantizer, search, data.read(np.arange(len(data))), num_shards, num_probes
    )


def search_shards(data, quantizer, search, queries, num_shards, num_probes, num_threads=1):  # noqa: PLR0913
    probes = quantizer.nearest(queries.vectors, num_probes)
    answers = []
    for rows in np.array_split(np.arange(len(data)), num_shards):
        shard = NeighborShard(data, rows, num_threads)
        shard.put_into_cells(quantizer.nearest_one)
        answers.append(shard.search(queries, search, probes))
    return merge(answers, search)


def brute_force(data, search, allowed):
    """Ids (n, 2, k) of the nearest among the ``allowed`` (n, n)."""
    exact = data.embeddings.astype(np.float64)
    cosines = (exact @ exact.T).astype(np.float32)
    ids = np.full((len(data), 2, search.k), -1)
    for row, of_row in enumerate(cosines):
        may = allowed[row] & (data.duplicate_groups != data.duplicate_groups[row])
        for slot in (0, 1):
            others = np.flatnonzero(may & ((data.labels == data.labels[row]) == (slot == 0)))
            nearest = others[np.lexsort((others, -of_row[others]))][: search.k]
            ids[row, slot, : len(nearest)] = nearest
    return ids


@pytest.mark.parametrize("num_queries", [1, 3, 600])
def test_result_does_not_depend_on_threads(num_queries):
    data, search = source(), NeighborSearch(5)
    quantizer = Quantizer(inverted_file.train(data, seed=7, num_threads=1), 1)
    queries = data.read(np.arange(num_queries))
    several, one = (
        search_shards(data, quantizer, search, queries, 2, 3, num_threads) for num_threads in (8, 1)
    )
    np.testing.assert_array_equal(several.ids, one.ids)
    np.testing.assert_array_equal(several.cosines, one.cosines)


@pytest.mark.parametrize("slack", [1, 8])
def test_probed_cells_and_recall_match_brute_force(monkeypatch, slack):
    monkeypatch.setattr(neighbor_shard, "SLACK", slack)
    data, search = source(), NeighborSearch(5)
    quantizer = Quantizer(inverted_file.train(data, seed=7, num_threads=1), 1)
    cell = quantizer.nearest_one(data.embeddings)
    probes = quantizer.nearest(data.embeddings, 3)
    assert (probes == cell[:, None]).any(axis=1).all()
    neighbors = find(data, quantizer, search, 1, 3)
    in_cells = (cell == probes[:, :, None]).any(axis=1)
    np.testing.assert_array_equal(neighbors.ids, brute_force(data, search, in_cells))

    exact = NeighborShard(data, np.arange(len(data)), 1).search(
        data.read(np.arange(len(data))), search
    )
    wanted = brute_force(data, search, np.ones_like(in_cells))
    np.testing.assert_array_equal(exact.ids, wanted)
    both = [
        set(a[a >= 0]) & set(b[b >= 0])
        for a, b in zip(neighbors.ids.reshape(-1, 5), wanted.reshape(-1, 5), strict=True)
    ]
    by_hand = sum(map(len, both)) / (wanted >= 0).sum()
    assert inverted_file.recall(neighbors, exact) == by_hand
    assert 0.2 < by_hand < 1


def test_result_does_not_depend_on_shards_and_all_cells_equal_exact_search():
    data, search = source(), NeighborSearch(5, "pooled", 0.2)
    centroids = inverted_file.train(data, seed=7, num_threads=1)
    quantizer = Quantizer(centroids, 1)
    one = find(data, quantizer, search, 1, 4)
    for num_shards in (2, 3, 7):
        other = find(data, quantizer, search, num_shards, 4)
        assert (
            one.ids.tobytes() == other.ids.tobytes()
            and one.cosines.tobytes() == other.cosines.tobytes()
        )
    everything = find(data, quantizer, search, 2, len(centroids))
    queries = data.read(np.arange(len(data)))
    exact = merge([NeighborShard(data, np.arange(len(data)), 1).search(queries, search)], search)
    assert everything.ids.tobytes() == exact.ids.tobytes()
    assert inverted_file.recall(everything, exact) == 1


def test_ties_between_cells_go_to_the_lower_number(monkeypatch):
    rng = np.random.default_rng(4)
    centroids = np.repeat(source().embeddings[:10], 4, axis=0)  # four copies of each
    vectors = source().embeddings[rng.integers(0, 600, 200)]
    cosines = vectors.astype(np.float64) @ centroids.T.astype(np.float64)
    order = np.argsort(-cosines.round(9), axis=1, kind="stable")
    quantizer = Quantizer(centroids, 1)
    for count in (1, 4, 6, 40, 50):
        np.testing.assert_array_equal(
            quantizer.nearest(vectors, count), np.sort(order[:, :count], axis=1)
        )


def test_numbers_of_cells_and_probes():
    counts = [1, 3, 100, 3_400, 1_000_000, 50_000_000]
    assert [inverted_file.num_cells(count) for count in counts] == [1, 1, 40, 233, 4000, 8192]
    assert [inverted_file.num_probes(count) for count in counts] == [1, 1, 40, 64, 125, 256]


def test_sample_is_seeded_and_limited_to_all_rows():
    assert inverted_file.sample_rows(5, 9, seed=1).tolist() == [0, 1, 2, 3, 4]
    one, two = (inverted_file.sample_rows(1000, 10, seed) for seed in (1, 2))
    assert one.tolist() == inverted_file.sample_rows(1000, 10, seed=1).tolist() != two.tolist()


def test_recall_without_neighbors_is_one():
    data, search = source(1), NeighborSearch(2)
    neighbors = NeighborShard(data, np.arange(1), 1).search(data.read(np.arange(1)), search)
    assert inverted_file.recall(neighbors, neighbors) == 1
