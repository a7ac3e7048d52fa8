"""The joint front of trials, which knows whose its points are."""

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.pareto import front_indices


class JointFront:
    """The non-dominated among the points (P, S) of trials: ``points`` (n, 2), each of the trial in ``owners`` (n,)."""

    def __init__(self) -> None:
        self.points = np.empty((0, 2))
        self.owners = np.empty(0, dtype=np.int64)
        self._owners: set[int] = set()
        self._points_of: dict[int, Float64Array] = {}  # by trial: its own front

    def put(self, trial: int, points: Float64Array) -> None:
        """Let a trial's points (n, 2) take the place of those that it had."""
        own = points[front_indices(points)]
        self._points_of[trial] = own
        if self.has(trial):
            self.points, self.owners = self._of_all_but(None)
        else:
            self.points, self.owners = _joined([self.points, own], [self.owners, np.full(len(own), trial)])
        self._owners = set(self.owners.tolist())

    def has(self, trial: int) -> bool:
        """Whether a point of the trial is on the front."""
        return trial in self._owners

    def points_without(self, trial: int) -> Float64Array:
        """The points (n, 2) of the others' front."""
        return self._of_all_but(trial)[0] if self.has(trial) else self.points

    def _of_all_but(self, left_out: int | None) -> tuple[Float64Array, NDArray[np.int64]]:
        trials = [trial for trial in self._points_of if trial != left_out]
        points = [self._points_of[trial] for trial in trials]
        num_points = [len(each) for each in points]
        owners = np.repeat(np.array(trials, dtype=np.int64), num_points)
        return _joined([np.empty((0, 2)), *points], [owners])


def _joined(points: list[Float64Array], owners: list[NDArray[np.int64]]) -> tuple[Float64Array, NDArray[np.int64]]:
    all_points, all_owners = np.concatenate(points), np.concatenate(owners)
    kept = front_indices(all_points)
    return all_points[kept], all_owners[kept]
