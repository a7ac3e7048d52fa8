"""Fronts against brute force and closed forms."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raysweep.metrics.pareto import dominated_by, hypervolume, knee, layers, non_dominated

# Few distinct values, so that ties and duplicates are common.
POINTS = st.lists(st.tuples(st.integers(-3, 6), st.integers(-3, 6)), max_size=25)


def dominates(a, b):
    return a[0] >= b[0] and a[1] >= b[1] and a != b


@settings(deadline=None, max_examples=200)
@given(POINTS)
def test_non_dominated_equals_pairwise_comparison(points):
    expected = [
        i
        for i, point in enumerate(points)
        if not any(dominates(other, point) for other in points) and point not in points[:i]
    ]
    assert non_dominated(points) == expected


def test_non_dominated_of_many_points():
    angle = np.random.default_rng(0).uniform(0, np.pi / 2, 100_000)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    inside = circle * 0.5
    assert non_dominated(np.concatenate([inside, circle])) == list(range(100_000, 200_000))


@settings(deadline=None, max_examples=200)
@given(POINTS, POINTS)
def test_dominated_by_equals_pairwise_comparison(points, front):
    expected = [any(dominates(other, point) for other in front) for point in points]
    assert dominated_by(points, front).tolist() == expected


@settings(deadline=None, max_examples=200)
@given(POINTS)
def test_hypervolume_counts_the_dominated_unit_squares(points):
    cells = {(x, y) for px, py in points for x in range(px) for y in range(py)}
    assert hypervolume(points, (0, 0)) == len(cells)


@settings(deadline=None, max_examples=50)
@given(POINTS, st.integers(-3, 3), st.integers(-3, 3))
def test_hypervolume_ignores_dominated_points_and_translation(points, dx, dy):
    front = [points[i] for i in non_dominated(points)]
    moved = [(x + dx, y + dy) for x, y in front]
    assert hypervolume(moved, (dx, dy)) == pytest.approx(hypervolume(points, (0, 0)))


def test_hypervolume_closed_forms():
    assert hypervolume([], (0.5, 0.2)) == 0
    assert hypervolume([(0.75, 0.5)], (0.5, 0.25)) == 0.0625
    # on the borders of the reference point
    assert hypervolume([(0.5, 0.9), (0.9, 0.2)], (0.5, 0.2)) == 0
    angle = np.linspace(0, np.pi / 2, 4001)
    assert hypervolume(np.stack([np.cos(angle), np.sin(angle)], 1), (0, 0)) == pytest.approx(
        np.pi / 4, abs=1e-3
    )


def test_knee_is_farthest_from_the_chord():
    front = np.array([(0.63, 0.466), (0.75, 0.465), (0.88, 0.46), (0.97, 0.41), (1.0, 0.30)])
    first, last = front[0], front[-1]
    scaled = (front - [first[0], last[1]]) / [last[0] - first[0], first[1] - last[1]]
    a, b = scaled[0], scaled[-1]
    distances = [
        ((b - a)[0] * (a - p)[1] - (a - p)[0] * (b - a)[1]) / np.linalg.norm(b - a) for p in scaled
    ]
    assert knee(front) == int(np.argmax(np.abs(distances))) == 2
    assert knee(front[[4, 2, 0, 1, 3]]) == 1


@settings(deadline=None, max_examples=50)
@given(POINTS.filter(len), st.sampled_from([0.25, 3.0, 100.0]), st.sampled_from([0.5, 8.0]))
@example([(1, 2)], 0.25, 8.0)
def test_knee_does_not_depend_on_scale(points, x_scale, y_scale):
    front = np.array([points[i] for i in non_dominated(points)]) + 10.0
    assert knee(front * [x_scale, y_scale]) == knee(front)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=25))
def test_knee_equals_exact_arithmetic(points):
    """Compute the distance from the line through the scaled extremes in fractions."""
    front = [points[i] for i in non_dominated(points)]
    scaled = list(
        zip(*(exactly_scaled(values) for values in zip(*front, strict=True)), strict=True)
    )
    (left_x, left_y), (right_x, right_y) = min(scaled), max(scaled)
    along_x, along_y = right_x - left_x, right_y - left_y
    beyond = [along_x * (y - left_y) - along_y * (x - left_x) for x, y in scaled]
    best = max((distance, x * y) for distance, (x, y) in zip(beyond, front, strict=True))
    x, y = front[knee(front)]
    assert (beyond[knee(front)], x * y) == best


def exactly_scaled(values):
    minimum, spread = min(values), max(values) - min(values)
    return [Fraction(value - minimum, spread or 1) for value in values]


def test_knee_of_few_points():
    assert knee([(0.6, 0.4)]) == 0
    assert knee([(0.87, 0.27), (0.80, 0.42)]) == 1  # 0.336 against 0.235
    assert knee([(0.9, 0.1), (0.5, 0.3), (0.1, 0.4)]) == 1
    assert knee([(0.9, 0.1), (0.4, 0.2), (0.1, 0.9)]) == 0  # no point beyond the chord: an extreme
    with pytest.raises(ValueError, match="empty"):
        knee([])


def test_points_must_be_finite_pairs():
    with pytest.raises(ValueError, match="finite"):
        non_dominated([(0.5, float("nan"))])
    with pytest.raises(ValueError, match="shape"):
        hypervolume([(0.5, 0.5, 0.5)], (0, 0))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_layers_equal_repeated_fronts(points: list[tuple[int, int]]) -> None:
    remaining = list(range(len(points)))
    expected = {}
    layer = 0
    while remaining:
        front = [remaining[i] for i in non_dominated([points[i] for i in remaining])]
        expected |= dict.fromkeys(front, layer)
        remaining = [i for i in remaining if i not in front]
        layer += 1
    assert layers(points).tolist() == [expected[i] for i in range(len(points))]
