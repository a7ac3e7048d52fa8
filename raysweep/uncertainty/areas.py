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
        others = np.isnan(areas) | self._cuts(begins)
        for index in np.flatnonzero(others).tolist():
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
    first = points[:, 0].prod(axis=-1)
    areas = first + _below_chords(points)
    is_above = np.all(points >= -_TINY, axis=(1, 2))
    is_concave = is_above & _falls_and_turns_right(points)
    return np.where(is_concave, areas, np.nan)


def _below_chords(points: Float64Array) -> Float64Array:
    polarity, similarity = points[..., 0], points[..., 1]
    widths = np.diff(polarity, axis=1)
    left, right = similarity[:, :-1], similarity[:, 1:]
    heights = (left + right) / 2
    areas: Float64Array = np.sum(widths * heights, axis=1)
    return areas


def _falls_and_turns_right(points: Float64Array) -> NDArray[np.bool_]:
    """In which resamples P rises from point to point, S falls, and what falls falls ever more steeply."""
    steps = np.diff(points, axis=1)
    widths, drops = steps[..., 0], steps[..., 1]
    is_falling = np.all((widths >= -_TINY) & (drops <= _TINY), axis=1)
    is_steeper = np.all(_turns(widths, drops) <= _TINY, axis=1)
    found: NDArray[np.bool_] = is_falling & is_steeper
    return found


def _turns(widths: Float64Array, drops: Float64Array) -> Float64Array:
    """Cross products of steps that follow one another, above 0 where a line turns left."""
    down_after = widths[:, :-1] * drops[:, 1:]
    down_before = drops[:, :-1] * widths[:, 1:]
    return down_after - down_before


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
