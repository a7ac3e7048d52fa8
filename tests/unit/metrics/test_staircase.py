"""What one more point adds to a front."""

from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.metrics.pareto import hypervolume
from raysweep.metrics.staircase import Staircase

points = st.lists(st.tuples(st.integers(-1, 8), st.integers(-1, 8)), max_size=25)


@settings(deadline=None)
@given(points, points)
def test_a_staircase_adds_up_to_the_exact_hypervolume(
    first: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    stairs = Staircase((0.0, 0.0), first)
    assert sum(stairs.add(point) for point in more) == hypervolume([*first, *more], (0, 0)) - hypervolume(first, (0, 0))
    assert [stairs.add(point) for point in (*first, *more)] == [0] * len([*first, *more])
