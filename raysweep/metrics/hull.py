"""The concave hull of a front: what its points reach when queries are shared out between them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.pareto import as_points, non_dominated

NO_LEAST = (-np.inf, -np.inf)


def concave_hull(points: ArrayLike) -> NDArray[np.int64]:
    """Indices of the vertices, by rising P, of the least concave curve above the front of the points (n, 2).

    A retrieval that takes one point's neighbours for some queries and another's for the rest lies on the chord between the
    two. Of the oracle's points, each greatest in ``S + bonus * P``, no encoder's point lies above the tangents, so that
    the hull is the limit but for the gaps between the bonuses. Andrew's monotone chain (1979), O(n log n).
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
    """Whether the middle point lies above the chord between the others."""
    chord, step = last - first, middle - first
    return bool(chord[0] * step[1] > chord[1] * step[0])


def hull_area(points: ArrayLike, reference: Sequence[float], least: Sequence[float] = NO_LEAST) -> float:
    """Exact area that the concave hull of the points (n, 2) dominates above ``reference`` (2,).

    Only the part of the hull that reaches ``least`` (2,), of P and of S, counts: what constraints leave of it.
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
    """The part of a hull (n, 2), by rising P, that is at least ``floor`` (2,) in both, with vertices where it is cut."""
    if not len(hull):
        return hull
    polarity, similarity = hull[:, 0], hull[:, 1]
    begin = max(floor[0], polarity[0])
    end = polarity[-1]
    if similarity[-1] < floor[1]:  # interp wants its places rising, and S falls with P
        end = np.interp(floor[1], similarity[::-1], polarity[::-1])
    if begin > end or floor[1] > similarity[0]:
        return np.empty((0, 2))
    inside = (polarity > begin) & (polarity < end)
    places = np.concatenate([[begin], polarity[inside], [end]])
    return np.stack([places, np.interp(places, polarity, similarity)], axis=1)
