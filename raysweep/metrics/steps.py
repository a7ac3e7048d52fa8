"""A front of two objectives as steps, and what many sets of points would each add to its hypervolume."""

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import Pair
from raysweep.metrics.pareto import front_indices


class Steps:
    """A front as steps above a reference point: ``x`` rises and ``y`` falls."""

    def __init__(self, reference_point: Pair, points: Float64Array) -> None:
        self.reference_point = np.array(reference_point)
        above = points - self.reference_point
        above = above[(above > 0).all(axis=1)]
        by_falling_x = above[front_indices(above)]
        kept = by_falling_x[::-1]
        self.x, self.y = kept[:, 0], kept[:, 1]
        widths = np.diff(self.x, prepend=0.0)
        self.area = float((widths * self.y).sum())

    @property
    def points(self) -> Float64Array:
        """(n, d)."""
        points: Float64Array = np.stack([self.x, self.y], axis=1) + self.reference_point
        return points

    def with_points(self, points: Float64Array) -> "Steps":
        """The front of these and more points (n, d)."""
        reference_point = (float(self.reference_point[0]), float(self.reference_point[1]))
        return Steps(reference_point, np.concatenate([self.points, points]))

    def gains(self, points: Float64Array) -> Float64Array:
        """The area that points (cases, rungs, i, d) add to the front, in each case up to each rung: (cases, rungs)."""
        num_cases, num_rungs = points.shape[:2]
        gains = np.zeros((num_cases, num_rungs))
        above = points - self.reference_point
        x, y = above[..., 0], above[..., 1]
        rises = (x > 0) & (y > self._heights(x))
        cases = rises.any(axis=(1, 2))
        if not cases.any():
            return gains
        columns = rises.any(axis=0)  # (rungs, i)
        num_columns = columns.sum(axis=1)
        rung_of = np.repeat(np.arange(num_rungs), num_columns)
        kept_x = np.maximum(x, 0.0)[cases]
        kept_y = np.where(rises, y, 0.0)[cases]
        areas = self._areas(kept_x[:, columns], kept_y[:, columns], rung_of, num_rungs)
        gains[cases] = areas - self.area
        return gains

    def _heights(self, x: Float64Array) -> Float64Array:
        """How high the front stands at x."""
        heights = np.append(self.y, 0.0)
        found: Float64Array = np.maximum(heights[np.searchsorted(self.x, x)], 0.0)
        return found

    def _areas(self, x: Float64Array, y: Float64Array, rung_of: NDArray[np.int64], num_rungs: int) -> Float64Array:
        """Of the front with the points (cases, n) of the rungs up to each: (cases, rungs)."""
        all_x, all_y = _beside(self.x, x), _beside(self.y, y)
        own_rungs = np.full(len(self.x), -1)
        rungs = np.concatenate([own_rungs, rung_of])
        order = np.argsort(all_x, axis=1, kind="stable")
        sorted_x = np.take_along_axis(all_x, order, axis=1)
        sorted_y = np.take_along_axis(all_y, order, axis=1)
        sorted_rungs = rungs[order]
        widths = np.diff(sorted_x, axis=1, prepend=0.0)
        areas = np.empty((len(x), num_rungs))
        for rung in range(num_rungs):
            there = np.where(sorted_rungs <= rung, sorted_y, 0.0)
            areas[:, rung] = _area_under(widths, there)
        return areas


def _beside(steps: Float64Array, values: Float64Array) -> Float64Array:
    """The same steps (s,) before the values of each case (cases, n): (cases, s + n)."""
    repeated = np.broadcast_to(steps, (len(values), len(steps)))
    return np.concatenate([repeated, values], axis=1)


def _area_under(widths: Float64Array, heights: Float64Array) -> Float64Array:
    """Under columns that are at least as high as each to their right (cases, columns): (cases,)."""
    highest_from_right = np.maximum.accumulate(heights[:, ::-1], axis=1)
    area: Float64Array = (widths * highest_from_right[:, ::-1]).sum(axis=1)
    return area
