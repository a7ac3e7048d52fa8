"""Recorded sweeps: what every configuration scored at every rung, for replaying searches without training."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from raysweep.config.space import Choices, Fixed, Parameter, Parameters, Range, Scalar, Space
from raysweep.errors import InputError
from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import Objective, Pair
from raysweep.metrics.pareto import hypervolume
from raysweep.search.encoding import Scale

Values = Mapping[str, Scalar]

# Numbers are choices where they have no more different values than this, each twice or more on average; otherwise a range.
MAX_CHOICES = 16

LOG_RATIO = 10.0  # a range whose ends differ by this factor is searched in logarithms


@dataclass(frozen=True)
class RecordedRung:
    budget: int  # examples seen, or whatever the table counts
    seconds: float  # since the trial began
    points: tuple[Pair, ...]


@dataclass(frozen=True)
class RecordedTrial:
    values: Mapping[str, Scalar]
    rungs: tuple[RecordedRung, ...]  # by rising budget


@dataclass(frozen=True)
class RecordedSweep:
    """What every configuration scored at every rung.

    ``reference_point`` is where hypervolumes begin: P of the reference encoder and half its S, or the worst scores
    recorded. ``reference`` are the reference encoder's own scores, where the table has them. The parameters in ``ranges``
    are searched as ranges of numbers, however few of their values were recorded. Of those in ``nullable`` null is a value:
    a trial without one has it, unless another parameter decides which trials have one.
    """

    trials: tuple[RecordedTrial, ...]
    reference_point: Pair
    reference: Pair | None = None
    ranges: frozenset[str] = frozenset()
    nullable: frozenset[str] = frozenset()

    @cached_property
    def area(self) -> float:
        """The hypervolume of everything recorded."""
        points = [point for trial in self.trials for rung in trial.rungs for point in rung.points]
        return hypervolume(points, self.reference_point)

    @cached_property
    def space(self) -> Space:
        """The space that the recorded configurations come from, as far as they tell."""
        rows = [dict(trial.values) for trial in self.trials]
        return Space(_parameters(_with_nulls(rows, self.nullable), self.ranges))

    @property
    def num_rungs(self) -> int:
        return max(len(trial.rungs) for trial in self.trials)

    @property
    def whole_budget(self) -> int:
        """What it cost to run every trial to its last recorded rung."""
        return sum(trial.rungs[-1].budget for trial in self.trials)

    @property
    def first_budget(self) -> int:
        """Of the earliest rung of any trial."""
        return min(trial.rungs[0].budget for trial in self.trials)

    def objective(self) -> Objective:
        """P and S in equal parts."""
        return Objective(0.5, self.reference_point)


class FreeTrials:
    """The recorded trials that no proposal stands for yet. A proposal stands for the nearest of them.

    Distances are sums over parameters: of numbers the difference (in logarithms where the range is wide), of all else 0 or
    1, either over its mean between two of the recorded configurations, so that no parameter outweighs another by its kind.
    A parameter that only one of the two has counts as the greatest difference.
    """

    def __init__(self, table: RecordedSweep) -> None:
        self._is_free = np.ones(len(table.trials), dtype=bool)
        names = {name for trial in table.trials for name in trial.values}
        self._columns: dict[str, _Column] = {}
        for name in sorted(names):
            self._columns[name] = _column([trial.values.get(name) for trial in table.trials])

    def take_nearest(self, values: Mapping[str, Any]) -> int:
        """The index of the recorded trial that a proposal stands for; it is free no more. IndexError if none is free."""
        distances = self._distances(values)
        distances[~self._is_free] = np.inf
        index = int(np.argmin(distances))
        if not self._is_free[index]:
            raise IndexError("every recorded configuration was taken")
        self._is_free[index] = False
        return index

    def _distances(self, values: Mapping[str, Any]) -> Float64Array:
        """Of the proposal from each recorded trial, (trials,)."""
        distances = np.zeros(len(self._is_free))
        for name, column in self._columns.items():
            distances += column.distances(values.get(name))
        return distances


@dataclass(frozen=True)
class _NumberColumn:
    """A parameter of numbers. ``places``, shape (trials,): where they lie within their range; nan without a value."""

    scale: Scale
    places: Float64Array
    weight: float

    def distances(self, value: Any) -> Float64Array:
        if value is None:
            return self.weight * ~np.isnan(self.places)
        return self.weight * np.nan_to_num(np.abs(self.places - self.scale(value)), nan=1.0)


@dataclass(frozen=True)
class _ChoiceColumn:
    """A parameter of words. ``values``: shape (trials,), of objects; None without a value."""

    values: npt.NDArray[np.object_]
    weight: float

    def distances(self, value: Any) -> Float64Array:
        distances: Float64Array = self.weight * (self.values != value)
        return distances


_Column = _NumberColumn | _ChoiceColumn


def _column(values: Sequence[Scalar]) -> _Column:
    """One parameter of all recorded trials, None where a trial has no value of it."""
    given = [value for value in values if value is not None]
    scale = _scale(given)
    if scale is None:
        return _ChoiceColumn(np.array(values, dtype=object), _weight(_mean_unlikeness(given)))
    places = np.array([np.nan if value is None else scale(value) for value in values])
    mean_difference = _mean_difference([scale(value) for value in given])
    return _NumberColumn(scale, places, _weight(mean_difference))


def _weight(mean_distance: float) -> float:
    """What makes the mean distance 1; where all configurations are alike it is 0, and any weight will do."""
    return 1 / (mean_distance or 1.0)


def _mean_difference(numbers: Sequence[float]) -> float:
    """Between two of them, over all pairs, each with itself included."""
    count = len(numbers)
    return float(2 * ((2 * np.arange(count) - count + 1) * np.sort(numbers)).sum() / count**2)


def _mean_unlikeness(values: Sequence[Any]) -> float:
    """The chance that two of them, drawn with replacement, are unlike."""
    return 1 - sum((number / len(values)) ** 2 for number in Counter(values).values())


def _scale(values: Sequence[Any]) -> Scale | None:
    """The range of these values, where they are numbers; None of words, of nulls, and of nothing."""
    if any(isinstance(value, bool | str | None) for value in values) or not values:
        return None
    low, high = float(min(values)), float(max(values))
    return Scale(low, high, low > 0 and high / low >= LOG_RATIO)


def _with_nulls(rows: Sequence[Values], nullable: Set[str]) -> list[Values]:
    """Return the configurations with null for what they lack, if null is a value of it and no other value decides it."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lacking = [name for name in names if any(name not in row for row in rows)]
    everywhere = [name for name in names if name not in lacking]
    parents = [name for name in everywhere if isinstance(_parameter([row[name] for row in rows], False), Choices)]
    undecided = [name for name in lacking if not any(_decides(rows, parent, name) for parent in parents)]
    return [{**{name: None for name in undecided if name in nullable}, **row} for row in rows]


def _parameters(rows: Sequence[Values], ranges: Set[str]) -> Parameters:
    """The parameters of these configurations; one that only some have stands under the choice that decides it."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    everywhere = [name for name in names if all(name in row for row in rows)]
    found: dict[str, Parameter] = {name: _parameter([row[name] for row in rows], name in ranges) for name in everywhere}
    waiting = [name for name in names if name not in found]
    fewest_values_first = sorted(everywhere, key=lambda name: len({row[name] for row in rows}))
    for parent in fewest_values_first:
        parameter = found[parent]
        if not isinstance(parameter, Choices):
            continue
        children = [name for name in waiting if _decides(rows, parent, name)]
        if children:
            below = {option: _below(rows, parent, option, children) for option in parameter.options}
            found[parent] = Choices({option: _parameters(within, ranges) for option, within in below.items()})
            waiting = [name for name in waiting if name not in children]
    if waiting:
        raise InputError(
            f"column {waiting[0]!r} is empty in some rows, and no other column's value decides in which; fill it or drop it"
        )
    return found


def _decides(rows: Iterable[Values], parent: str, name: str) -> bool:
    """Whether the parent's value says if a configuration has the parameter ``name``."""
    presence: dict[Scalar, set[bool]] = {}
    for row in rows:
        presence.setdefault(row[parent], set()).add(name in row)
    return all(len(seen) == 1 for seen in presence.values())


def _below(rows: Iterable[Values], parent: str, option: Scalar, children: Sequence[str]) -> list[Values]:
    """What the configurations whose parent has this value say of ``children``."""
    chosen = [row for row in rows if row[parent] == option]
    return [{name: row[name] for name in children if name in row} for row in chosen]


def _parameter(values: Sequence[Scalar], is_range: bool) -> Parameter:
    different = sorted(set(values), key=_numbers_first)
    if len(different) == 1:
        return Fixed(different[0])
    scale = _scale(different)
    max_choices = min(MAX_CHOICES, len(values) // 2)
    are_few = len(different) <= max_choices
    if scale is None or (are_few and not is_range):
        return Choices({value: {} for value in different})
    is_integer = all(isinstance(value, int) for value in different)
    return Range(scale.low, scale.high, scale.log, is_integer)


def _numbers_first(value: Scalar) -> tuple[bool, bool, Scalar]:
    """Return a key that sorts nulls first, then numbers, then words."""
    return value is not None, isinstance(value, str), 0 if value is None else value
