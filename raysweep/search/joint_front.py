"""The joint front of trials, with the owner of each point."""

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.pareto import front_indices

Places = NDArray[np.int64]


class JointFront:
    """The non-dominated points (P, S) of all trials.

    The front is computed lazily. Points that leave it may uncover others, so the points of all trials are kept. An
    update only examines the points that a leaving point dominated, and only sorts those that the rest of the front does
    not dominate.
    """

    def __init__(self) -> None:
        self._points = np.empty((0, 2))  # each trial's own front
        self._owners = np.empty(0, dtype=np.int64)
        self._front: Places = np.empty(0, dtype=np.int64)  # indices of the points on the joint front, by falling P
        self._owners_on_front: set[int] = set()
        self._changed: dict[int, Float64Array] = {}  # trials' own fronts that are not merged yet

    def put(self, trial: int, points: Float64Array) -> None:
        """Replace a trial's points (n, 2)."""
        self._changed.pop(trial, None)  # re-inserted last: of equal points of two trials, the earlier one counts
        self._changed[trial] = points[front_indices(points)]

    @property
    def points(self) -> Float64Array:
        """The points of the front (n, 2), by falling P."""
        self._work_out()
        return self._points[self._front]

    @property
    def owners(self) -> NDArray[np.int64]:
        """The trials (n,) that own the points."""
        self._work_out()
        return self._owners[self._front]

    def has(self, trial: int) -> bool:
        """Return whether a point of the trial is on the front."""
        self._work_out()
        return trial in self._owners_on_front

    def points_without(self, trial: int) -> Float64Array:
        """Return the front (n, 2) of the other trials' points, by falling P."""
        if not self.has(trial):
            return self.points
        return self._points[self._front_of(self._owners != trial)]

    def _work_out(self) -> None:
        """Merge the points of trials that have changed."""
        if not self._changed:
            return
        stays = ~np.isin(self._owners, list(self._changed))
        front = self._front_of(stays)
        place_after = np.cumsum(stays) - 1
        num_points = [len(own) for own in self._changed.values()]
        owners = np.repeat(np.array(list(self._changed), dtype=np.int64), num_points)
        num_staying = int(stays.sum())
        self._points = np.concatenate([self._points[stays], *self._changed.values()])
        self._owners = np.concatenate([self._owners[stays], owners])
        new = np.arange(num_staying, len(self._points))
        self._front = self._joined(place_after[front], new)
        self._owners_on_front = set(self._owners[self._front].tolist())
        self._changed = {}

    def _front_of(self, stays: NDArray[np.bool_]) -> Places:
        """Return the front of the points that stay, by falling P."""
        on_front = stays[self._front]
        gone = self._points[self._front[~on_front]]
        return self._joined(self._front[on_front], self._under(gone, stays))

    def _under(self, corners: Float64Array, stays: NDArray[np.bool_]) -> Places:
        """Return the points that stay and that a corner (n, 2) dominates or equals."""
        polarity, similarity = self._points.T
        is_under = np.zeros(len(stays), dtype=np.bool_)
        for corner_polarity, corner_similarity in corners.tolist():
            is_under |= (polarity <= corner_polarity) & (similarity <= corner_similarity)
        return np.flatnonzero(is_under & stays)

    def _joined(self, front: Places, others: Places) -> Places:
        """Return the front of points on a front, given by falling P, and of others."""
        polarity, similarity = self._points[front].T
        reached = np.searchsorted(
            -polarity, -self._points[others, 0], side="right"
        )  # front points with at least this P
        highest = np.append(-np.inf, similarity)[reached]  # highest S among those
        uncovered = others[self._points[others, 1] > highest]
        everything = np.concatenate([front, uncovered])
        joined: Places = everything[front_indices(self._points[everything])]
        return joined
