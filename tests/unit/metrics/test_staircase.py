"""The area that points add to a front."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.metrics.pareto import hypervolume
from raysweep.metrics.staircase import Staircase

points = st.lists(st.tuples(st.integers(-1, 8), st.integers(-1, 8)), max_size=25)


@settings(deadline=None)
@given(points, points)
def test_added_areas_sum_to_hypervolume(
    first: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    stairs = Staircase((0.0, 0.0), first)
    assert sum(stairs.add(point) for point in more) == hypervolume(
        [*first, *more], (0, 0)
    ) - hypervolume(first, (0, 0))
    assert [stairs.add(point) for point in (*first, *more)] == [0] * len([*first, *more])


@settings(deadline=None)
@given(points, points)
def test_add_all_equals_adding_one_by_one(
    first: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    array = np.array(more, dtype=np.float64).reshape(-1, 2)
    stairs = Staircase((0.0, 0.0), first)
    assert stairs.is_surpassed_by(array).tolist() == [
        stairs.copy().add(point) > 0 for point in more
    ]
    stairs.add_all(array)
    assert stairs.area == hypervolume([*first, *more], (0, 0))
    assert not stairs.is_surpassed_by(array).any()
