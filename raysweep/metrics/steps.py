"""A front of two objectives as a step function."""

import numpy as np

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
        by_rising_x = by_falling_x[::-1]
        self.x, self.y = by_rising_x[:, 0], by_rising_x[:, 1]
