"""Vectorized version of :mod:`raysweep.metrics.pareto` for many resamples at once."""

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.arrays import Float64Array

_ROUNDING = 1e-12


def memberships(points: Float64Array) -> NDArray[np.bool_]:
    """Return a mask (resamples, points) of each resample's front in ``points`` (resamples, points, 2).

    If several points are equal, only the first is on the front.
    """
    polarity, similarity = points[..., 0], points[..., 1]
    # the sort is stable, so equal points keep their order
    order = np.lexsort((-similarity, -polarity), axis=-1)
    in_order = np.take_along_axis(similarity, order, axis=-1)
    best_so_far = np.maximum.accumulate(in_order, axis=-1)
    best_before = np.full_like(in_order, -np.inf)
    best_before[:, 1:] = best_so_far[:, :-1]
    is_better = in_order > best_before
    is_member = np.empty_like(is_better)
    np.put_along_axis(is_member, order, is_better, axis=-1)
    return is_member


def dominated(members: Float64Array, others: Float64Array) -> NDArray[np.bool_]:
    """Return a mask of the ``members`` (resamples, members, 2) that any of ``others`` (resamples, others, 2) dominates.

    Rounding differences are ignored, because means of the same scores may come from different matrix products.
    """
    polarities = np.ascontiguousarray(others[..., 0])
    similarities = np.ascontiguousarray(others[..., 1])
    is_dominated = np.empty(members.shape[:2], dtype=np.bool_)
    for index in range(members.shape[1]):
        member = members[:, index, None]  # (resamples, 1, 2)
        above = member + _ROUNDING
        below = member - _ROUNDING
        # Compute in place, because ``others`` is large.
        dominates = polarities > above[..., 0]
        dominates |= similarities > above[..., 1]
        dominates &= polarities >= below[..., 0]
        dominates &= similarities >= below[..., 1]
        is_dominated[:, index] = dominates.any(axis=1)
    return is_dominated


def hypervolumes(points: Float64Array, references: Float64Array) -> Float64Array:
    """Return the areas (resamples,) that points (resamples, points, 2) dominate above ``references`` (resamples, 2)."""
    above = points - references[:, None, :]
    adds_nothing = np.any(above <= 0, axis=-1)
    above[adds_nothing] = 0.0
    polarity, similarity = above[..., 0], above[..., 1]
    order = np.argsort(-polarity, axis=-1)
    widths = np.take_along_axis(polarity, order, axis=-1)
    heights = np.take_along_axis(similarity, order, axis=-1)
    best_so_far = np.maximum.accumulate(heights, axis=-1)
    rises = np.diff(best_so_far, axis=-1, prepend=0.0)
    strips = widths * rises
    areas: Float64Array = np.sum(strips, axis=-1)
    return areas


def knees(points: Float64Array) -> NDArray[np.int64]:
    """Return the index (resamples,) of each resample's knee in ``points`` (resamples, points >= 1, 2)."""
    on_front = memberships(points)
    mask = on_front[..., None]
    minimum = np.where(mask, points, np.inf).min(axis=1, keepdims=True)
    maximum = np.where(mask, points, -np.inf).max(axis=1, keepdims=True)
    spread = maximum - minimum
    unit = np.where(spread > 0, spread, 1.0)
    scaled = (points - minimum) / unit
    # ranks points by their distance beyond the chord of the scaled front, (resamples, points)
    beyond = np.where(on_front, scaled.sum(axis=-1), -np.inf)
    farthest = beyond.max(axis=1, keepdims=True)
    is_tied = beyond >= farthest - 1e-9
    products = np.where(is_tied, points.prod(axis=-1), -np.inf)
    best: NDArray[np.int64] = products.argmax(axis=1)
    return best
