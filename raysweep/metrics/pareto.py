"""Fronts of two objectives that are both maximised: polarity P (first column) and similarity S (second column)."""

import bisect
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysweep.metrics.arrays import Float64Array


def _as_points(points: ArrayLike) -> Float64Array:
    array = np.asarray(points, dtype=np.float64)
    if array.size == 0:
        return np.empty((0, 2))
    if array.ndim != 2 or array.shape[1] != 2 or not np.isfinite(array).all():
        raise ValueError(f"points are finite and of shape (n, 2), not {array.shape} with {array[~np.isfinite(array)]}")
    return array


def non_dominated(points: ArrayLike) -> list[int]:
    """Indices, rising, of the points (n, 2) that no other point dominates: none is as good in both and better in one.

    Of exactly equal points the first is kept. O(n log n).
    """
    array = _as_points(points)
    order = np.lexsort((np.arange(len(array)), -array[:, 1], -array[:, 0]))
    similarity = array[order, 1]
    best_before = np.concatenate(([-np.inf], np.maximum.accumulate(similarity)[:-1])) if len(array) else similarity
    return sorted(order[similarity > best_before].tolist())


def layers(points: ArrayLike) -> NDArray[np.int64]:
    """For each of the points (n, 2) its non-dominated layer: 0 for the front, 1 for the front of the rest, and so on.

    Of exactly equal points each later one counts as dominated. O(n log n).
    """
    array = _as_points(points)
    order = np.lexsort((np.arange(len(array)), -array[:, 1], -array[:, 0]))
    tops: list[float] = []  # by layer, minus the best similarity so far, which rises from layer to layer
    placed = []
    for negated in (-array[order, 1]).tolist():
        layer = bisect.bisect_right(tops, negated)
        placed.append(layer)
        if layer == len(tops):
            tops.append(negated)
        else:
            tops[layer] = negated
    found = np.zeros(len(array), dtype=np.int64)
    found[order] = placed
    return found


def knee(front: ArrayLike) -> int:
    """Index of the best-balanced of the non-dominated points (n, 2), n >= 1, in any order.

    The point farthest beyond the chord between the two extremes, after both objectives are scaled to [0, 1] over the
    front (I. Das, "On characterizing the 'knee' of the Pareto curve based on Normal-Boundary Intersection", 1999).
    Ties go to the greatest product of the two objectives; so do fronts with nothing beyond the chord, for example of
    two points, where only the extremes are left to choose from. The product, unlike the sum, does not depend on scale.
    """
    array = _as_points(front)
    if not len(array):
        raise ValueError("a front without points has no knee")
    spread = np.ptp(array, axis=0)
    scaled = (array - array.min(axis=0)) / np.where(spread > 0, spread, 1.0)
    beyond = scaled.sum(axis=1)  # the chord is x + y = 1, so this orders by distance from it
    tied = np.flatnonzero(beyond >= beyond.max() - 1e-9)
    return int(tied[np.argmax(array[tied].prod(axis=1))])


def hypervolume(points: ArrayLike, reference: Sequence[float]) -> float:
    """Exact area that the points (n, 2) dominate above ``reference``; points not above it in both add nothing."""
    array = _as_points(points) - np.asarray(reference, dtype=np.float64)
    array = array[(array > 0).all(axis=1)]
    front = array[non_dominated(array)]
    front = front[np.argsort(-front[:, 0])]  # so similarity rises
    return float(np.sum(front[:, 0] * np.diff(front[:, 1], prepend=0.0)))
