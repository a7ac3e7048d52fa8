"""Configurations as numbers, and drawn at random."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.config.space import Choices
from raysweep.search.encoding import RandomSuggester, axes
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


def test_whole_numbers_are_drawn_evenly() -> None:
    drawn = RandomSuggester(np.random.default_rng(0))
    counts = np.bincount([drawn.suggest_int("x", 1, 4) for _ in range(4000)])
    assert counts[0] == 0 and len(counts) == 5 and counts[1:].min() > 900


def test_a_parameter_of_a_recorded_table_may_be_called_freezing() -> None:
    for options in (("full", "half"), (True, False), ("none", "whole")):
        (axis,) = axes({"freezing": Choices({key: {} for key in options})}, "")
        assert axis.is_categorical
