"""Pareto fronts of two maximized objectives, P (first column) and S (second column)."""

import bisect
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysweep.metrics.arrays import Float64Array


def as_points(points: ArrayLike) -> Float64Array:
    """Return the points as a float64 array (n, 2); an empty input gives shape (0, 2).

    Raises:
        ValueError: If the points are not pairs of finite numbers.
    """
    array = np.asarray(points, dtype=np.float64)
    if array.size == 0:
        return np.empty((0, 2))
    has_pairs = array.ndim == 2 and array.shape[1] == 2
    is_finite = np.isfinite(array)
    if not has_pairs or not is_finite.all():
        not_finite = array[~is_finite]
        raise ValueError(
            f"points have shape {array.shape} and non-finite values {not_finite}; allowed: shape (n, 2), finite values"
        )
    return array


def _sort_by_falling_polarity(points: Float64Array) -> NDArray[np.int64]:
    """Return the order (n,) by descending P, then descending S, then position."""
    position = np.arange(len(points))
    return np.lexsort((position, -points[:, 1], -points[:, 0]))


def non_dominated(points: ArrayLike) -> list[int]:
    """Return the ascending indices of the points (n, 2) that no other point dominates.

    A point dominates another if it is at least as good in both objectives and better in one. Only the first of
    several equal points is kept. O(n log n).
    """
    return sorted(front_indices(as_points(points)).tolist())


def front_indices(points: Float64Array) -> NDArray[np.int64]:
    """Return the indices of the non-dominated points (n, 2), by descending P; duplicates are dropped."""
    order = _sort_by_falling_polarity(points)
    similarity = points[order, 1]
    best_so_far = np.maximum.accumulate(similarity)
    best_before = np.full_like(similarity, -np.inf)
    best_before[1:] = best_so_far[:-1]
    rises = similarity > best_before
    indices: NDArray[np.int64] = order[rises]
    return indices


def dominated_by(points: ArrayLike, front: ArrayLike) -> NDArray[np.bool_]:
    """Return a mask (n,) of the points (n, 2) that some point of ``front`` (m, 2) dominates.

    Equal points do not dominate each other. O((n + m) log m).
    """
    array = as_points(points)
    rivals = as_points(front)
    by_rising_polarity = front_indices(rivals)[::-1]
    rivals = rivals[by_rising_polarity]  # S decreases
    if not len(array) or not len(rivals):
        return np.zeros(len(array), dtype=np.bool_)
    polarity, similarity = array.T
    # the first rival with at least this P has the highest S of all such rivals
    first = np.searchsorted(rivals[:, 0], polarity)
    exists = first < len(rivals)
    last = len(rivals) - 1
    rival = rivals[np.minimum(first, last)]
    rival_polarity, rival_similarity = rival.T
    has_same_polarity = rival_polarity == polarity
    has_same_similarity = rival_similarity == similarity
    is_equal = has_same_polarity & has_same_similarity
    is_as_similar = rival_similarity >= similarity
    is_dominated: NDArray[np.bool_] = exists & is_as_similar & ~is_equal
    return is_dominated


def layers(points: ArrayLike) -> NDArray[np.int64]:
    """Return the non-dominated layer of each point (n, 2): 0 for the front, 1 for the front of the rest, and so on.

    Here, a point also dominates later points that are equal to it. Points are visited by descending P, so a layer
    dominates a point if the layer's best S so far is at least as high. Bisection finds the first layer that does not
    dominate the point, so the total cost is O(n log n).
    """
    array = as_points(points)
    order = _sort_by_falling_polarity(array)
    negated_similarity = -array[order, 1]
    negated_bests: list[float] = []  # minus each layer's best S so far; ascending
    layers_in_order = []
    for negated in negated_similarity.tolist():
        layer = bisect.bisect_right(negated_bests, negated)
        layers_in_order.append(layer)
        if layer == len(negated_bests):
            negated_bests.append(negated)
        else:
            negated_bests[layer] = negated
    layer_of_point = np.zeros(len(array), dtype=np.int64)
    layer_of_point[order] = layers_in_order
    return layer_of_point


def knee(front: ArrayLike) -> int:
    """Return the index of the knee of a front (n, 2), n >= 1, in any order.

    The knee is the point farthest above the chord between the two extremes, with both objectives scaled to [0, 1] over
    the front (I. Das, "On characterizing the 'knee' of the Pareto curve based on Normal-Boundary Intersection", 1999).
    If no point is above the chord, the extremes tie. Ties go to the point with the larger product of the unscaled
    objectives. Unlike the order by sum, the order by product does not depend on the objectives' scales.
    """
    array = as_points(front)
    if not len(array):
        raise ValueError("front is empty; required: at least one point")
    spread = np.ptp(array, axis=0)
    # avoids division by zero if all points have the same value
    unit = np.where(spread > 0, spread, 1.0)
    scaled = (array - array.min(axis=0)) / unit
    beyond = scaled.sum(axis=1)  # the chord is x + y = 1, so this orders points by distance from it
    threshold = beyond.max() - 1e-9
    tied = np.flatnonzero(beyond >= threshold)
    products = array[tied].prod(axis=1)
    best = np.argmax(products)
    return int(tied[best])


def hypervolume(points: ArrayLike, reference: Sequence[float]) -> float:
    """Return the exact hypervolume of the points (n, 2) relative to ``reference`` (2,).

    Points that are not above the reference in both objectives add nothing.
    """
    array = as_points(points) - np.asarray(reference, dtype=np.float64)
    above = array[(array > 0).all(axis=1)]
    front = above[front_indices(above)]
    polarity, similarity = front.T
    heights = np.diff(similarity, prepend=0.0)  # similarity is ascending
    return float(np.sum(polarity * heights))
