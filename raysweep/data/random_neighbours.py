"""Neighbours by chance, in place of the nearest ones: what pairs of SetFit's kind are made of."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysweep.data.examples import pick_distinct
from raysweep.data.neighbours import Neighbours

_ANCHORS = (0, 0, 0)  # the stream of random numbers that nothing else draws from


def sample_anchors(labels: NDArray[np.integer], per_class: int, seed: int) -> NDArray[np.bool_]:
    """Which of the rows with these ``labels`` (n,) are anchors, (n,): so many of each class by chance, or all it has."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=_ANCHORS))
    is_anchor = np.zeros(len(labels), bool)
    by_label = np.argsort(labels, kind="stable")
    begins = np.flatnonzero(np.diff(labels[by_label])) + 1
    for rows in np.split(by_label, begins):
        count = min(per_class, len(rows))
        is_anchor[rng.choice(rows, count, replace=False)] = True
    return is_anchor


class RandomNeighbours:
    """Of each anchor k others of its own class and k of the other classes, all alike likely, each at most once.

    Where one of the latter is a copy of the anchor that has another label, it has one fewer.

    ``labels`` and ``duplicate_groups``, (n,), are as in :class:`raysweep.data.neighbours.LabelledVectors`: rows of one
    group are never each other's neighbours. Where only some rows are anchors, neighbours are drawn among these, so that
    no example holds another sentence; the others have no neighbours.
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
        # In this order a class's rows follow each other, and so do a group's: what is left out is one range.
        order = np.lexsort((duplicate_groups[rows], labels[rows]))
        self._rows = rows[order]
        labels_in_order = labels[self._rows]
        groups_in_order = duplicate_groups[self._rows]
        self._classes = _Ranges.of_runs(labels_in_order)
        self._groups = _Ranges.of_runs(labels_in_order, groups_in_order)
        self._places = np.full(len(labels), -1)
        self._places[self._rows] = np.arange(len(rows))

    def draw(self, start: int, stop: int, rng: np.random.Generator) -> Neighbours:
        """The neighbours of the rows from ``start`` to before ``stop``, with no cosines."""
        found = Neighbours.empty(stop - start, self.k)
        places = self._places[start:stop]
        anchors = np.flatnonzero(places >= 0)
        own_class = self._classes.at(places[anchors])
        own_group = self._groups.at(places[anchors])
        everything = _Ranges.alike(len(anchors), len(self._rows))
        sides = (own_class, own_group), (everything, own_class)
        for slot, (within, left_out) in enumerate(sides):
            numbers, neighbours = self._pick(within, left_out, rng)
            picked_by = anchors[numbers]
            groups, own_groups = self._duplicate_groups[neighbours], self._duplicate_groups[start + picked_by]
            is_copy = groups == own_groups  # of another label
            picked_by, neighbours = picked_by[~is_copy], neighbours[~is_copy]
            columns = np.arange(len(picked_by)) - np.searchsorted(picked_by, picked_by)
            found.ids[picked_by, slot, columns] = neighbours
        return found

    def _pick(
        self, within: "_Ranges", left_out: "_Ranges", rng: np.random.Generator
    ) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        """For each anchor up to k of the rows of one range, but for those of another range within it.

        Returns numbers of anchors, rising, and their neighbours' rows.
        """
        counts = within.sizes - left_out.sizes
        quotas = np.minimum(counts, self.k)
        numbers, drawn = pick_distinct(counts, quotas, rng)
        places = within.starts[numbers] + drawn
        is_beyond = places >= left_out.starts[numbers]
        places[is_beyond] += left_out.sizes[numbers][is_beyond]
        return numbers, self._rows[places]


@dataclass(frozen=True)
class _Ranges:
    """Ranges of rows: where each starts, and how many rows it has, both (n,)."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def of_runs(cls, *keys: NDArray[np.integer]) -> "_Ranges":
        """Of each row the run of rows with its keys, (n,) each. Rows with the same keys follow each other."""
        begins = np.zeros(len(keys[0]), bool)
        begins[:1] = True
        for key in keys:
            begins[1:] |= key[1:] != key[:-1]
        run = np.cumsum(begins) - 1
        sizes = np.bincount(run, minlength=1)
        return cls(np.flatnonzero(begins)[run], sizes[run])

    @classmethod
    def alike(cls, count: int, num_rows: int) -> "_Ranges":
        """So many ranges of all rows."""
        return cls(np.zeros(count, np.int64), np.full(count, num_rows, np.int64))

    def at(self, places: NDArray[np.integer]) -> "_Ranges":
        return _Ranges(self.starts[places], self.sizes[places])
