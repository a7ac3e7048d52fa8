"""Hypervolumes of resampled fronts and of the oracle's concave hull, for :mod:`.noise`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.hull import hull_area
from raysweep.metrics.scores import Goals, Pair
from raysweep.uncertainty.many_fronts import hypervolumes

_TINY = 1e-12  # tolerance for rounding

NO_CONSTRAINTS: Pair = (0.0, -1.0)


def reference_points(reference: Float64Array, goals: Goals) -> Float64Array:
    """Return the hypervolume reference points (resamples, 2) for the reference encoder's P and S (resamples, 2)."""
    points: Float64Array = reference * np.array(goals.reference_point((1.0, 1.0)))
    return points


@dataclass(frozen=True)
class FrontArea:
    """The hypervolume of the points at ``rows``.

    The point at row ``reference`` sets the reference point of each resample.
    """

    rows: Sequence[int]
    reference: int
    goals: Goals

    def __call__(self, points: Float64Array) -> Float64Array:
        counted = points[:, list(self.rows)]
        begins = reference_points(points[:, self.reference], self.goals)
        return hypervolumes(counted, begins)


@dataclass(frozen=True)
class HullArea:
    """The hypervolume of the concave hull of the points at ``rows``.

    ``least`` holds the minimum P and S that the constraints require.
    """

    rows: Sequence[int]
    reference: int
    goals: Goals
    least: Pair = NO_CONSTRAINTS

    def __call__(self, points: Float64Array) -> Float64Array:
        hulls = points[:, list(self.rows)]
        begins = reference_points(points[:, self.reference], self.goals)
        above_begins = hulls - begins[:, None]
        areas = _areas_of_concave(above_begins)
        # resamples in which a constraint is stricter than the reference point
        is_cut = np.any(begins < self.least, axis=1)
        is_other = np.isnan(areas) | is_cut
        others = np.flatnonzero(is_other)
        for index in others.tolist():
            areas[index] = hull_area(hulls[index], begins[index], self.least)
        return areas


def _areas_of_concave(points: Float64Array) -> Float64Array:
    """Return the areas (resamples,) under points (resamples, points, 2), or NaN if the points are not concave.

    Areas are measured above 0. The oracle's points, sorted by ascending bonus, are concave in every resample because each
    of them maximizes ``S + bonus * P`` for every query.
    """
    polarity, similarity = points[..., 0], points[..., 1]
    widths = np.diff(polarity, axis=1)
    left_heights, right_heights = similarity[:, :-1], similarity[:, 1:]
    mean_heights = (left_heights + right_heights) / 2
    strips = widths * mean_heights
    first_points = points[:, 0]
    left_of_hull = first_points.prod(axis=-1)
    areas = left_of_hull + np.sum(strips, axis=1)
    is_above = np.all(points >= -_TINY, axis=(1, 2))
    is_concave = is_above & _falls_and_turns_right(points)
    return np.where(is_concave, areas, np.nan)


def _falls_and_turns_right(points: Float64Array) -> NDArray[np.bool_]:
    """Return a mask (resamples,) that is True if P rises from point to point and S falls increasingly steeply."""
    steps = np.diff(points, axis=1)
    widths, drops = steps[..., 0], steps[..., 1]
    is_rightward = widths >= -_TINY
    is_downward = drops <= _TINY
    is_falling = np.all(is_rightward & is_downward, axis=1)
    first_widths, next_widths = widths[:, :-1], widths[:, 1:]
    first_drops, next_drops = drops[:, :-1], drops[:, 1:]
    # cross products of successive steps, positive where the line turns left
    turns = first_widths * next_drops - first_drops * next_widths
    is_steeper = np.all(turns <= _TINY, axis=1)
    is_concave: NDArray[np.bool_] = is_falling & is_steeper
    return is_concave


@dataclass(frozen=True)
class Share:
    """The front's share of the oracle's hypervolume, or 0 if the oracle's is 0."""

    front: FrontArea
    oracle: HullArea

    def __call__(self, points: Float64Array) -> Float64Array:
        limits = self.oracle(points)
        fronts = self.front(points)
        return np.divide(fronts, limits, out=np.zeros_like(fronts), where=limits > 0)


@dataclass(frozen=True)
class Gain:
    """The first front's hypervolume minus the second's."""

    first: FrontArea
    second: FrontArea

    def __call__(self, points: Float64Array) -> Float64Array:
        return self.first(points) - self.second(points)
