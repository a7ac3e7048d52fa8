"""The concave hull of a front: the scores that its points reach if queries are divided among them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.pareto import as_points, non_dominated

NO_LEAST = (-np.inf, -np.inf)


def concave_hull(points: ArrayLike) -> NDArray[np.int64]:
    """Return the indices, by rising P, of the vertices of the smallest concave curve above the front of points (n, 2).

    A retrieval that uses one point's neighbors for some queries and another's for the rest is on the chord between the
    two. Each oracle point maximizes ``S + bonus * P``, so no encoder's point is above the tangents at the oracle
    points: except for the gaps between bonuses, the hull is the limit. Andrew's monotone chain (1979), O(n log n).
    """
    array = as_points(points)
    front = np.array(non_dominated(array), dtype=np.int64)
    by_rising_polarity = front[np.argsort(array[front, 0])]
    vertices: list[int] = []
    for index in by_rising_polarity.tolist():
        while len(vertices) > 1 and not _turns_right(array[vertices[-2]], array[vertices[-1]], array[index]):
            vertices.pop()
        vertices.append(index)
    return np.array(vertices, dtype=np.int64)


def _turns_right(first: Float64Array, middle: Float64Array, last: Float64Array) -> bool:
    """Return whether the middle point is above the chord between the others."""
    chord, step = last - first, middle - first
    return bool(chord[0] * step[1] > chord[1] * step[0])


def hull_area(points: ArrayLike, reference: Sequence[float], least: Sequence[float] = NO_LEAST) -> float:
    """Return the exact area that the concave hull of the points (n, 2) dominates above ``reference`` (2,).

    Only the part of the hull with at least ``least`` (2,) in P and S counts, which is the part that satisfies the
    constraints.
    """
    array = as_points(points)
    hull = array[concave_hull(array)]
    begin = np.asarray(reference, dtype=np.float64)
    floor = np.maximum(begin, least)
    corners = _reaching(hull, floor) - begin
    if not len(corners):
        return 0.0
    polarity, similarity = corners[:, 0], corners[:, 1]
    widths = np.diff(polarity)
    heights = (similarity[1:] + similarity[:-1]) / 2
    return float(polarity[0] * similarity[0] + np.sum(widths * heights))


def _reaching(hull: Float64Array, floor: Float64Array) -> Float64Array:
    """Return the part of a hull (n, 2), by rising P, that is at least ``floor`` (2,), with vertices at the cuts."""
    if not len(hull):
        return hull
    polarity, similarity = hull[:, 0], hull[:, 1]
    begin = max(floor[0], polarity[0])
    end = polarity[-1]
    if similarity[-1] < floor[1]:  # np.interp needs ascending coordinates, and S falls with P
        end = np.interp(floor[1], similarity[::-1], polarity[::-1])
    if begin > end or floor[1] > similarity[0]:
        return np.empty((0, 2))
    inside = (polarity > begin) & (polarity < end)
    places = np.concatenate([[begin], polarity[inside], [end]])
    return np.stack([places, np.interp(places, polarity, similarity)], axis=1)
