"""Map a sweep's parameters to the axes of a response surface."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# A numeric parameter becomes a set of levels if it has at most this many distinct values and each
# value is used at least twice on average. Otherwise, it becomes a range.
MAX_LEVELS = 16

LOG_RATIO = 10.0  # a range is logarithmic if its ends differ by at least this factor

NUM_CELLS = 64  # number of cells in a range

SEED = 0  # fixed for reproducible places

ABSENT = -1.0  # the place of None on a range


@dataclass(frozen=True)
class Axis:
    """A parameter's axis, with the ``places`` (n,) of the configurations on it.

    Effects are evaluated at the places in ``cells`` (G,), which are sorted. ``weights`` (G,) are
    the cells' shares of the axis and sum to 1.
    """

    name: str
    places: FloatArray
    cells: FloatArray
    weights: FloatArray
    is_levels: bool  # false for a range


def axes_of(configs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Axis]:
    """Return an axis for each parameter that varies.

    A string parameter, or a numeric one with few distinct values, becomes a set of levels of equal
    weight. Any other parameter becomes a range.

    Some parameters apply only for certain values of another parameter; for example, only some
    losses have a margin. In configurations without such a parameter, its value is sampled from the
    other configurations, so that the whole effect is attributed to the other parameter. If a
    parameter can be None for other reasons, None becomes a level or a place below the range.
    """
    random = np.random.default_rng(SEED)
    columns = {}
    for name in names:
        columns[name] = [config.get(name) for config in configs]
    axes = []
    for name, column in columns.items():
        if len(set(column)) < 2:
            continue
        values = _fill_gaps(column, columns, random)
        axis = _levels(name, values) if _are_levels(values) else _range(name, values)
        axes.append(axis)
    return axes


def _fill_gaps(
    values: Sequence[Any], columns: Mapping[str, Sequence[Any]], random: np.random.Generator
) -> Sequence[Any]:
    """Replace None with sampled values if another parameter determines which values are None."""
    present = [value for value in values if value is not None]
    if len(present) == len(values) or not any(
        _decides(other, values) for other in columns.values()
    ):
        return values
    indexes = random.integers(len(present), size=len(values))
    return [
        present[index] if value is None else value
        for index, value in zip(indexes, values, strict=True)
    ]


def _decides(other: Sequence[Any], values: Sequence[Any]) -> bool:
    """Return whether the levels of ``other`` determine which of the ``values`` are None."""
    if other is values or not _are_levels(other):
        return False
    has_value: dict[Any, bool] = {}
    return all(
        has_value.setdefault(key, value is not None) == (value is not None)
        for key, value in zip(other, values, strict=True)
    )


def _are_levels(values: Sequence[Any]) -> bool:
    """Return whether the values other than None are not all numeric or have few distinct values."""
    present = [value for value in values if value is not None]
    if not all(map(is_number, present)):
        return True
    num_values = len(set(present))
    return num_values == 1 or (num_values <= MAX_LEVELS and 2 * num_values <= len(present))


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _levels(name: str, values: Sequence[Any]) -> Axis:
    """Return an axis that places values at integers in the order None, numbers, strings."""
    ordered = sorted(set(values), key=_sort_key)
    place_of = {value: float(place) for place, value in enumerate(ordered)}
    places = np.array([place_of[value] for value in values])
    cells = np.arange(len(ordered), dtype=np.float64)
    weights = np.full(len(ordered), 1 / len(ordered))
    return Axis(name, places, cells, weights, is_levels=True)


def _sort_key(value: Any) -> tuple[bool, bool, float, str]:
    number = float(value) if is_number(value) else 0.0
    return value is not None, not is_number(value), number, str(value)


def _range(name: str, values: Sequence[Any]) -> Axis:
    """Return an axis that places the minimum at 0 and the maximum at 1.

    None is placed at ABSENT, weighted by the share of configurations with None.
    """
    present = [value for value in values if value is not None]
    low = min(present)
    high = max(present)
    is_logarithmic = low > 0 and high / low >= LOG_RATIO
    places = []
    for value in values:
        if value is None:
            places.append(ABSENT)
        elif is_logarithmic:
            places.append(math.log(value / low) / math.log(high / low))
        else:
            places.append((value - low) / (high - low))
    present_share = len(present) / len(values)
    cells = (np.arange(NUM_CELLS) + 0.5) / NUM_CELLS
    weights = np.full(NUM_CELLS, present_share / NUM_CELLS)
    if present_share < 1:
        cells = np.append(ABSENT, cells)
        weights = np.append(1 - present_share, weights)
    return Axis(name, np.array(places), cells, weights, is_levels=False)
