"""The concave hull of a front: the scores reachable by splitting the queries between its points."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.pareto import as_points, front_indices

NO_MINIMUM = (-np.inf, -np.inf)


def concave_hull(points: ArrayLike) -> NDArray[np.int64]:
    """Return the indices of the hull's vertices among the points (n, 2), by increasing P.

    Using one point for some queries and another point for the rest produces scores on the chord between the two. The
    algorithm is Andrew's monotone chain (1979), O(n log n).
    """
    array = as_points(points)
    by_rising_polarity = front_indices(array)[::-1]
    vertices: list[int] = []
    for index in by_rising_polarity.tolist():
        point = array[index]
        while len(vertices) > 1:
            first, middle = array[vertices[-2:]]
            chord_x, chord_y = point - first
            step_x, step_y = middle - first
            height = chord_x * step_y
            height_of_chord = chord_y * step_x  # both heights are multiplied by chord_x
            if height > height_of_chord:
                break
            vertices.pop()
        vertices.append(index)
    return np.array(vertices, dtype=np.int64)


def hull_area(
    points: ArrayLike, reference: Sequence[float], minimum: Sequence[float] = NO_MINIMUM
) -> float:
    """Return the exact area dominated by the points' concave hull relative to ``reference`` (2,).

    The points have shape (n, 2). Only the part of the hull with P and S of at least ``minimum`` (2,) counts.
    """
    array = as_points(points)
    hull = array[concave_hull(array)]
    begin = np.asarray(reference, dtype=np.float64)
    floor = np.maximum(begin, minimum)
    vertices = _clip(hull, floor) - begin
    if not len(vertices):
        return 0.0
    polarity, similarity = vertices.T
    widths = np.diff(polarity)
    height_sums = similarity[1:] + similarity[:-1]
    mean_heights = height_sums / 2
    left_of_hull = polarity[0] * similarity[0]
    under_hull = np.sum(widths * mean_heights)
    return float(left_of_hull + under_hull)


def _clip(hull: Float64Array, floor: Float64Array) -> Float64Array:
    """Clip a hull (n, 2), sorted by increasing P, to P and S of at least ``floor`` (2,)."""
    if not len(hull):
        return hull
    polarity, similarity = hull.T
    min_polarity, min_similarity = floor
    begin = max(min_polarity, polarity[0])
    end = polarity[-1]
    # np.interp requires ascending coordinates, but S is descending
    if similarity[-1] < min_similarity:
        rising_similarity = similarity[::-1]
        falling_polarity = polarity[::-1]
        end = np.interp(min_similarity, rising_similarity, falling_polarity)
    if begin > end or min_similarity > similarity[0]:
        return np.empty((0, 2))
    is_inside = (polarity > begin) & (polarity < end)
    inside = polarity[is_inside]
    clipped_polarity = np.concatenate([[begin], inside, [end]])
    clipped_similarity = np.interp(clipped_polarity, polarity, similarity)
    return np.stack([clipped_polarity, clipped_similarity], axis=1)
