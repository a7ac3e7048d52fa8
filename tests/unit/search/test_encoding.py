"""Codes of parameter values, and random values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from raysweep.search.conditional_space import make_conditional_space
from raysweep.search.encoding import axis_of
from support.landscape import MIXED as SPACE


def test_codes_of_each_kind_of_parameter() -> None:
    axes = {parameter.name: parameter.axis for parameter in make_conditional_space(SPACE).free}
    assert list(axes) == [
        "loss", "loss=a.margin", "loss=b.scale", "learning_rate", "freezing", "batch_size", "warmup_fraction"
    ]  # fmt: skip
    assert [name for name, axis in axes.items() if axis.is_categorical] == ["loss"]
    assert axes["learning_rate"].code(10**-4.5) == pytest.approx(0.5)
    assert axes["loss=a.margin"].absent == 0.5  # in the middle
    assert axes["loss=b.scale"].code(14) == pytest.approx(0.2)
    depths = [axes["freezing"].code(level) for level in ("none", "emb+B0", "emb+B0-2", "emb+B0-10")]
    assert depths == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [axes["batch_size"].code(size) for size in (32, 64, 128)] == pytest.approx([0, 0.5, 1])
    assert axes["warmup_fraction"].code(0.1) == pytest.approx(0.5)


numbers = st.one_of(
    st.builds(lambda low, width: FloatDistribution(low, low + width), st.floats(-1e3, 1e3), st.floats(0, 1e3)),
    st.builds(lambda low, ratio: FloatDistribution(low, low * ratio, log=True), st.floats(1e-8, 1e3), st.floats(1, 1e6)),
    st.builds(lambda low, n, step: FloatDistribution(low, low + n * step, step=step), st.integers(-9, 9), st.integers(0, 9), st.just(0.25)),
    st.builds(lambda low, n, step: IntDistribution(low, low + n * step, step=step), st.integers(-9, 9), st.integers(0, 9), st.integers(1, 7)),
    st.builds(lambda low, n: IntDistribution(low, low + n, log=True), st.integers(1, 99), st.integers(0, 999)),
)  # fmt: skip
choices = st.lists(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=3)),
    min_size=1,
    unique=True,
)
distributions = st.one_of(numbers, choices.map(CategoricalDistribution))


@given(distributions, st.integers(0, 1000), st.floats(0.001, 3.0))
def test_samples_are_within_the_distribution(
    distribution: FloatDistribution | IntDistribution | CategoricalDistribution,
    seed: int,
    size: float,
) -> None:
    """Optuna decides whether a distribution contains a value."""
    axis, random = axis_of(distribution), np.random.default_rng(seed)
    sample = axis.draw(random)
    for value in (sample, axis.draw_near(sample, size, random)):
        assert distribution._contains(distribution.to_internal_repr(value))
        assert isinstance(value, int) or not isinstance(distribution, IntDistribution)
        assert axis.is_categorical or 0 <= axis.code(value) <= 1


def test_nearby_numbers_deviate_by_the_step_size() -> None:
    axis, random = axis_of(FloatDistribution(1e-6, 1e-2, log=True)), np.random.default_rng(0)
    steps = [axis.code(axis.draw_near(1e-4, 0.05, random)) - 0.5 for _ in range(1000)]
    assert np.std(steps) == pytest.approx(0.05, rel=0.1)


def test_nearby_numbers_are_reflected_at_the_ends() -> None:
    axis, random = axis_of(FloatDistribution(0.0, 1.0)), np.random.default_rng(0)
    values = [axis.draw_near(1.0, 0.1, random) for _ in range(200)]
    assert max(values) < 1 and min(values) > 0.5
    assert np.mean(values) == pytest.approx(
        1 - 0.1 * np.sqrt(2 / np.pi), abs=0.02
    )  # of a half-normal step


@pytest.mark.parametrize(
    "distribution",
    [
        IntDistribution(1, 4),
        IntDistribution(10, 40, step=10),
        FloatDistribution(0.0, 0.75, step=0.25),
    ],
)
def test_discrete_numbers_are_sampled_evenly(
    distribution: FloatDistribution | IntDistribution,
) -> None:
    axis, random = axis_of(distribution), np.random.default_rng(0)
    _, counts = np.unique([axis.draw(random) for _ in range(4000)], return_counts=True)
    assert len(counts) == 4 and counts.min() > 900


@pytest.mark.parametrize(
    ("value", "position", "clipped"), [(-5, -0.5, 0), (30, 3.0, 10), (5, 0.5, 5)]
)
def test_numbers_of_an_earlier_range_keep_their_position(
    value: float, position: float, clipped: float
) -> None:
    axis = axis_of(FloatDistribution(0, 10))
    assert axis.code(value) == position
    assert axis.clip(value) == clipped
    assert axis_of(FloatDistribution(1, 10, log=True)).code(100) == pytest.approx(2)
    assert axis_of(FloatDistribution(1, 10, log=True)).code(-1) == 0


def test_unknown_choice_counts_as_absent() -> None:
    axis = axis_of(CategoricalDistribution(("a", "b")))
    assert axis.code("c") == axis.absent == -1


def test_parameter_named_freezing_may_have_any_choices() -> None:
    from raysweep.config.space import Choices, Space

    for options in (("full", "half"), (True, False), ("none", "whole")):
        (parameter,) = make_conditional_space(
            Space({"freezing": Choices({key: {} for key in options})})
        ).free
        assert parameter.axis.is_categorical
