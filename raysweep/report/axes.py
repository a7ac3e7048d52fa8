"""A sweep's parameters as axes that a model can learn from: each configuration has a place on each."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

MAX_LEVELS = (
    16  # numbers are levels where they have no more values than this, each twice or more on average; else a range
)

LOG_RATIO = 10.0  # a range whose ends differ by this factor is seen in logarithms

NUM_CELLS = 64  # of a range

ABSENT = -1.0  # the place of None on a range


@dataclass(frozen=True)
class Axis:
    """One parameter: the ``places`` (n,) of ``n`` configurations, and the ``cells`` (G,) at which effects are read.

    Cells are places too, and rise. ``weights`` (G,) say how much of the axis each stands for; they sum to 1.
    """

    name: str
    places: FloatArray
    cells: FloatArray
    weights: FloatArray
    is_levels: bool  # else a range


def axes_of(configs: Sequence[Mapping[str, Any]], names: Sequence[str], seed: int = 0) -> list[Axis]:
    """The axes of those parameters that vary, by name.

    Words, and numbers of few values, are levels of equal weight; other numbers a range. A parameter that exists only under
    some values of another one (a margin, of some losses) makes no difference where it does not exist: there its places are
    drawn from the values that it has elsewhere, and what those values of the other parameter differ in is that one's alone.
    A parameter that may be None by itself has that as a level, or as a place of its own below the range.
    """
    random = np.random.default_rng(seed)
    columns = {name: [config.get(name) for config in configs] for name in names}
    return [
        _axis(name, _without_gaps(values, columns, random)) for name, values in columns.items() if len(set(values)) > 1
    ]


def _without_gaps(
    values: Sequence[Any], columns: Mapping[str, Sequence[Any]], random: np.random.Generator
) -> Sequence[Any]:
    """The values, with random ones of them for None where another parameter decides which configurations have any."""
    present = [value for value in values if value is not None]
    if len(present) == len(values) or not any(_decides(other, values) for other in columns.values()):
        return values
    drawn = random.integers(len(present), size=len(values))
    return [present[i] if value is None else value for i, value in zip(drawn, values, strict=True)]


def _decides(other: Sequence[Any], values: Sequence[Any]) -> bool:
    """Whether all configurations that are alike in another parameter have a value, or all have none."""
    if other is values or not _are_levels(other):
        return False
    has_value: dict[Any, bool] = {}
    return all(
        has_value.setdefault(key, value is not None) == (value is not None)
        for key, value in zip(other, values, strict=True)
    )


def _are_levels(values: Sequence[Any]) -> bool:
    """Whether these are words, or numbers of few values; None among them counts for neither."""
    present = [value for value in values if value is not None]
    if not all(map(_is_number, present)):
        return True
    num_values = len(set(present))
    return num_values == 1 or (num_values <= MAX_LEVELS and 2 * num_values <= len(present))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _axis(name: str, values: Sequence[Any]) -> Axis:
    return _levels(name, values) if _are_levels(values) else _range(name, values)


def _levels(name: str, values: Sequence[Any]) -> Axis:
    """Each value at a whole number: None first, then numbers in their order, then words in that of the alphabet."""
    ordered = sorted(set(values), key=_order)
    place_of = {value: float(place) for place, value in enumerate(ordered)}
    places = np.array([place_of[value] for value in values])
    cells = np.arange(len(ordered), dtype=np.float64)
    weights = np.full(len(ordered), 1 / len(ordered))
    return Axis(name, places, cells, weights, is_levels=True)


def _order(value: Any) -> tuple[bool, bool, float, str]:
    is_number = _is_number(value)
    number = float(value) if is_number else 0.0
    return value is not None, not is_number, number, str(value)


def _range(name: str, values: Sequence[Any]) -> Axis:
    """The least number at 0, the greatest at 1. None is below, and stands for the share of configurations that have it."""
    present = [value for value in values if value is not None]
    low, high = min(present), max(present)
    places = np.array([_place(value, low, high) for value in values])
    present_share = len(present) / len(values)
    cells = (np.arange(NUM_CELLS) + 0.5) / NUM_CELLS
    weights = np.full(NUM_CELLS, present_share / NUM_CELLS)
    if len(present) < len(values):
        cells = np.append(ABSENT, cells)
        weights = np.append(1 - present_share, weights)
    return Axis(name, places, cells, weights, is_levels=False)


def _place(value: float | None, low: float, high: float) -> float:
    if value is None:
        return ABSENT
    if low > 0 and high / low >= LOG_RATIO:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)
