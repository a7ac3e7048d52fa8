"""What a resumed sweep may change about its space."""

from pathlib import Path

import pytest

from raysweep.config.space import Choices, Fixed, Parameter, Range, Space
from raysweep.errors import InputError
from raysweep.sweep.resume import check_space

NUMBERS = Choices({0.1: {}, 0.5: {}})
RANGE = Range(0.1, 1.0, True, False)
LOSSES = Choices({"a": {"margin": RANGE}, "b": {}})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (NUMBERS, Choices({0.1: {}, 0.5: {}, 0.9: {}})),
        (NUMBERS, RANGE),
        (RANGE, Range(0.01, 2.0, False, False)),
        (Fixed(0.1), NUMBERS),
        (Fixed(0.1), RANGE),
        (LOSSES, Choices({**LOSSES.options, "c": {}})),
    ],
)
def test_a_space_may_be_added_to(before: Parameter, after: Parameter) -> None:
    check_space(Space({"name": before}), Space({"name": after, "other": Fixed(1)}), Path("run"))


@pytest.mark.parametrize(
    ("before", "after", "missing"),
    [
        (NUMBERS, None, "name is gone"),
        (NUMBERS, Choices({0.1: {}}), "name lacks 0.5"),
        (NUMBERS, Range(0.2, 1.0, True, False), "name lacks 0.1"),
        (NUMBERS, Fixed(0.1), "name was a choice"),
        (RANGE, Range(0.2, 1.0, True, False), "name was 0.1 to 1 and is 0.2 to 1"),
        (RANGE, NUMBERS, "name was a range"),
        (Fixed(0.2), NUMBERS, "name lacks 0.2"),
        (Fixed("x"), RANGE, "name lacks x"),
        (LOSSES, Choices({"a": {}}), "name=a.margin is gone; name lacks b"),
    ],
)
def test_what_a_space_lacks_is_named(before: Parameter, after: Parameter | None, missing: str) -> None:
    parameters = {} if after is None else {"name": after}
    with pytest.raises(InputError, match=f"its space may only be added to, but: {missing}$"):
        check_space(Space({"name": before}), Space(parameters), Path("run"))
