"""Configurations as numbers, and drawn at random."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.config.space import Choices, Range, Space
from raysweep.search.encoding import NearbySuggester, RandomSuggester, Scale, axes
from support.landscape import MIXED as SPACE


def test_parameters_are_seen_by_what_they_are() -> None:
    seen = {axis.name: axis for axis in axes(SPACE.parameters, "")}
    assert list(seen) == [
        "loss", "loss=a.margin", "loss=b.scale", "learning_rate", "freezing", "batch_size", "warmup_fraction"
    ]  # fmt: skip
    assert [axis.name for axis in seen.values() if axis.is_categorical] == ["loss"]
    assert seen["learning_rate"].code({"learning_rate": 10**-4.5}) == pytest.approx(0.5)
    assert seen["loss=a.margin"].code({"loss": "b"}) == 0.5  # absent: in the middle
    assert seen["loss=b.scale"].code({"loss=b.scale": 14}) == pytest.approx(0.2)
    depths = [seen["freezing"].code({"freezing": level}) for level in ("none", "emb+B0", "emb+B0-2", "emb+B0-10")]
    assert depths == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [seen["batch_size"].code({"batch_size": size}) for size in (32, 64, 128)] == pytest.approx([0, 0.5, 1])
    assert seen["warmup_fraction"].code({"warmup_fraction": 0.1}) == pytest.approx(0.5)


@settings(deadline=None)
@given(st.integers(0, 1000))
def test_what_is_drawn_lies_in_the_space(seed: int) -> None:
    drawn = RandomSuggester(np.random.default_rng(seed))
    values = SPACE.draw(drawn)
    assert SPACE.suggest_fixed(values).params == drawn.params


@settings(deadline=None)
@given(st.integers(0, 1000), st.floats(0.001, 3.0))
def test_what_is_drawn_nearby_lies_in_the_space(seed: int, size: float) -> None:
    random = np.random.default_rng(seed)
    known = RandomSuggester(random)
    SPACE.draw(known)
    nearby = NearbySuggester(random, known.params, size)
    values = SPACE.draw(nearby)
    assert SPACE.suggest_fixed(values).params == nearby.params


@given(st.integers(0, 1000))
def test_what_is_given_is_never_changed(seed: int) -> None:
    random = np.random.default_rng(seed)
    known, wanted = RandomSuggester(random), RandomSuggester(random)
    SPACE.draw(known)
    SPACE.draw(wanted)
    nearby = NearbySuggester(random, known.params, 0.3, wanted.params)
    SPACE.draw(nearby)
    assert nearby.params == wanted.params


def test_numbers_nearby_are_so_far_away_as_asked_for() -> None:
    """Of eight numbers two are changed on average, by steps of the given size on their scale."""
    space = Space({f"x{axis}": Range(1e-6, 1e-2, log=True, integer=False) for axis in range(8)})
    scale, random = Scale(1e-6, 1e-2, log=True), np.random.default_rng(0)
    known = dict.fromkeys(space.parameters, 1e-4)
    steps = []
    for _ in range(500):
        nearby = NearbySuggester(random, known, 0.05)
        steps += [scale(value) - 0.5 for value in space.draw(nearby).values()]
    moved = [step for step in steps if step]
    assert len(moved) / len(steps) == pytest.approx(2 / 8, rel=0.1)
    assert np.std(moved) == pytest.approx(0.05, rel=0.1)


def test_at_an_end_numbers_turn_back() -> None:
    space = Space({"x": Range(0.0, 1.0, log=False, integer=False)})
    random = np.random.default_rng(0)
    drawn = [space.draw(NearbySuggester(random, {"x": 1.0}, 0.1))["x"] for _ in range(200)]
    assert max(drawn) < 1 and min(drawn) > 0.5
    assert np.mean(drawn) == pytest.approx(1 - 0.1 * np.sqrt(2 / np.pi), abs=0.02)  # of a half-normal step


def test_whole_numbers_are_drawn_evenly() -> None:
    drawn = RandomSuggester(np.random.default_rng(0))
    counts = np.bincount([drawn.suggest_int("x", 1, 4) for _ in range(4000)])
    assert counts[0] == 0 and len(counts) == 5 and counts[1:].min() > 900


def test_a_parameter_of_a_recorded_table_may_be_called_freezing() -> None:
    for options in (("full", "half"), (True, False), ("none", "whole")):
        (axis,) = axes({"freezing": Choices({key: {} for key in options})}, "")
        assert axis.is_categorical
