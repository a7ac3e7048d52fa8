"""Inputs, parameters and results of nearest-neighbor searches by cosine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysweep.data.shards import Rows

PRODUCTS_AT_ONCE = 2**18  # float64 products in memory at once in exact_cosines


@dataclass(frozen=True)
class LabeledVectors:
    """Unit vectors (n, d), float32, with the labels (n,) and duplicate groups (n,) of their sentences.

    Rows in the same duplicate group have the same text and are never neighbors of each other.
    """

    vectors: NDArray[np.float32]
    labels: NDArray[np.integer]
    duplicate_groups: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: NDArray[np.integer] | slice) -> LabeledVectors:
        return LabeledVectors(self.vectors[rows], self.labels[rows], self.duplicate_groups[rows])


@dataclass(frozen=True)
class VectorFile:
    """The n rows to search in a larger, possibly memory-mapped array.

    ``places`` (n,) contains the positions of these rows in ``embeddings``, float32 unit vectors (N, d). ``labels`` and
    ``duplicate_groups`` (n,) are as in :class:`LabeledVectors`.
    """

    embeddings: Rows
    places: NDArray[np.integer]
    labels: NDArray[np.integer]
    duplicate_groups: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.places)

    @property
    def width(self) -> int:
        width: int = self.embeddings.shape[1]
        return width

    def vectors(self, rows: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the vectors of ``rows`` (m,), which are indices below n."""
        return np.ascontiguousarray(self.embeddings[self.places[rows]])

    def read(self, rows: NDArray[np.integer]) -> LabeledVectors:
        return LabeledVectors(self.vectors(rows), self.labels[rows], self.duplicate_groups[rows])


@dataclass(frozen=True)
class NeighborSearch:
    """Search parameters. Neighbors have a cosine of at least ``min_similarity``.

    Mode ``per_class`` finds the k nearest rows of the query's class and the k nearest of the other classes. Mode
    ``pooled`` finds the k nearest of all rows and splits them by class.
    """

    k: int
    mode: Literal["per_class", "pooled"] = "per_class"
    min_similarity: float | None = None

    @property
    def min_cosine(self) -> float:
        return -np.inf if self.min_similarity is None else self.min_similarity


@dataclass(frozen=True)
class Neighbors:
    """Neighbors of m rows: ``ids`` (int32) and ``cosines`` (float32), both (m, 2, k), padded with -1 and NaN.

    Slot 0 contains rows with the query's label, and slot 1 rows with other labels. Both are sorted by descending
    cosine, then by ascending id.
    """

    ids: NDArray[np.int32]
    cosines: NDArray[np.float32]

    @classmethod
    def empty(cls, num_rows: int, k: int) -> Neighbors:
        shape = (num_rows, 2, k)
        return cls(np.full(shape, -1, np.int32), np.full(shape, np.nan, np.float32))

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by column name."""
        return {"ids": self.ids, "cosines": self.cosines}

    def put(
        self,
        rows: slice | int | np.integer,
        slot: int,
        ids: NDArray[np.integer],
        cosines: NDArray[np.float32],
    ) -> None:
        """Replace the neighbors of one or more rows in a slot. A cosine of -inf marks padding."""
        exists = cosines > -np.inf
        count = cosines.shape[-1]
        self.ids[rows, slot] = -1
        self.cosines[rows, slot] = np.nan
        self.ids[rows, slot, ..., :count] = np.where(exists, ids, -1)
        self.cosines[rows, slot, ..., :count] = np.where(exists, cosines, np.nan)


def merge(shards: Sequence[Neighbors], search: NeighborSearch) -> Neighbors:
    """Merge the results of several shards for the same queries."""
    all_ids = np.concatenate([neighbors.ids for neighbors in shards], axis=2)
    all_cosines = np.concatenate([neighbors.cosines for neighbors in shards], axis=2)
    nearest_ids, cosines = k_nearest(all_ids, all_cosines, search.k)
    ids = nearest_ids.astype(np.int32, copy=False)
    if search.mode == "pooled":
        num_rows, num_slots, k = ids.shape
        flat_shape = (num_rows, num_slots * k)
        flat_ids = ids.reshape(flat_shape)
        flat_cosines = cosines.reshape(flat_shape)
        order = _by_cosine(flat_ids, flat_cosines)
        ranks = np.argsort(order, axis=1).reshape(ids.shape)
        is_beyond_k = ranks >= k
        ids[is_beyond_k] = -1
        cosines[is_beyond_k] = np.nan
    return Neighbors(ids, cosines)


def k_nearest(
    ids: NDArray[np.integer], cosines: NDArray[np.float32], k: int
) -> tuple[NDArray[np.integer], NDArray[np.float32]]:
    """Return the ids and values (..., k) of the k highest cosines (..., f), descending; ties go to the lower id."""
    nearest = _by_cosine(ids, cosines)[..., :k]
    return np.take_along_axis(ids, nearest, axis=-1), np.take_along_axis(cosines, nearest, axis=-1)


def exact_cosines(
    left: Rows,
    left_rows: NDArray[np.integer],
    right: Rows,
    right_rows: NDArray[np.integer],
) -> NDArray[np.float32]:
    """Return the cosines (n,) of pairs of unit vectors, computed in double precision and rounded to float32.

    Each cosine depends only on its two vectors, down to the last bit: float32 products are exact in float64, and the
    summation order depends only on the vector width. In a matrix product, it would also depend on the matrix shapes.
    """
    cosines = np.empty(len(left_rows), np.float32)
    pairs_at_once = max(1, PRODUCTS_AT_ONCE // left.shape[1])
    for start in range(0, len(left_rows), pairs_at_once):
        part = slice(start, start + pairs_at_once)
        lefts = left[left_rows[part]]
        rights = right[right_rows[part]]
        terms = np.multiply(lefts, rights, dtype=np.float64)
        # Add the second half of each row to the first until one term is left.
        width = terms.shape[1]
        while width > 1:
            half = width // 2
            num_left = width - half
            terms[:, :half] += terms[:, num_left:width]
            width = num_left
        cosines[part] = terms[:, 0]
    return cosines


def _by_cosine(ids: NDArray[np.integer], cosines: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the order that sorts each row by descending cosine, then ascending id, with NaN last."""
    return np.lexsort((ids, -cosines), axis=-1)
