"""A front of two objectives that tells what one more point would add to its hypervolume."""

import bisect
import math
from collections.abc import Iterable

from raysweep.metrics.objective import Pair


class Staircase:
    """The front of points that are above a corner, ready to tell what more points would add to its area."""

    def __init__(self, reference_point: Pair, points: Iterable[Pair] = ()) -> None:
        self.reference_point = reference_point
        self.area = 0.0
        self._steps: list[Pair] = []  # by rising P and falling S, measured from the corner
        for point in points:
            self.add(point)

    def copy(self) -> "Staircase":
        other = Staircase(self.reference_point)
        other._steps, other.area = self._steps.copy(), self.area
        return other

    def add(self, point: Pair) -> float:
        """Put a point in; the area it adds."""
        x, y = point[0] - self.reference_point[0], point[1] - self.reference_point[1]
        steps = self._steps
        right = bisect.bisect_left(steps, (x, -math.inf))  # the first step that reaches as far
        if x <= 0 or y <= 0 or (right < len(steps) and steps[right][1] >= y):
            return 0.0
        left = right
        while left and steps[left - 1][1] <= y:
            left -= 1
        floor = steps[right][1] if right < len(steps) else 0.0
        begin = steps[left - 1][0] if left else 0.0
        gained = 0.0
        for end, height in [*steps[left:right], (x, floor)]:  # what was there, from step to step
            gained += (end - begin) * (y - height)
            begin = end
        if right < len(steps) and steps[right][0] == x:  # a lower step of the same P gives way
            right += 1
        steps[left:right] = [(x, y)]
        self.area += gained
        return gained
