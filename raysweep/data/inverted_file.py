"""Searching in part of the rows: they lie in cells, and a query is compared with the rows of the nearest cells only.

The cells are trained once, on a seeded sample of all rows. In which cell a row lies, and which cells a query probes, is
computed exactly, so that given the cells the answer does not depend on how rows are spread over shards.
"""

import math

import numpy as np
from numpy.typing import NDArray

from raysweep.data.neighbour_shard import TOLERANCE, NeighbourShard
from raysweep.data.neighbours import LabelledVectors, Neighbours, Search, VectorFile

CELLS_PER_ROOT = 4  # cells for each square root of the number of rows, as faiss recommends
MOST_CELLS = 8192  # training takes a time that grows with the square of their number
ROWS_PER_CELL = 40  # in the sample that cells are trained on, of which faiss wants 39 at least,
MOST_ROWS_OF_SAMPLE = 65_536  # but no more rows in all: they are in the memory of one process
ITERATIONS = 8  # of k-means; more hardly move the cells
CELLS_PER_PROBE = 32  # one in so many cells is probed,
LEAST_PROBES = 64  # but no fewer than these
RECALL_QUERIES = 1000  # rows that recall is measured on


def num_cells(num_rows: int) -> int:
    """How many cells so many rows have: four for each square root, and no fewer than two rows for each on average."""
    by_root = int(CELLS_PER_ROOT * math.sqrt(num_rows))
    return max(1, min(by_root, MOST_CELLS, num_rows // 2))


def num_probes(num_rows: int) -> int:
    """How many cells a query probes: one in 32, and no fewer than 64 where there are so many."""
    cells = num_cells(num_rows)
    return min(cells, max(LEAST_PROBES, cells // CELLS_PER_PROBE))


def train(source: VectorFile, seed: int, num_threads: int | None = None) -> NDArray[np.float32]:
    """The centroids (cells, d) of all rows, of unit length: spherical k-means on a seeded sample."""
    import faiss

    if num_threads is not None:
        faiss.omp_set_num_threads(num_threads)
    count = num_cells(len(source))
    sample = sample_rows(len(source), min(ROWS_PER_CELL * count, MOST_ROWS_OF_SAMPLE), seed)
    kmeans = faiss.Kmeans(
        source.width, count, niter=ITERATIONS, seed=seed % 2**31, spherical=True, min_points_per_centroid=1
    )
    kmeans.train(source.vectors(sample))
    return np.asarray(kmeans.centroids)


def sample_rows(num_rows: int, count: int, seed: int) -> NDArray[np.int64]:
    """So many of the rows, or all, ascending."""
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(num_rows, min(count, num_rows), replace=False))


class Quantizer:
    """Finds the nearest cells of vectors, exactly; ``centroids`` are of unit length."""

    def __init__(self, centroids: NDArray[np.float32], num_threads: int | None = None) -> None:
        cells = np.arange(len(centroids))
        one_class = np.zeros(len(centroids), np.int64)
        self._centroids = centroids
        self._shard = NeighbourShard(VectorFile(centroids, cells, one_class, cells), cells, num_threads)

    def nearest(self, vectors: NDArray[np.float32], count: int) -> NDArray[np.int32]:
        """The numbers (m, count) of the nearest cells of ``vectors`` (m, d), rising; all cells where there are no more."""
        import faiss

        num_cells = len(self._centroids)
        if count >= num_cells:
            every = np.arange(num_cells, dtype=np.int32)
            return np.tile(every, (len(vectors), 1))
        metric = faiss.METRIC_INNER_PRODUCT
        cosines, cells = faiss.knn(vectors, self._centroids, count + 1, metric)
        nearest = cells[:, :count].astype(np.int32)
        # Which cells come first is certain where the next is farther by more than what float32 errs.
        last_two = cosines[:, count - 1 :]
        gaps = np.ptp(last_two, axis=1)
        close = np.flatnonzero(gaps <= 2 * TOLERANCE)
        nearest[close] = self._exactly(vectors[close], count)
        return np.sort(nearest, axis=1)

    def nearest_one(self, vectors: NDArray[np.float32]) -> NDArray[np.int32]:
        """The number (m,) of the cell in which each vector lies."""
        return self.nearest(vectors, 1)[:, 0]

    def _exactly(self, vectors: NDArray[np.float32], count: int) -> NDArray[np.int32]:
        one_class = np.zeros(len(vectors), np.int64)
        no_cell = one_class - 1
        found = self._shard.search(LabelledVectors(vectors, one_class, no_cell), Search(count))
        return found.ids[:, 0]


def recall(found: Neighbours, exact: Neighbours) -> float:
    """The share of the exact neighbours that were found; 1 where there are none."""
    pairs = zip(found.ids.reshape(-1, found.ids.shape[2]), exact.ids.reshape(-1, exact.ids.shape[2]), strict=True)
    num_found = sum(int(np.isin(wanted[wanted >= 0], ids).sum()) for ids, wanted in pairs)
    num_exact = int((exact.ids >= 0).sum())
    return num_found / num_exact if num_exact else 1.0
