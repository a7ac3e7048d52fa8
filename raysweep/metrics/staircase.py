"""Fronts of two objectives as step functions above a reference point."""

import bisect
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.pareto import front_indices
from raysweep.metrics.scores import Pair


class Staircase:
    """A front of points (P, S) that is updated incrementally, with its hypervolume ``area``."""

    def __init__(self, reference_point: Pair, points: Iterable[Pair] = ()) -> None:
        self.reference_point = reference_point
        self.area = 0.0
        self._steps: list[
            Pair
        ] = []  # relative to the reference point; P is ascending, S is descending
        self._ends: Float64Array | None = None  # cached array (steps, 2)
        for point in points:
            self.add(point)

    def copy(self) -> "Staircase":
        other = Staircase(self.reference_point)
        other.area = self.area
        other._steps = self._steps.copy()
        return other

    def add(self, point: Pair) -> float:
        """Add a point and return the added area, which is 0 if the front dominates the point."""
        x = point[0] - self.reference_point[0]
        y = point[1] - self.reference_point[1]
        if x <= 0 or y <= 0:
            return 0.0
        steps = self._steps
        right = bisect.bisect_left(steps, (x, -math.inf))  # the first step with at least this P
        is_dominated = right < len(steps) and steps[right][1] >= y
        if is_dominated:
            return 0.0

        left = right  # becomes the first step that the point dominates
        while left and steps[left - 1][1] <= y:
            left -= 1
        # sum the area between the new step and the steps under it
        begin = steps[left - 1][0] if left else 0.0
        floor = steps[right][1] if right < len(steps) else 0.0
        steps_under = [*steps[left:right], (x, floor)]
        gained = 0.0
        for end, height in steps_under:
            width = end - begin
            gained += width * (y - height)
            begin = end
        # the new step replaces a lower one with the same P
        if right < len(steps) and steps[right][0] == x:
            right += 1
        steps[left:right] = [(x, y)]
        self._ends = None
        self.area += gained
        return gained

    def add_all(self, points: Float64Array) -> None:
        """Add points (n, 2); faster than repeated :meth:`add` if the front dominates most of them."""
        added = points[self.is_surpassed_by(points)]
        front = added[front_indices(added)]
        for point in front.tolist():
            self.add(tuple(point))

    def is_surpassed_by(self, points: Float64Array) -> NDArray[np.bool_]:
        """Return a mask (n,) of the points (n, 2) that would add to the area on their own."""
        if self._ends is None:
            self._ends = np.array(self._steps).reshape(-1, 2)
        above = points - np.array(self.reference_point)
        x, y = above.T
        step_x, step_y = self._ends.T
        first_step = np.searchsorted(step_x, x)
        heights = np.append(step_y, 0.0)  # the height is 0 beyond the last step
        floor = heights[first_step]
        is_right = x > 0
        is_higher = y > floor
        adds_area: NDArray[np.bool_] = is_right & is_higher
        return adds_area


class Steps:
    """A fixed front relative to a reference point, as arrays: ``x`` is ascending, ``y`` is descending."""

    def __init__(self, reference_point: Pair, points: Float64Array) -> None:
        self.reference_point = np.array(reference_point)
        above = points - self.reference_point
        above = above[(above > 0).all(axis=1)]
        by_falling_x = above[front_indices(above)]
        by_rising_x = by_falling_x[::-1]
        self.x, self.y = by_rising_x.T
