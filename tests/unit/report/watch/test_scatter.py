"""Scatter plots of characters."""

from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.report.watch.view import LABEL_WIDTH, Layer, scatter

scores = st.floats(0, 1)
pairs = st.lists(st.tuples(scores, scores), min_size=1, max_size=30)


def positions(lines: list[str], sign: str) -> list[tuple[int, int]]:
    """Return the positions of a sign within the axes, as rows from the bottom and columns."""
    body = [line[LABEL_WIDTH + 2 :] for line in lines[1:-2]]
    return [
        (len(body) - 1 - row, column)
        for row, line in enumerate(body)
        for column, character in enumerate(line)
        if character == sign
    ]


@settings(max_examples=150, deadline=None)
@given(pairs, st.integers(10, 100), st.integers(3, 40))
def test_plot_has_requested_size_and_shows_points(
    points: list[tuple[float, float]], width: int, height: int
) -> None:
    lines = scatter([Layer("x", "", points)], width, height)
    assert len(lines) == max(2, height - 3) + 3
    assert all(len(line) <= max(width, LABEL_WIDTH + 10) + 4 for line in lines)
    shown = positions(lines, "x")
    assert 1 <= len(shown) <= len(set(points))
    assert all(0 <= row < max(2, height - 3) for row, _ in shown)


@settings(max_examples=150, deadline=None)
@given(pairs, scores, scores)
def test_better_point_is_not_below_or_left(
    points: list[tuple[float, float]], p: float, s: float
) -> None:
    one = points[0]
    other = max(one[0], p), max(one[1], s)
    lines = scatter(
        [Layer(".", "", points), Layer("a", "", [one]), Layer("b", "", [other])], 60, 16
    )
    ((row, column),) = positions(lines, "b")
    for row_below, column_left in positions(lines, "a"):
        assert row_below <= row and column_left <= column


def test_positions_of_corners() -> None:
    corners = [(0.0, 0.0), (1.0, 1.0), (0.5, 0.5)]
    lines = scatter([Layer("x", "", corners)], width=LABEL_WIDTH + 2 + 21, height=3 + 11)
    assert positions(lines, "x") == [(10, 20), (5, 10), (0, 0)]
    assert lines[1].split()[0] == "104.0" and lines[-1].split() == ["-4.0", "104.0", "S"]


def test_last_layer_is_on_top_and_empty_plot_has_no_lines() -> None:
    lines = scatter([Layer("x", "", [(0.5, 0.5)]), Layer("y", "", [(0.5, 0.5)])], 40, 10)
    assert not positions(lines, "x") and len(positions(lines, "y")) == 1
    assert scatter([], 40, 10) == scatter([Layer("x", "", [])], 40, 10) == []
