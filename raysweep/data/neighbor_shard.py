"""Exact nearest-neighbor search in one shard of the rows."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from raysweep.data.neighbors import (
    LabeledVectors,
    Neighbors,
    NeighborSearch,
    VectorFile,
    exact_cosines,
    k_nearest,
)

SLACK = 8  # rows fetched in addition to k, for the query itself, its duplicates and near-ties
TOLERANCE = 1e-5  # exceeds the error of float32 inner products of unit vectors
ROWS_AT_ONCE = 8192  # rows read at once; reading all of them would hold the vectors in memory twice
COSINES_AT_ONCE = 2**22  # cosines in memory at once when queries are compared with all rows
# maximum number of rows, and of queries, per matrix product
PART_OF_CELL = 1024
MAX_FLOAT = float(np.finfo(np.float32).max)


class Nearest(NamedTuple):
    """The rows nearest to each query: cosines in descending order and positions, (m, f) each; -1 is padding."""

    cosines: NDArray[np.float32]
    positions: NDArray[np.int64]


Slots = tuple[Nearest, Nearest]
"""The nearest rows of the query's class, and of the other classes."""


class NeighborShard:
    """A searchable shard of ``source``. Its ``rows`` must be in ascending order.

    Searches use all GPUs visible to faiss, or the CPU if there are none. The vectors are in memory once, sorted by class.
    With GPUs, a second copy is in GPU memory. ``num_threads`` is the number of CPU threads per search (default: all);
    faiss keeps this setting for the thread that creates the shard.
    """

    def __init__(
        self, source: VectorFile, rows: NDArray[np.integer], num_threads: int | None = None
    ) -> None:
        import faiss

        if num_threads is not None:
            faiss.omp_set_num_threads(num_threads)
        self._num_threads: int = faiss.omp_get_max_threads()
        labels = source.labels[rows]
        by_class = np.argsort(labels, kind="stable")
        ids = rows[by_class].astype(np.int32)
        vectors = np.empty((len(rows), source.width), np.float32)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            vectors[part] = source.vectors(ids[part])
        self._ids = ids
        self._rows = LabeledVectors(vectors, source.labels[ids], source.duplicate_groups[ids])
        # All classes share these objects, because each one reserves GPU memory.
        resources = [faiss.StandardGpuResources() for _ in range(faiss.get_num_gpus())]
        distinct_labels, starts = np.unique(self._rows.labels, return_index=True)
        bounds = [*starts.tolist(), len(rows)]
        ranges = itertools.pairwise(bounds)
        self._classes = {}
        for label, (start, stop) in zip(distinct_labels.tolist(), ranges, strict=True):
            self._classes[label] = _Class(vectors, start, stop, resources)
        self._cells = _Cells(np.zeros(0, np.int64))

    def put_into_cells(
        self, nearest_cell: Callable[[NDArray[np.float32]], NDArray[np.integer]]
    ) -> None:
        """Assign each row to a cell, so that a search can be limited to some cells.

        ``nearest_cell`` takes vectors (m, d) and returns their cell numbers (m,).
        """
        # Fill one preallocated array, because many small arrays would fragment memory.
        cells = np.empty(len(self._ids), np.int32)
        for start in range(0, len(cells), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            cells[part] = nearest_cell(self._rows.vectors[part])
        self._cells = _Cells(cells)

    def search(
        self,
        queries: LabeledVectors,
        search: NeighborSearch,
        probes: NDArray[np.integer] | None = None,
    ) -> Neighbors:
        """Return the k nearest rows in each slot for each of the m queries, ignoring ``search.mode``.

        Ids are row numbers in the source. Cosines are computed in double precision and rounded to float32, and ties go
        to the lower id, so the results do not depend on batches or, after merging, on shards. If ``probes`` (m, p) is
        passed, each query is compared only with the rows in the cells with these numbers.
        """
        question = _Question(queries, search, probes)
        neighbors = Neighbors.empty(len(queries), search.k)
        num_fetched = search.k + SLACK
        if probes is None:
            own, others = _heaps(len(queries), num_fetched)
            for label, members in self._classes.items():
                class_cosines, positions = members.nearest(queries.vectors, num_fetched)
                has_label = queries.labels == label
                _add(own, has_label, class_cosines, positions)
                _add(others, ~has_label, class_cosines, positions)
            slots = _finished(own, others)
        else:
            slots = self._search_cells(queries, num_fetched, probes)
        for slot, nearest in enumerate(slots):
            fetched_ids = self._ids[nearest.positions]
            fetched_cosines = self._cosines(question, nearest.positions)
            ids, cosines = k_nearest(fetched_ids, fetched_cosines, search.k)
            neighbors.put(slice(None), slot, ids, cosines)
            # Up to rounding errors, rows that were not fetched are no nearer than the last fetched row.
            max_unfetched = nearest.cosines[:, -1] + TOLERANCE
            may_be_nearer = max_unfetched >= cosines[:, -1]
            may_be_neighbor = max_unfetched >= search.min_cosine
            all_fetched = nearest.positions[:, -1] < 0
            unsettled = np.flatnonzero(may_be_nearer & may_be_neighbor & ~all_fetched)
            self._compare_with_all(question, unsettled, slot, neighbors)
        return neighbors

    def _search_cells(
        self, queries: LabeledVectors, count: int, probes: NDArray[np.integer]
    ) -> Slots:
        """Return the nearest rows in the probed cells for both slots, splitting the queries among threads.

        BLAS is limited to one thread, because the matrix products are small. With several BLAS threads, the search takes
        up to ten times as long when other processes are running.
        """

        def search_share(numbers: NDArray[np.int64]) -> Slots:
            return self._search_cells_once(queries[numbers], count, probes[numbers])

        num_shares = min(self._num_threads, len(queries))
        shares = np.array_split(np.arange(len(queries)), num_shares)
        with threadpool_limits(1, "blas"):
            slots_of_shares = list(self._threads.map(search_share, shares))
        own, others = zip(*slots_of_shares, strict=True)
        return _concatenate(own), _concatenate(others)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        import faiss

        return ThreadPoolExecutor(
            self._num_threads, initializer=faiss.omp_set_num_threads, initargs=(1,)
        )

    def _search_cells_once(
        self, queries: LabeledVectors, count: int, probes: NDArray[np.integer]
    ) -> Slots:
        """Search the probed cells in one thread, comparing each cell with all queries that probe it."""
        own, others = _heaps(len(queries), count)
        num_probes = probes.shape[1]
        probed_cells = probes.ravel()
        by_cell = np.argsort(probed_cells, kind="stable")
        query_numbers = by_cell // num_probes
        cells, starts = np.unique(probed_cells[by_cell], return_index=True)
        queries_of_cells = np.split(query_numbers, starts[1:])
        for cell, queries_of_cell in zip(cells.tolist(), queries_of_cells, strict=True):
            row_parts = _split(self._cells.members(cell))
            query_parts = _split(queries_of_cell)
            for positions, numbers in itertools.product(row_parts, query_parts):
                rows = self._rows[positions]
                part = queries[numbers]
                cosines = part.vectors @ rows.vectors.T
                same_class = part.labels[:, None] == rows.labels
                own_cosines = np.where(same_class, cosines, -np.inf)
                own.add_result_subset(numbers, own_cosines, positions)
                np.putmask(cosines, same_class, -np.inf)
                others.add_result_subset(numbers, cosines, positions)
        return _finished(own, others)

    def _cosines(self, question: "_Question", positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the exact cosines (m, f) of the queries and the rows at ``positions`` (m, f).

        The cosine is -inf for rows with the query's text, rows below the minimum similarity and padding (-1).
        """
        queries = question.queries
        exists = positions >= 0
        numbers, _ = np.nonzero(exists)
        rows = positions[exists]
        exact = exact_cosines(queries.vectors, numbers, self._rows.vectors, rows)
        query_groups = queries.duplicate_groups[numbers]
        row_groups = self._rows.duplicate_groups[rows]
        same_text = query_groups == row_groups
        too_far = exact < question.search.min_cosine
        exact[same_text | too_far] = -np.inf
        cosines = np.full(positions.shape, -np.inf, np.float32)
        cosines[exists] = exact
        return cosines

    def _compare_with_all(
        self, question: "_Question", unsettled: NDArray[np.int64], slot: int, neighbors: Neighbors
    ) -> None:
        """Compare the ``unsettled`` queries, for which too few rows were fetched, with all rows."""
        rows = self._rows
        queries_at_once = max(1, COSINES_AT_ONCE // len(rows))
        for start in range(0, len(unsettled), queries_at_once):
            numbers = unsettled[start : start + queries_at_once]
            part = question[numbers]
            queries = part.queries
            cosines = queries.vectors @ rows.vectors.T
            same_text = queries.duplicate_groups[:, None] == rows.duplicate_groups
            cosines[same_text] = -np.inf
            same_class = queries.labels[:, None] == rows.labels
            is_other_slot = same_class if slot else ~same_class
            cosines[is_other_slot] = -np.inf
            if part.probes is not None:
                is_probed = self._cells.probed(part.probes)
                cosines[~is_probed] = -np.inf
            for number, query_cosines in zip(numbers.tolist(), cosines, strict=True):
                query = question[number : number + 1]
                positions = _may_be_nearest(query_cosines, question.search)
                (exact,) = self._cosines(query, positions[None])
                ids, nearest_cosines = k_nearest(self._ids[positions], exact, question.search.k)
                neighbors.put(number, slot, ids, nearest_cosines)


@dataclass(frozen=True)
class _Question:
    """Queries (m,), search parameters, and the cells (m, p) to search for each query (None: all cells)."""

    queries: LabeledVectors
    search: NeighborSearch
    probes: NDArray[np.integer] | None

    def __getitem__(self, numbers: NDArray[np.int64] | slice) -> "_Question":
        probes = None if self.probes is None else self.probes[numbers]
        return _Question(self.queries[numbers], self.search, probes)


class _Class:
    """The rows [start, stop) of a block, all of the same class."""

    def __init__(
        self, block: NDArray[np.float32], start: int, stop: int, resources: list[Any]
    ) -> None:
        import faiss

        self._start = start
        self._vectors = block[start:stop]  # a view
        self._index: Any = None
        if resources:
            flat = faiss.IndexFlatIP(block.shape[1])
            self._index = faiss.index_cpu_to_gpu_multiple_py(resources, flat)
            self._index.add(self._vectors)

    def nearest(
        self, queries: NDArray[np.float32], count: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the cosines (descending) and block positions of up to ``count`` nearest rows per query."""
        import faiss

        count = min(count, len(self._vectors))
        if self._index is None:
            # This is equivalent to IndexFlatIP, but does not copy the vectors.
            cosines, rows = faiss.knn(queries, self._vectors, count, faiss.METRIC_INNER_PRODUCT)
        else:
            cosines, rows = self._index.search(queries, count)
        return cosines, rows + self._start


class _Cells:
    """The cell number of each position in a block, (n,)."""

    def __init__(self, cells: NDArray[np.integer]) -> None:
        self._cells = cells
        self._order = np.argsort(cells, kind="stable")
        self._sorted = cells[self._order]

    def members(self, cell: int) -> NDArray[np.int64]:
        """Return the positions in one cell."""
        start, stop = np.searchsorted(self._sorted, [cell, cell + 1])
        return self._order[start:stop]

    def probed(self, probes: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return a mask (m, n) of the positions in each query's cells, ``probes`` (m, p)."""
        num_cells = max(int(probes.max()), int(self._sorted[-1])) + 1
        is_probed = np.zeros((len(probes), num_cells), bool)
        np.put_along_axis(is_probed, probes.astype(np.int64), True, axis=1)
        return is_probed[:, self._cells]


def _heaps(num_queries: int, count: int) -> tuple[Any, Any]:
    """Return two empty faiss heaps: one for the query's class and one for the other classes."""
    from faiss import ResultHeap

    return ResultHeap(num_queries, count, keep_max=True), ResultHeap(
        num_queries, count, keep_max=True
    )


def _add(
    slot: Any,
    is_added: NDArray[np.bool_],
    cosines: NDArray[np.float32],
    positions: NDArray[np.int64],
) -> None:
    """Add the results of the queries selected by ``is_added`` to a slot."""
    numbers = np.flatnonzero(is_added)
    slot.add_result_subset(numbers, cosines[numbers], positions[numbers])


def _finished(own: Any, others: Any) -> Slots:
    for slot in (own, others):
        slot.finalize()  # by descending cosine; padded with -1
    return Nearest(own.D, own.I), Nearest(others.D, others.I)


def _concatenate(shares: Sequence[Nearest]) -> Nearest:
    cosines = np.concatenate([share.cosines for share in shares])
    positions = np.concatenate([share.positions for share in shares])
    return Nearest(cosines, positions)


def _split(numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return [numbers[start : start + PART_OF_CELL] for start in range(0, len(numbers), PART_OF_CELL)]


def _may_be_nearest(cosines: NDArray[np.float32], search: NeighborSearch) -> NDArray[np.int64]:
    """Return the positions in ``cosines`` (n,) that may be among the k nearest; -inf marks excluded rows."""
    min_cosine = max(search.min_cosine - TOLERANCE, -MAX_FLOAT)
    positions = np.flatnonzero(cosines >= min_cosine)
    if len(positions) > search.k:
        candidates = cosines[positions]
        kth_index = len(candidates) - search.k
        kth_highest = np.partition(candidates, kth_index)[kth_index]
        positions = positions[candidates >= kth_highest - 2 * TOLERANCE]
    return positions
