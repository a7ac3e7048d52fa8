"""Neighbours by chance, in place of the nearest ones: what pairs of SetFit's kind are made of."""

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
        rows = np.arange(len(labels)) if is_anchor is None else np.flatnonzero(is_anchor)
        # In this order, and so do a class's rows and a group's, follow each other: what is left out is one range.
        order = np.lexsort((duplicate_groups[rows], labels[rows]))
        self._rows = rows[order]
        self._classes = _Ranges(labels[self._rows])
        self._groups = _Ranges(labels[self._rows], duplicate_groups[self._rows])
        self._places = np.full(len(labels), -1)
        self._places[self._rows] = np.arange(len(rows))

    def draw(self, start: int, stop: int, rng: np.random.Generator) -> Neighbours:
        """The neighbours of the rows from ``start`` to before ``stop``, with no cosines."""
        found = Neighbours.empty(stop - start, self.k)
        places = self._places[start:stop]
        anchors = np.flatnonzero(places >= 0)
        places = places[anchors]
        class_starts, class_sizes = self._classes.starts[places], self._classes.sizes[places]
        group_starts, group_sizes = self._groups.starts[places], self._groups.sizes[places]
        own = self._pick(class_sizes - group_sizes, class_starts, group_starts, group_sizes, rng)
        others = self._pick(len(self._rows) - class_sizes, np.zeros_like(places), class_starts, class_sizes, rng)
        for slot, (numbers, columns, neighbours) in enumerate((own, others)):
            found.ids[anchors[numbers], slot, columns] = neighbours
        return found

    def _pick(
        self,
        counts: NDArray[np.integer],
        starts: NDArray[np.integer],
        gap_starts: NDArray[np.integer],
        gap_sizes: NDArray[np.integer],
        rng: np.random.Generator,
    ) -> tuple[NDArray[np.integer], NDArray[np.integer], NDArray[np.integer]]:
        """For anchors (m,), up to k of ``counts`` places that follow ``starts`` and leave out a gap.

        Returns numbers of anchors, the columns of their neighbours, and these neighbours' rows.
        """
        quotas = np.minimum(counts, self.k).astype(np.int64)
        numbers, drawn = pick_distinct(counts.astype(np.int64), quotas, rng)
        before = np.cumsum(quotas) - quotas
        columns = np.arange(len(numbers)) - before[numbers]
        places = starts[numbers] + drawn
        beyond_gap = places >= gap_starts[numbers]
        places = places + np.where(beyond_gap, gap_sizes[numbers], 0)
        return numbers, columns, self._rows[places]


class _Ranges:
    """Where each of n rows' run of rows with equal keys starts, (n,), and its size, (n,). Equal rows follow each other."""

    def __init__(self, *keys: NDArray[np.integer]) -> None:
        num_rows = len(keys[0])
        begins = np.zeros(num_rows, bool)
        begins[:1] = True
        for key in keys:
            begins[1:] |= key[1:] != key[:-1]
        run = np.cumsum(begins) - 1
        sizes = np.bincount(run, minlength=1)
        self.starts = np.flatnonzero(begins)[run]
        self.sizes = sizes[run]
