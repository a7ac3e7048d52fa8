"""Random neighbors for SetFit-style pairs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysweep.data.equal_rows import rows_by_value
from raysweep.data.examples import pick_distinct
from raysweep.data.neighbors import Neighbors

_ANCHOR_STREAM = (0, 0, 0)  # spawn key used only for anchors


def sample_anchors(labels: NDArray[np.integer], per_class: int, seed: int) -> NDArray[np.bool_]:
    """Sample up to ``per_class`` anchors of each class in ``labels`` (n,) and return their mask (n,)."""
    stream = np.random.SeedSequence(seed, spawn_key=_ANCHOR_STREAM)
    rng = np.random.default_rng(stream)
    is_anchor = np.zeros(len(labels), bool)
    for rows in rows_by_value(labels):
        count = min(per_class, len(rows))
        anchors = rng.choice(rows, count, replace=False)
        is_anchor[anchors] = True
    return is_anchor


class RandomNeighbors:
    """Sampler that draws, for each anchor, k rows of its class and k of other classes, without replacement.

    Drawn rows that have the anchor's text but a different label are dropped, so an anchor may have fewer neighbors.

    ``labels`` and ``duplicate_groups`` (n,) are as in :class:`raysweep.data.neighbors.LabeledVectors`. If ``is_anchor``
    (n,) is passed, only anchors have neighbors, and neighbors are drawn only from the anchors.
    """

    def __init__(
        self,
        labels: NDArray[np.integer],
        duplicate_groups: NDArray[np.integer],
        k: int,
        is_anchor: NDArray[np.bool_] | None = None,
    ) -> None:
        self.k = k
        self._duplicate_groups = duplicate_groups
        rows = np.arange(len(labels)) if is_anchor is None else np.flatnonzero(is_anchor)
        # Sort by class and then by group, so that the rows to exclude are a single range.
        order = np.lexsort((duplicate_groups[rows], labels[rows]))
        self._rows = rows[order]
        labels_in_order = labels[self._rows]
        groups_in_order = duplicate_groups[self._rows]
        self._classes = _Ranges.of_runs(labels_in_order)
        self._groups = _Ranges.of_runs(labels_in_order, groups_in_order)
        self._places = np.full(len(labels), -1)
        self._places[self._rows] = np.arange(len(rows))

    def draw(self, start: int, stop: int, rng: np.random.Generator) -> Neighbors:
        """Return the neighbors of the rows [start, stop), without cosines."""
        drawn = Neighbors.empty(stop - start, self.k)
        places = self._places[start:stop]
        groups = self._duplicate_groups[start:stop]
        anchors = np.flatnonzero(places >= 0)
        anchor_places = places[anchors]
        own_class = self._classes.at(anchor_places)
        own_group = self._groups.at(anchor_places)
        all_rows = _Ranges.alike(len(anchors), len(self._rows))
        slots = (own_class, own_group), (all_rows, own_class)
        for slot, (candidates, excluded) in enumerate(slots):
            # For each anchor, draw up to k candidate rows outside the excluded range.
            counts = candidates.sizes - excluded.sizes
            quotas = np.minimum(counts, self.k)
            numbers, picks = pick_distinct(counts, quotas, rng)
            picked_places = candidates.starts[numbers] + picks
            is_beyond = picked_places >= excluded.starts[numbers]
            picked_places[is_beyond] += excluded.sizes[numbers][is_beyond]
            neighbors = self._rows[picked_places]
            queries = anchors[numbers]
            is_copy = self._duplicate_groups[neighbors] == groups[queries]  # with a different label
            neighbors = neighbors[~is_copy]
            queries = queries[~is_copy]
            first_places = np.searchsorted(queries, queries)
            columns = np.arange(len(queries)) - first_places
            drawn.ids[queries, slot, columns] = neighbors
        return drawn


@dataclass(frozen=True)
class _Ranges:
    """Ranges of rows, given by their starts and sizes, both (n,)."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def of_runs(cls, *keys: NDArray[np.integer]) -> "_Ranges":
        """Return the range of rows with the same keys for each row. Rows with the same keys must be contiguous."""
        begins = np.zeros(len(keys[0]), bool)
        begins[:1] = True
        for key in keys:
            begins[1:] |= key[1:] != key[:-1]
        run = np.cumsum(begins) - 1
        sizes = np.bincount(run, minlength=1)
        return cls(np.flatnonzero(begins)[run], sizes[run])

    @classmethod
    def alike(cls, count: int, num_rows: int) -> "_Ranges":
        """Return ``count`` ranges that each span all rows."""
        return cls(np.zeros(count, np.int64), np.full(count, num_rows, np.int64))

    def at(self, places: NDArray[np.integer]) -> "_Ranges":
        return _Ranges(self.starts[places], self.sizes[places])
