"""A front of two objectives that tells what one more point would add to its hypervolume."""

import bisect
import math
from collections.abc import Iterable

from raysweep.metrics.objective import Pair


class Staircase:
    """The front of points (P, S) above a reference point, and its hypervolume ``area``."""

    def __init__(self, reference_point: Pair, points: Iterable[Pair] = ()) -> None:
        self.reference_point = reference_point
        self.area = 0.0
        self._steps: list[Pair] = []  # by rising P and falling S, both above those of the reference point
        for point in points:
            self.add(point)

    def copy(self) -> "Staircase":
        other = Staircase(self.reference_point)
        other._steps, other.area = self._steps.copy(), self.area
        return other

    def add(self, point: Pair) -> float:
        """Put a point in. The area that it adds: 0 where the front dominates it."""
        x = point[0] - self.reference_point[0]
        y = point[1] - self.reference_point[1]
        if x <= 0 or y <= 0:
            return 0.0
        steps = self._steps
        right = bisect.bisect_left(steps, (x, -math.inf))  # the first step that reaches as far
        is_dominated = right < len(steps) and steps[right][1] >= y
        if is_dominated:
            return 0.0

        left = right  # the first step that the point dominates
        while left and steps[left - 1][1] <= y:
            left -= 1
        gained = self._area_above(left, right, (x, y))
        if right < len(steps) and steps[right][0] == x:  # a lower step of the same P gives way
            right += 1
        steps[left:right] = [(x, y)]
        self.area += gained
        return gained

    def _area_above(self, left: int, right: int, corner: Pair) -> float:
        """The area between a new step's ``corner`` and the steps under it, which are those from ``left`` to ``right``."""
        x, y = corner
        steps = self._steps
        begin = steps[left - 1][0] if left else 0.0
        floor = steps[right][1] if right < len(steps) else 0.0
        steps_under = [*steps[left:right], (x, floor)]
        area = 0.0
        for end, height in steps_under:
            width = end - begin
            area += width * (y - height)
            begin = end
        return area
