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


TOLERANCE = 1e-5  # more than float32 inner products of unit vectors err


_BATCH = 4096  # queries that faiss multiplies at once


_ADD = 65536  # rows copied into an index at once, so that a memory-mapped array is never in memory twice


_EXHAUSTIVE_CELLS = 2**24  # float64 cosines held at once where faiss was not enough


@dataclass(frozen=True)
class Neighbours:
    """Neighbours of m rows: ids int32 and cosines float32, both (m, 2, k), padded at the end with -1 and NaN.

    Slot 0 holds rows with the query's own label, slot 1 rows with any other, each by falling cosine, then rising id.
    """

    ids: NDArray[np.int32]
    cosines: NDArray[np.float32]


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
        self._embeddings, self._labels, self._groups = embeddings, labels, duplicate_groups
        if num_threads is not None:
            faiss.omp_set_num_threads(num_threads)
        # One index for each class: every query is compared with every row once, whatever the number of classes.
        self._classes = {}
        # Shared by all of them: each such object sets GPU memory aside.
        resources = [faiss.StandardGpuResources() for _ in range(faiss.get_num_gpus())]
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            self._classes[int(label)] = (members, _index(embeddings, members, resources))

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
        ids = np.full((len(rows), 2, k), -1, dtype=np.int32)
        cosines = np.full((len(rows), 2, k), np.nan, dtype=np.float32)
        least = -np.inf if min_similarity is None else min_similarity
        for start in range(0, len(rows), _BATCH):
            batch = slice(start, start + _BATCH)
            for slot, (near, raw, num_all) in enumerate(self._fetch(rows[batch], k + SLACK)):
                short = self._rank(rows[batch], near, raw, num_all, least, ids[batch, slot], cosines[batch, slot])
                self._exhaust(rows, start + short, slot, least, ids, cosines)
        if mode == "pooled":
            beyond = ~_first(ids, cosines, k)
            ids[beyond], cosines[beyond] = -1, np.nan
        return Neighbours(ids, cosines)

    def _fetch(
        self, rows: NDArray[np.integer], fetch: int
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]]:
        """For each slot: ids and float32 cosines (m, fetch) of the nearest rows, and how many rows (m,) the slot has.

        Nothing is excluded yet. Padded with -1 and -inf.
        """
        queries = np.ascontiguousarray(self._embeddings[rows])
        slots = []
        for _ in range(2):
            empty = np.full((len(rows), fetch), -1, dtype=np.int64), np.full((len(rows), fetch), -np.inf, np.float32)
            slots.append((*empty, np.zeros(len(rows), dtype=np.int64)))
        for label, (members, index) in self._classes.items():
            cosines, local = index.search(queries, min(fetch, len(members)))
            own = self._labels[rows] == label
            for (near, raw, num_all), here in zip(slots, (own, ~own), strict=True):
                both = np.concatenate([raw[here], cosines[here]], axis=1)
                kept = np.argsort(-both, axis=1, kind="stable")[:, :fetch]
                raw[here] = np.take_along_axis(both, kept, axis=1)
                ids = np.concatenate([near[here], members[local[here]]], axis=1)
                near[here] = np.take_along_axis(ids, kept, axis=1)
                num_all[here] += len(members)
        return slots

    def _rank(
        self,
        rows: NDArray[np.integer],
        near: NDArray[np.int64],
        raw: NDArray[np.float32],
        num_all: NDArray[np.int64],
        least: float,
        ids: NDArray[np.int32],
        cosines: NDArray[np.float32],
    ) -> NDArray[np.int64]:
        """Fill in ``ids`` and ``cosines`` (m, k) from what was fetched; return the positions of rows that need more."""
        k = ids.shape[1]
        exact = np.empty(raw.shape, dtype=np.float32)
        for start in range(0, len(rows), 64):
            part = slice(start, start + 64)
            exact[part] = np.einsum(
                "md,mfd->mf", self._embeddings[rows[part]], self._embeddings[near[part]], dtype=np.float64
            )
        exact[(near < 0) | (self._groups[near] == self._groups[rows, None]) | (exact < least)] = -np.inf
        order = np.lexsort((near, -exact), axis=1)[:, :k]
        exact = np.take_along_axis(exact, order, axis=1)
        ids[:] = np.where(exact > -np.inf, np.take_along_axis(near, order, axis=1), -1)
        cosines[:] = np.where(exact > -np.inf, exact, np.nan)
        # A row that was not fetched is at most as near as the last that was, up to rounding.
        unseen = np.where(num_all > raw.shape[1], raw[:, -1] + TOLERANCE, -np.inf)
        return np.flatnonzero((unseen >= exact[:, -1]) & (unseen >= least) & np.isfinite(unseen))

    def _exhaust(
        self,
        rows: NDArray[np.integer],
        positions: NDArray[np.int64],
        slot: int,
        least: float,
        ids: NDArray[np.int32],
        cosines: NDArray[np.float32],
    ) -> None:
        """Compare these queries with every row: duplicates, or ties in their hundreds, took up all that was fetched."""
        k = ids.shape[2]
        for part, exact in self._all_cosines(rows, positions):
            same = self._labels[None, :] == self._labels[rows[part], None]
            wrong = (same == bool(slot)) | (self._groups[None, :] == self._groups[rows[part], None])
            exact[wrong | (exact < least)] = -np.inf
            for position, row in zip(part, exact, strict=True):
                found = np.flatnonzero(row > -np.inf)
                if len(found) > k:
                    found = found[row[found] >= -np.partition(-row[found], k - 1)[k - 1]]
                found = found[np.argsort(-row[found], kind="stable")][:k]
                ids[position, slot], cosines[position, slot] = -1, np.nan
                ids[position, slot, : len(found)], cosines[position, slot, : len(found)] = found, row[found]

    def _all_cosines(
        self, rows: NDArray[np.integer], positions: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        num_all = len(self._embeddings)
        size = max(1, _EXHAUSTIVE_CELLS // num_all)
        for start in range(0, len(positions), size):
            part = positions[start : start + size]
            queries = self._embeddings[rows[part]].astype(np.float64)
            exact = np.empty((len(part), num_all), dtype=np.float32)
            for first in range(0, num_all, _ADD):
                block = self._embeddings[first : first + _ADD].astype(np.float64)
                exact[:, first : first + _ADD] = queries @ block.T
            yield part, exact


def _index(
    embeddings: NDArray[np.float32], members: NDArray[np.int64], resources: list[faiss.StandardGpuResources]
) -> faiss.Index:
    import faiss

    index: faiss.Index = faiss.IndexFlatIP(embeddings.shape[1])
    if resources:
        index = faiss.index_cpu_to_gpu_multiple_py(resources, index)
    for start in range(0, len(members), _ADD):
        index.add(np.ascontiguousarray(embeddings[members[start : start + _ADD]]))
    return index


def _first(ids: NDArray[np.int32], cosines: NDArray[np.float32], k: int) -> NDArray[np.bool_]:
    """Which of both slots' neighbours (m, 2, k) are among the k nearest of all."""
    flat_ids, flat_cosines = ids.reshape(len(ids), 2 * k), cosines.reshape(len(ids), 2 * k)
    order = np.lexsort((flat_ids, -flat_cosines), axis=1)  # NaN comes last
    rank = np.argsort(order, axis=1)
    return (rank < k).reshape(ids.shape)
