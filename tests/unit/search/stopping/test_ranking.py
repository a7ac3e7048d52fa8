"""The order of numbers by changing values, against one that is sorted anew."""

from hypothesis import given
from hypothesis import strategies as st

from raysweep.search.stopping.ranking import Ranking


@given(st.lists(st.tuples(st.integers(0, 6), st.one_of(st.none(), st.sampled_from([-1.0, 0.0, 0.5, 2.0])))))
def test_the_greatest_comes_first_and_of_equal_ones_the_lower_number(steps: list[tuple[int, float | None]]) -> None:
    """A value of None drops the number, which may not be there."""
    ranking, values = Ranking(), dict[int, float]()
    for number, value in steps:
        if value is None:
            ranking.drop(number)
            values.pop(number, None)
        else:
            ranking.put(number, value)
            values[number] = value
        assert list(ranking) == sorted(values, key=lambda each: (-values[each], each))
