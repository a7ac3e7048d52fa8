"""Closeness of embeddings."""

import numpy as np
import pytest
from scipy.spatial import distance

from raysweep.metrics import closeness as module
from raysweep.metrics.closeness import closeness


def random_pairs(num_pairs=200):
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(7, 5)).astype(np.float32) * 3
    documents = rng.normal(size=(11, 5)).astype(np.float32)
    return queries, documents, (rng.integers(0, 7, num_pairs), rng.integers(0, 11, num_pairs))


@pytest.mark.parametrize("block", [3, 2**13])
def test_closeness_equals_that_of_scipy(block, monkeypatch):
    monkeypatch.setattr(module, "PAIRS_PER_BLOCK", block)
    queries, documents, (rows, columns) = random_pairs()
    for geometry, metric, offset in (("cosine", "cosine", 1), ("distance", "euclidean", 0)):
        distances = distance.cdist(queries.astype(np.float64), documents.astype(np.float64), metric)
        values = closeness(geometry, queries, documents, (rows, columns))
        np.testing.assert_allclose(values, offset - distances[rows, columns], atol=1e-12)


def test_equal_pairs_tie_exactly():
    queries, documents, (rows, columns) = random_pairs(3)
    twice = np.tile(rows, 2), np.tile(columns, 2)
    for geometry in module.GEOMETRIES:
        values = closeness(geometry, queries, documents, twice)
        assert values[:3].tolist() == values[3:].tolist()


def test_the_cosine_with_a_zero_vector_is_zero():
    zeros = np.zeros((1, 4), np.float32)
    ones = np.ones((1, 4), np.float32)
    first = np.zeros(1, np.int64)
    assert closeness("cosine", zeros, ones, (first, first)) == 0
