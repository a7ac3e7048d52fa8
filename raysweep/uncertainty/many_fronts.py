"""Fronts, hypervolumes and knees of many resamples at once: what :mod:`raysweep.metrics.pareto` says of each of them."""

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.arrays import Float64Array

_ROUNDING = 1e-12


def memberships(points: Float64Array) -> NDArray[np.bool_]:
    """Which of the points (resamples, points, 2) are on their resample's front; of exactly equal points the first."""
    polarity, similarity = points[..., 0], points[..., 1]
    order = np.lexsort((-similarity, -polarity), axis=-1)  # stable, so equal points keep their order
    falling = np.take_along_axis(similarity, order, axis=-1)
    best_so_far = np.maximum.accumulate(falling, axis=-1)
    best_before = np.full_like(falling, -np.inf)
    best_before[:, 1:] = best_so_far[:, :-1]
    found = np.empty(falling.shape, dtype=np.bool_)
    np.put_along_axis(found, order, falling > best_before, axis=-1)
    return found


def dominated(members: Float64Array, others: Float64Array) -> NDArray[np.bool_]:
    """Which of ``members`` (resamples, members, 2) one of ``others`` (resamples, others, 2) of its resample dominates.

    Means of the same scores that two products of matrices gave differ by rounding, and count as equal.
    """
    polarities, similarities = (np.ascontiguousarray(others[..., score]) for score in (0, 1))
    found = np.empty(members.shape[:2], dtype=np.bool_)
    for index in range(members.shape[1]):
        polarity, similarity = (members[:, index, score, None] for score in (0, 1))
        dominates = polarities > polarity + _ROUNDING
        dominates |= similarities > similarity + _ROUNDING
        dominates &= polarities >= polarity - _ROUNDING
        dominates &= similarities >= similarity - _ROUNDING
        found[:, index] = dominates.any(axis=1)
    return found


def hypervolumes(points: Float64Array, references: Float64Array) -> Float64Array:
    """The areas (resamples,) that the points (resamples, points, 2) dominate above ``references`` (resamples, 2)."""
    above = points - references[:, None, :]
    above[(above <= 0).any(axis=-1)] = 0.0  # adds nothing
    order = np.argsort(-above[..., 0], axis=-1)
    polarity = np.take_along_axis(above[..., 0], order, axis=-1)
    similarity = np.take_along_axis(above[..., 1], order, axis=-1)
    best_so_far = np.maximum.accumulate(similarity, axis=-1)
    rises = np.diff(best_so_far, axis=-1, prepend=0.0)
    areas: Float64Array = np.sum(polarity * rises, axis=-1)
    return areas


def knees(points: Float64Array) -> NDArray[np.int64]:
    """Index (resamples,) of the knee of the front of each resample's points (resamples, points, 2), points >= 1."""
    on_front = memberships(points)
    outside = ~on_front[..., None]
    least = np.where(outside, np.inf, points).min(axis=1, keepdims=True)
    most = np.where(outside, -np.inf, points).max(axis=1, keepdims=True)
    spread = most - least
    unit = np.where(spread > 0, spread, 1.0)
    beyond = ((points - least) / unit).sum(axis=-1)
    beyond[~on_front] = -np.inf
    tied = beyond >= beyond.max(axis=1, keepdims=True) - 1e-9
    products = np.where(tied, points.prod(axis=-1), -np.inf)
    best: NDArray[np.int64] = products.argmax(axis=1)
    return best
