"""Fronts of many resamples at once, compared with the functions for a single front."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.hull import hull_area
from raysweep.metrics.pareto import hypervolume, knee, non_dominated
from raysweep.metrics.scores import GOALS
from raysweep.uncertainty.areas import FrontArea, Gain, HullArea, Share
from raysweep.uncertainty.many_fronts import hypervolumes, knees, memberships

# Few values, so that ties and duplicates are common; one point alone too.
SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 12), st.just(2))
POINTS = SHAPES.flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(0, 5).map(lambda x: x / 5))
)


@given(POINTS)
def test_members_are_those_of_each_resample(points: Float64Array) -> None:
    for row, is_member in zip(points, memberships(points), strict=True):
        assert np.flatnonzero(is_member).tolist() == non_dominated(row)


@given(POINTS)
def test_knees_are_those_of_each_resample(points: Float64Array) -> None:
    raised = points + 0.3  # ties are broken by a product, which requires positive scores
    for row, index in zip(raised, knees(raised), strict=True):
        front = non_dominated(row)
        assert index == front[knee(row[front])]


@given(POINTS, st.floats(0, 0.7), st.floats(0, 0.7))
def test_hypervolumes_are_those_of_each_resample(
    points: Float64Array, polarity: float, similarity: float
) -> None:
    begins = np.broadcast_to([polarity, similarity], (len(points), 2))
    expected = [hypervolume(row, (polarity, similarity)) for row in points]
    np.testing.assert_allclose(hypervolumes(points, begins), expected, atol=1e-12)


@given(POINTS, st.floats(0.1, 0.7), st.floats(0.1, 0.7), st.floats(0, 0.9))
def test_areas_begin_at_the_reference_of_their_resample(
    points: Float64Array, polarity: float, similarity: float, least: float
) -> None:
    reference = np.broadcast_to([polarity, similarity], (len(points), 1, 2))
    everything = np.concatenate([reference, points], axis=1)
    rows = range(1, everything.shape[1])
    begin = polarity, similarity / 2
    front = np.array([hypervolume(row, begin) for row in points])
    hull = np.array([hull_area(row, begin, (least, 0.0)) for row in points])
    of_front, of_hull = FrontArea(rows, 0, GOALS), HullArea(rows, 0, GOALS, (least, 0.0))
    np.testing.assert_allclose(of_front(everything), front, atol=1e-12)
    np.testing.assert_allclose(of_hull(everything), hull, atol=1e-11)
    np.testing.assert_allclose(
        Share(of_front, of_hull)(everything) * hull, front * (hull > 0), atol=1e-11
    )
    np.testing.assert_allclose(Gain(of_front, of_front)(everything), 0)


def test_oracle_is_its_own_hull() -> None:
    """Concave points in ascending order take a shortcut, which gives the same area as the general computation."""
    bonus = np.linspace(0, 1, 12)
    oracle = np.stack([0.6 + 0.4 * bonus, 0.5 - 0.05 * bonus**2], axis=1)
    repeated = np.concatenate([oracle, oracle[-1:]])  # large bonuses retrieve the same sentences
    points = np.concatenate([[[0.6, 0.5]], repeated])[None]
    expected = hull_area(oracle, (0.6, 0.25))
    assert HullArea(range(1, 14), 0, GOALS)(points) == [expected]
    # descending, so without the shortcut
    assert HullArea(range(13, 0, -1), 0, GOALS)(points) == [expected]
