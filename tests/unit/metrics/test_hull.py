"""The concave hull against SciPy, and areas against a grid and Optuna's hypervolume."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna._hypervolume import compute_hypervolume
from scipy.spatial import ConvexHull

from raysweep.metrics.hull import concave_hull, hull_area
from raysweep.metrics.pareto import hypervolume, non_dominated

# Few distinct values, so that ties, duplicates and points on one line are common.
POINTS = st.lists(st.tuples(st.integers(-3, 9), st.integers(-3, 9)), max_size=25)
Pairs = list[tuple[int, int]]


def area_by_scipy(points: Pairs) -> float:
    """Return the area under the hull of the points and their projections on both axes."""
    above = np.array([point for point in points if min(point) > 0])
    if not len(above):
        return 0.0
    projections = np.concatenate([above * [1, 0], above * [0, 1], [[0, 0]]])
    return float(ConvexHull(np.concatenate([above, projections])).volume)


@settings(max_examples=80)
@given(POINTS.filter(lambda points: all(min(point) > 0 for point in points)))
def test_area_equals_scipy(points: Pairs) -> None:
    assert hull_area(points, (0, 0)) == pytest.approx(area_by_scipy(points))


@settings(max_examples=80)
@given(POINTS)
def test_vertices_are_optimal_for_some_weights(points: Pairs) -> None:
    """Each edge of the hull is optimal for one pair of weights, and no point is above it."""
    vertices = [points[index] for index in concave_hull(points)]
    front = [points[index] for index in non_dominated(points)]
    assert set(vertices) <= set(front)
    assert vertices == sorted(vertices)
    for left, right in itertools.pairwise(vertices):
        weights = left[1] - right[1], right[0] - left[0]  # both ends have the same weighted sum
        weighted_sum = weights[0] * left[0] + weights[1] * left[1]
        assert all(weights[0] * x + weights[1] * y <= weighted_sum for x, y in points)
    if front:
        assert {min(front), max(front)} <= set(vertices)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=8),
    st.tuples(st.integers(-2, 8), st.integers(-2, 8)),
)
def test_area_with_constraints_is_that_of_the_feasible_points_of_chords(
    points: Pairs, minimum: tuple[int, int]
) -> None:
    floor = minimum[0] - 0.013, minimum[1] - 0.013  # between the points of the chords
    steps = np.linspace(0, 1, 201)[:, None]
    chords = [
        np.array(left) + steps * (np.array(right) - left) for left in points for right in points
    ]
    mixed = np.concatenate([np.empty((0, 2)), *chords])
    feasible = mixed[(mixed >= floor).all(axis=1)]
    assert hull_area(points, (0, 0), floor) == pytest.approx(hypervolume(feasible, (0, 0)), abs=0.5)


def test_hull_area_closed_forms() -> None:
    assert hull_area([], (0, 0)) == 0
    assert hull_area([(0.75, 0.5)], (0.5, 0.25)) == 0.0625
    assert hull_area([(1, 2), (2, 1)], (0, 0)) == 3.5
    assert hull_area([(1, 2), (2, 1), (1.2, 1.5)], (0, 0)) == 3.5  # under the chord
    assert hull_area([(1, 2), (2, 1)], (0, 0), minimum=(0, 1.5)) == 2 + 0.5 * 1.75
    assert hull_area([(1, 2), (2, 1)], (0, 0), minimum=(1.5, 0)) == 1.5 * 1.5 + 0.5 * 1.25
    assert hull_area([(1, 2), (2, 1)], (0, 0), minimum=(2.5, 0)) == 0
    assert hull_area([(1, 2), (2, 1)], (0, 0), minimum=(0, 2.5)) == 0
    angle = np.linspace(0, np.pi / 2, 401)
    assert hull_area(np.stack([np.cos(angle), np.sin(angle)], 1), (0, 0)) == pytest.approx(
        np.pi / 4, abs=1e-5
    )


@settings(max_examples=80)
@given(POINTS)
def test_hypervolume_equals_optuna(points: Pairs) -> None:
    above = np.array([point for point in points if min(point) >= 0], dtype=float).reshape(-1, 2)
    assert hypervolume(above, (0, 0)) == pytest.approx(compute_hypervolume(-above, np.zeros(2)))
