"""Exact nearest neighbours by cosine, of the query's own class and of the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import faiss


SLACK = 8  # fetched beyond k: room for the row itself, its duplicates and near-ties


TOLERANCE = 1e-5  # more than the error of float32 inner products of unit vectors


QUERIES_AT_ONCE = 4096  # queries that faiss multiplies at once


ROWS_AT_ONCE = 65536  # rows copied into an index at once, so that a memory-mapped array is never in memory twice


COSINES_AT_ONCE = 2**24  # float64 cosines held at once where faiss was not enough


@dataclass(frozen=True)
class Neighbours:
    """Neighbours of m rows: ids int32 and cosines float32, both (m, 2, k), padded at the end with -1 and NaN.

    Slot 0 holds rows with the query's own label, slot 1 rows with any other, each by falling cosine, then rising id.
    """

    ids: NDArray[np.int32]
    cosines: NDArray[np.float32]

    @classmethod
    def empty(cls, num_rows: int, k: int) -> Neighbours:
        shape = (num_rows, 2, k)
        return cls(np.full(shape, -1, np.int32), np.full(shape, np.nan, np.float32))

    def put(self, row: int, slot: int, ids: NDArray[np.int64], cosines: NDArray[np.float32]) -> None:
        """Put up to k neighbours of one row in place of those that are there."""
        padding = (0, self.ids.shape[2] - len(ids))
        self.ids[row, slot] = np.pad(ids, padding, constant_values=-1)
        self.cosines[row, slot] = np.pad(cosines, padding, constant_values=np.nan)


@dataclass(frozen=True)
class _Fetched:
    """What faiss found for m queries in one slot, by falling cosine; nothing is excluded yet.

    ``ids`` and float32 ``cosines``, which err in the last digits, are (m, fetched), padded with -1 and -inf;
    ``num_rows`` (m,) counts all rows of the slot.
    """

    ids: NDArray[np.int64]
    cosines: NDArray[np.float32]
    num_rows: NDArray[np.int64]

    @classmethod
    def empty(cls, num_queries: int, num_fetched: int) -> _Fetched:
        shape = (num_queries, num_fetched)
        return cls(np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32), np.zeros(num_queries, np.int64))

    def merge(
        self, queries: NDArray[np.bool_], ids: NDArray[np.int64], cosines: NDArray[np.float32], num_rows: int
    ) -> None:
        """Keep the nearest of what is here and what one class of ``num_rows`` rows has for some of the queries."""
        num_fetched = self.ids.shape[1]
        all_cosines = np.concatenate([self.cosines[queries], cosines[queries]], axis=1)
        all_ids = np.concatenate([self.ids[queries], ids[queries]], axis=1)
        nearest = np.argsort(-all_cosines, axis=1, kind="stable")[:, :num_fetched]
        self.cosines[queries] = np.take_along_axis(all_cosines, nearest, axis=1)
        self.ids[queries] = np.take_along_axis(all_ids, nearest, axis=1)
        self.num_rows[queries] += num_rows

    def unsettled(self, kth_cosines: NDArray[np.float32], least: float) -> NDArray[np.int64]:
        """Positions of the queries whose k nearest, down to ``kth_cosines`` (m,), may lack a row that was not fetched."""
        all_fetched = self.num_rows <= self.ids.shape[1]
        # A row that was not fetched is at most as near as the last that was, up to rounding.
        unseen = self.cosines[:, -1] + TOLERANCE
        unseen[all_fetched] = -np.inf
        may_be_nearer = (unseen >= kth_cosines) & (unseen >= least)
        return np.flatnonzero(may_be_nearer & np.isfinite(unseen))


class NeighbourIndex:
    """Searches ``embeddings`` (n, d), float32 rows of unit length (may be memory-mapped), on all GPUs that faiss sees.

    ``labels`` (n,) are any integers; rows of one number in ``duplicate_groups`` (n,) hold the same text and are never
    each other's neighbours. ``num_threads`` is how many CPU threads faiss may use, all by default; faiss keeps this
    number for the whole process.
    """

    def __init__(
        self,
        embeddings: NDArray[np.float32],
        labels: NDArray[np.integer],
        duplicate_groups: NDArray[np.integer],
        num_threads: int | None = None,
    ) -> None:
        import faiss

        assert len(embeddings) == len(labels) == len(duplicate_groups)
        self._embeddings = embeddings
        self._labels = labels
        self._groups = duplicate_groups
        if num_threads is not None:
            faiss.omp_set_num_threads(num_threads)
        # Shared by all indexes: each such object sets GPU memory aside.
        num_gpus = faiss.get_num_gpus()
        resources = [faiss.StandardGpuResources() for _ in range(num_gpus)]
        # One index for each class: every query is compared with every row once, whatever the number of classes.
        self._classes = {}
        for label in np.unique(labels):
            is_member = labels == label
            members = np.flatnonzero(is_member)
            index = _index(embeddings, members, resources)
            self._classes[int(label)] = (members, index)

    def search(
        self,
        rows: NDArray[np.integer],
        k: int,
        mode: Literal["per_class", "pooled"] = "per_class",
        min_similarity: float | None = None,
    ) -> Neighbours:
        """The neighbours of ``rows`` (m,), ids below n, at a cosine of ``min_similarity`` or more.

        ``per_class``: the k nearest of the own class and the k nearest of the others. ``pooled``: the k nearest of all,
        split by class. Neither depends on how rows are spread over calls: cosines are computed in double precision and
        rounded to float32, and ties go to the lower id.
        """
        least = -np.inf if min_similarity is None else min_similarity
        found = Neighbours.empty(len(rows), k)
        for start in range(0, len(rows), QUERIES_AT_ONCE):
            batch = slice(start, start + QUERIES_AT_ONCE)
            queries = rows[batch]
            fetched_by_slot = self._fetch(queries, k + SLACK)
            for slot, fetched in enumerate(fetched_by_slot):
                ids = found.ids[batch, slot]
                cosines = found.cosines[batch, slot]
                unsettled = self._rank(queries, fetched, least, Neighbours(ids, cosines))
                self._search_all(rows, start + unsettled, slot, least, found)
        if mode == "pooled":
            beyond = ~_among_k_nearest(found)
            found.ids[beyond] = -1
            found.cosines[beyond] = np.nan
        return found

    def _fetch(self, rows: NDArray[np.integer], num_fetched: int) -> tuple[_Fetched, _Fetched]:
        """The nearest rows of either slot by faiss."""
        queries = np.ascontiguousarray(self._embeddings[rows])
        labels = self._labels[rows]
        own = _Fetched.empty(len(rows), num_fetched)
        others = _Fetched.empty(len(rows), num_fetched)
        for label, (members, index) in self._classes.items():
            num_members = len(members)
            cosines, positions = index.search(queries, min(num_fetched, num_members))
            ids = members[positions]
            has_label = labels == label
            own.merge(has_label, ids, cosines, num_members)
            others.merge(~has_label, ids, cosines, num_members)
        return own, others

    def _rank(self, rows: NDArray[np.integer], fetched: _Fetched, least: float, found: Neighbours) -> NDArray[np.int64]:
        """Write the k nearest of what was fetched into ``found``, one slot's arrays (m, k).

        Returns the positions of the queries that may have nearer neighbours among the rows that were not fetched.
        """
        k = found.ids.shape[1]
        cosines = self._cosines(rows, fetched.ids)
        padding = fetched.ids < 0
        groups = self._groups[fetched.ids]
        query_groups = self._groups[rows, None]
        same_text = groups == query_groups
        too_far = cosines < least
        excluded = padding | same_text | too_far
        cosines[excluded] = -np.inf
        ids, cosines = _k_nearest_of_each(fetched.ids, cosines, k)
        exists = cosines > -np.inf
        found.ids[:] = np.where(exists, ids, -1)
        found.cosines[:] = np.where(exists, cosines, np.nan)
        kth_cosines = cosines[:, -1]
        return fetched.unsettled(kth_cosines, least)

    def _cosines(self, rows: NDArray[np.integer], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Cosines (m, f) of ``rows`` (m,) with each of their ``ids`` (m, f), computed in double precision."""
        cosines = np.empty(ids.shape, dtype=np.float32)
        for start in range(0, len(rows), 64):  # the rows that are compared, (64, f, d), are in memory
            part = slice(start, start + 64)
            queries = self._embeddings[rows[part]]
            near = self._embeddings[ids[part]]
            cosines[part] = np.einsum("md,mfd->mf", queries, near, dtype=np.float64)
        return cosines

    def _search_all(
        self, rows: NDArray[np.integer], positions: NDArray[np.int64], slot: int, least: float, found: Neighbours
    ) -> None:
        """Compare the queries at ``positions`` with every row: duplicates, or ties in their hundreds, took up all that
        was fetched.
        """
        k = found.ids.shape[2]
        own_class = slot == 0
        for part, cosines in self._all_cosines(rows, positions):
            queries = rows[part, None]
            same_class = self._labels == self._labels[queries]
            same_text = self._groups == self._groups[queries]
            wrong_class = same_class != own_class
            too_far = cosines < least
            excluded = wrong_class | same_text | too_far
            cosines[excluded] = -np.inf
            for position, of_query in zip(part, cosines, strict=True):
                ids = _k_nearest(of_query, k)
                found.put(position, slot, ids, of_query[ids])

    def _all_cosines(
        self, rows: NDArray[np.integer], positions: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Some of the positions at a time, and the cosines (positions, n) of their queries with every row."""
        num_queries = max(1, COSINES_AT_ONCE // len(self._embeddings))
        for start in range(0, len(positions), num_queries):
            part = positions[start : start + num_queries]
            yield part, self._cosines_with_all(rows[part])

    def _cosines_with_all(self, rows: NDArray[np.integer]) -> NDArray[np.float32]:
        """Cosines (m, n) of ``rows`` (m,) with every row, computed in double precision."""
        num_rows = len(self._embeddings)
        queries = self._embeddings[rows]
        exact_queries = queries.astype(np.float64)
        cosines = np.empty((len(rows), num_rows), dtype=np.float32)
        for start in range(0, num_rows, ROWS_AT_ONCE):
            block = slice(start, start + ROWS_AT_ONCE)
            exact_block = self._embeddings[block].astype(np.float64)
            cosines[:, block] = exact_queries @ exact_block.T
        return cosines


def _index(
    embeddings: NDArray[np.float32], members: NDArray[np.int64], resources: list[faiss.StandardGpuResources]
) -> faiss.Index:
    import faiss

    width = embeddings.shape[1]
    index: faiss.Index = faiss.IndexFlatIP(width)
    if resources:
        index = faiss.index_cpu_to_gpu_multiple_py(resources, index)
    for start in range(0, len(members), ROWS_AT_ONCE):
        part = members[start : start + ROWS_AT_ONCE]
        index.add(np.ascontiguousarray(embeddings[part]))
    return index


def _k_nearest_of_each(
    ids: NDArray[np.int64], cosines: NDArray[np.float32], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The k highest of each row of cosines (m, f) and their ids, both (m, k), by falling cosine, then rising id."""
    order = np.lexsort((ids, -cosines), axis=1)
    nearest = order[:, :k]
    return np.take_along_axis(ids, nearest, axis=1), np.take_along_axis(cosines, nearest, axis=1)


def _k_nearest(cosines: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Ids of the k highest of the cosines (n,), by falling cosine, then rising id; -inf stands for what is excluded."""
    ids = np.flatnonzero(cosines > -np.inf)
    if len(ids) > k:
        kth_highest = -np.partition(-cosines[ids], k - 1)[k - 1]
        ids = ids[cosines[ids] >= kth_highest]
    by_cosine = np.argsort(-cosines[ids], kind="stable")
    return ids[by_cosine][:k]


def _among_k_nearest(found: Neighbours) -> NDArray[np.bool_]:
    """Which of the neighbours (m, 2, k) of both slots are among the k nearest of all."""
    num_rows, num_slots, k = found.ids.shape
    ids = found.ids.reshape(num_rows, num_slots * k)
    cosines = found.cosines.reshape(num_rows, num_slots * k)
    order = np.lexsort((ids, -cosines), axis=1)  # NaN comes last
    rank = np.argsort(order, axis=1)
    among: NDArray[np.bool_] = rank < k
    return among.reshape(found.ids.shape)
