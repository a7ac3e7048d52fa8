"""Hypervolumes of fronts and of the oracle's concave hull, as functionals of the points that :mod:`.noise` resamples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.hull import hull_area
from raysweep.metrics.objective import Pair
from raysweep.uncertainty.many_fronts import hypervolumes

_TINY = 1e-12  # rounding

NO_CONSTRAINTS: Pair = (0.0, -1.0)


def reference_points(reference: Float64Array) -> Float64Array:
    """Where hypervolumes begin (resamples, 2): at P of the reference encoder (resamples, 2) and half of its S."""
    return reference * [1.0, 0.5]


@dataclass(frozen=True)
class FrontArea:
    """The hypervolume of the points at ``rows``, above the reference point of the row ``reference`` of the same resample."""

    rows: Sequence[int]
    reference: int

    def __call__(self, points: Float64Array) -> Float64Array:
        begin = reference_points(points[:, self.reference])
        return hypervolumes(points[:, list(self.rows)], begin)


@dataclass(frozen=True)
class HullArea:
    """The hypervolume of the concave hull of the points at ``rows``; ``least`` P and S are what constraints ask for."""

    rows: Sequence[int]
    reference: int
    least: Pair = NO_CONSTRAINTS

    def __call__(self, points: Float64Array) -> Float64Array:
        begins = reference_points(points[:, self.reference])
        hulls = points[:, list(self.rows)]
        areas = _areas_of_concave(hulls - begins[:, None])
        for index in np.flatnonzero(np.isnan(areas) | self._cuts(begins)).tolist():
            areas[index] = hull_area(hulls[index], begins[index], self.least)
        return areas

    def _cuts(self, begins: Float64Array) -> NDArray[np.bool_]:
        """In which resamples a constraint asks for more than the reference point (resamples, 2)."""
        polarity, similarity = self.least
        return (begins[:, 0] < polarity) | (begins[:, 1] < similarity)


def _areas_of_concave(points: Float64Array) -> Float64Array:
    """The areas (resamples,) above 0 of points (resamples, points, 2) that are their own concave hull; NaN of others.

    The oracle's points, by rising bonus, are so in every resample: each is greatest in ``S + bonus * P`` query by query.
    """
    polarity, similarity = points[..., 0], points[..., 1]
    widths, drops = np.diff(polarity, axis=1), np.diff(similarity, axis=1)
    turns = widths[:, :-1] * drops[:, 1:] - drops[:, :-1] * widths[:, 1:]
    is_above = (points >= -_TINY).all(axis=(1, 2))
    is_rising = (widths >= -_TINY).all(axis=1)
    is_falling = (drops <= _TINY).all(axis=1)
    turns_right = (turns <= _TINY).all(axis=1)
    is_concave = is_above & is_rising & is_falling & turns_right
    heights = (similarity[:, 1:] + similarity[:, :-1]) / 2
    first = polarity[:, 0] * similarity[:, 0]
    rest = np.sum(widths * heights, axis=1)
    return np.where(is_concave, first + rest, np.nan)


@dataclass(frozen=True)
class Share:
    """The front's part of the oracle's hypervolume; 0 where the oracle has none."""

    front: FrontArea
    oracle: HullArea

    def __call__(self, points: Float64Array) -> Float64Array:
        limits = self.oracle(points)
        fronts = self.front(points)
        return np.divide(fronts, limits, out=np.zeros_like(fronts), where=limits > 0)


@dataclass(frozen=True)
class Gain:
    """By how much the first front's hypervolume exceeds the second's, on the same queries."""

    first: FrontArea
    second: FrontArea

    def __call__(self, points: Float64Array) -> Float64Array:
        return self.first(points) - self.second(points)
