"""Values of parameters as numbers, and drawn at random."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from raysweep.search.conditional_space import make_conditional_space
from raysweep.search.encoding import axis_of
from support.landscape import MIXED as SPACE


def test_parameters_are_seen_by_what_they_are() -> None:
    seen = {parameter.name: parameter.axis for parameter in make_conditional_space(SPACE).free}
    assert list(seen) == [
        "loss", "loss=a.margin", "loss=b.scale", "learning_rate", "freezing", "batch_size", "warmup_fraction"
    ]  # fmt: skip
    assert [name for name, axis in seen.items() if axis.is_categorical] == ["loss"]
    assert seen["learning_rate"].code(10**-4.5) == pytest.approx(0.5)
    assert seen["loss=a.margin"].absent == 0.5  # in the middle
    assert seen["loss=b.scale"].code(14) == pytest.approx(0.2)
    depths = [seen["freezing"].code(level) for level in ("none", "emb+B0", "emb+B0-2", "emb+B0-10")]
    assert depths == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [seen["batch_size"].code(size) for size in (32, 64, 128)] == pytest.approx([0, 0.5, 1])
    assert seen["warmup_fraction"].code(0.1) == pytest.approx(0.5)


numbers = st.one_of(
    st.builds(lambda low, width: FloatDistribution(low, low + width), st.floats(-1e3, 1e3), st.floats(0, 1e3)),
    st.builds(lambda low, ratio: FloatDistribution(low, low * ratio, log=True), st.floats(1e-8, 1e3), st.floats(1, 1e6)),
    st.builds(lambda low, n, step: FloatDistribution(low, low + n * step, step=step), st.integers(-9, 9), st.integers(0, 9), st.just(0.25)),
    st.builds(lambda low, n, step: IntDistribution(low, low + n * step, step=step), st.integers(-9, 9), st.integers(0, 9), st.integers(1, 7)),
    st.builds(lambda low, n: IntDistribution(low, low + n, log=True), st.integers(1, 99), st.integers(0, 999)),
)  # fmt: skip
choices = st.lists(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=3)), min_size=1, unique=True
)
distributions = st.one_of(numbers, choices.map(CategoricalDistribution))


@given(distributions, st.integers(0, 1000), st.floats(0.001, 3.0))
def test_what_is_drawn_lies_in_the_distribution(
    distribution: FloatDistribution | IntDistribution | CategoricalDistribution, seed: int, size: float
) -> None:
    """By Optuna's own word."""
    axis, random = axis_of(distribution), np.random.default_rng(seed)
    value = axis.draw(random)
    for drawn in (value, axis.draw_near(value, size, random)):
        assert distribution._contains(distribution.to_internal_repr(drawn))
        assert isinstance(drawn, int) or not isinstance(distribution, IntDistribution)
        assert axis.is_categorical or 0 <= axis.code(drawn) <= 1


def test_numbers_nearby_are_so_far_away_as_asked_for() -> None:
    axis, random = axis_of(FloatDistribution(1e-6, 1e-2, log=True)), np.random.default_rng(0)
    steps = [axis.code(axis.draw_near(1e-4, 0.05, random)) - 0.5 for _ in range(1000)]
    assert np.std(steps) == pytest.approx(0.05, rel=0.1)


def test_at_an_end_numbers_turn_back() -> None:
    axis, random = axis_of(FloatDistribution(0.0, 1.0)), np.random.default_rng(0)
    drawn = [axis.draw_near(1.0, 0.1, random) for _ in range(200)]
    assert max(drawn) < 1 and min(drawn) > 0.5
    assert np.mean(drawn) == pytest.approx(1 - 0.1 * np.sqrt(2 / np.pi), abs=0.02)  # of a half-normal step


@pytest.mark.parametrize(
    "distribution", [IntDistribution(1, 4), IntDistribution(10, 40, step=10), FloatDistribution(0.0, 0.75, step=0.25)]
)
def test_numbers_that_lie_apart_are_drawn_evenly(distribution: FloatDistribution | IntDistribution) -> None:
    axis, random = axis_of(distribution), np.random.default_rng(0)
    _, counts = np.unique([axis.draw(random) for _ in range(4000)], return_counts=True)
    assert len(counts) == 4 and counts.min() > 900


@pytest.mark.parametrize(("value", "expected"), [(-5, 0.0), (30, 1.0), (5, 0.5)])
def test_numbers_beyond_the_range_count_as_its_ends(value: float, expected: float) -> None:
    assert axis_of(FloatDistribution(0, 10)).code(value) == expected


def test_a_choice_that_is_none_of_them_counts_as_absent() -> None:
    axis = axis_of(CategoricalDistribution(("a", "b")))
    assert axis.code("c") == axis.absent == -1


def test_a_parameter_of_a_recorded_table_may_be_called_freezing() -> None:
    from raysweep.config.space import Choices, Space

    for options in (("full", "half"), (True, False), ("none", "whole")):
        (parameter,) = make_conditional_space(Space({"freezing": Choices({key: {} for key in options})})).free
        assert parameter.axis.is_categorical
