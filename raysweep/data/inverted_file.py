"""Approximate nearest-neighbor search with an inverted file (IVF).

Rows are grouped into cells, and each query is compared only with the rows in the nearest cells. The cells are trained
once on a seeded sample of all rows. The nearest cells of rows and queries are computed exactly, so results do not
depend on how rows are split into shards.
"""

import math

import numpy as np
from numpy.typing import NDArray

from raysweep.data.neighbor_shard import TOLERANCE, NeighborShard
from raysweep.data.neighbors import LabeledVectors, Neighbors, NeighborSearch, VectorFile

CELLS_PER_ROOT = 4  # cells per square root of the number of rows, as faiss recommends
MAX_CELLS = 8192  # training time grows with the square of the number of cells
ROWS_PER_CELL = 40  # training rows per cell; faiss recommends at least 39
MAX_TRAINING_ROWS = 65_536  # one process holds the training rows in memory
ITERATIONS = 8  # k-means iterations; more barely change the centroids
CELLS_PER_PROBE = 32
MIN_PROBES = 64  # minimum number of cells probed per query
RECALL_QUERIES = 1000  # rows used to measure recall


def num_cells(num_rows: int) -> int:
    """Return the number of cells: 4 * sqrt(num_rows), but at most 8192 and at most num_rows / 2."""
    by_root = int(CELLS_PER_ROOT * math.sqrt(num_rows))
    return max(1, min(by_root, MAX_CELLS, num_rows // 2))


def num_probes(num_rows: int) -> int:
    """Return the number of cells that a query probes: 1/32 of all cells, but at least 64 (or all if there are fewer)."""
    cells = num_cells(num_rows)
    return min(cells, max(MIN_PROBES, cells // CELLS_PER_PROBE))


def train(source: VectorFile, seed: int, num_threads: int | None = None) -> NDArray[np.float32]:
    """Run spherical k-means on a sample of the rows and return the unit-length centroids (cells, d)."""
    import faiss

    if num_threads is not None:
        faiss.omp_set_num_threads(num_threads)
    count = num_cells(len(source))
    num_rows = min(ROWS_PER_CELL * count, MAX_TRAINING_ROWS)
    sample = sample_rows(len(source), num_rows, seed)
    kmeans = faiss.Kmeans(
        source.width,
        count,
        niter=ITERATIONS,
        seed=seed % 2**31,
        spherical=True,
        min_points_per_centroid=1,
    )
    kmeans.train(source.vectors(sample))
    return np.asarray(kmeans.centroids)


def sample_rows(num_rows: int, count: int, seed: int) -> NDArray[np.int64]:
    """Return ``count`` random row numbers, or all if there are fewer, in ascending order."""
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(num_rows, min(count, num_rows), replace=False))


class Quantizer:
    """Exact search for the cells nearest to a vector. The ``centroids`` have unit length."""

    def __init__(self, centroids: NDArray[np.float32], num_threads: int | None = None) -> None:
        cells = np.arange(len(centroids))
        one_class = np.zeros(len(centroids), np.int64)
        self._centroids = centroids
        self._shard = NeighborShard(
            VectorFile(centroids, cells, one_class, cells), cells, num_threads
        )

    def nearest(self, vectors: NDArray[np.float32], count: int) -> NDArray[np.int32]:
        """Return the sorted numbers (m, count) of the cells nearest to each vector, or all cells if there are fewer."""
        import faiss

        num_cells = len(self._centroids)
        if count >= num_cells:
            all_cells = np.arange(num_cells, dtype=np.int32)
            return np.tile(all_cells, (len(vectors), 1))
        cosines, cells = faiss.knn(vectors, self._centroids, count + 1, faiss.METRIC_INNER_PRODUCT)
        nearest = cells[:, :count].astype(np.int32)
        # If float32 rounding errors could change which cells are nearest, search in double precision.
        last_two = cosines[:, count - 1 :]
        gaps = np.ptp(last_two, axis=1)
        uncertain = np.flatnonzero(gaps <= 2 * TOLERANCE)
        one_class = np.zeros(len(uncertain), np.int64)
        no_cell = one_class - 1
        queries = LabeledVectors(vectors[uncertain], one_class, no_cell)
        exact = self._shard.search(queries, NeighborSearch(count))
        nearest[uncertain] = exact.ids[:, 0]
        return np.sort(nearest, axis=1)

    def nearest_one(self, vectors: NDArray[np.float32]) -> NDArray[np.int32]:
        """Return the cell number of each vector, (m,)."""
        return self.nearest(vectors, 1)[:, 0]


def recall(neighbors: Neighbors, exact: Neighbors) -> float:
    """Return the fraction of the exact neighbors that are in ``neighbors``, or 1 if there are no exact neighbors."""
    width = neighbors.ids.shape[2]
    num_common = 0
    for ids, exact_ids in zip(
        neighbors.ids.reshape(-1, width), exact.ids.reshape(-1, width), strict=True
    ):
        num_common += int(np.isin(exact_ids[exact_ids >= 0], ids).sum())
    num_exact = int((exact.ids >= 0).sum())
    return num_common / num_exact if num_exact else 1.0
