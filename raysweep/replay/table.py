"""Recorded sweeps: the scores of every configuration at every rung, for replaying searches without training."""

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

# Numbers with at most this many distinct values, each used at least twice on average, are choices; others are ranges.
MAX_CHOICES = 16

LOG_RATIO = 10.0  # a range whose ends differ by at least this factor is searched on a log scale


@dataclass(frozen=True)
class RecordedRung:
    budget: int  # examples seen, or the table's own unit
    seconds: float  # since the trial started
    points: tuple[Pair, ...]


@dataclass(frozen=True)
class RecordedTrial:
    values: Mapping[str, Scalar]
    rungs: tuple[RecordedRung, ...]  # by ascending budget


@dataclass(frozen=True)
class RecordedSweep:
    """The scores of every configuration at every rung.

    ``reference_point`` is the hypervolume's reference point: P of the reference encoder and half its S, or the worst
    recorded scores. ``reference`` holds the reference encoder's own scores, if the table has them. The parameters in
    ``ranges`` are searched as ranges of numbers even if few of their values were recorded. For the parameters in
    ``nullable``, null is a value: a trial without a value has null, unless another parameter decides which trials have
    one.
    """

    trials: tuple[RecordedTrial, ...]
    reference_point: Pair
    reference: Pair | None = None
    ranges: frozenset[str] = frozenset()
    nullable: frozenset[str] = frozenset()

    @cached_property
    def area(self) -> float:
        """Return the hypervolume of everything recorded."""
        points = [point for trial in self.trials for rung in trial.rungs for point in rung.points]
        return hypervolume(points, self.reference_point)

    @cached_property
    def space(self) -> Space:
        """Return the search space inferred from the recorded configurations."""
        rows = [dict(trial.values) for trial in self.trials]
        return Space(_parameters(_with_nulls(rows, self.nullable), self.ranges))

    @property
    def num_rungs(self) -> int:
        return max(len(trial.rungs) for trial in self.trials)

    @property
    def whole_budget(self) -> int:
        """Return the cost of running every trial to its last recorded rung."""
        return sum(trial.rungs[-1].budget for trial in self.trials)

    @property
    def first_budget(self) -> int:
        """Return the budget of the earliest rung of any trial."""
        return min(trial.rungs[0].budget for trial in self.trials)

    def objective(self) -> Objective:
        """Return the objective that weights P and S equally."""
        return Objective(0.5, self.reference_point)


class FreeTrials:
    """The recorded trials that no proposal has been mapped to yet; each proposal is mapped to the nearest one.

    Distances are sums over parameters: for numbers the difference (of logarithms if the range is wide), otherwise 0 or
    1, divided by the mean over pairs of recorded configurations so that no parameter outweighs another by its kind. A
    parameter that only one of the two has counts as the maximum difference.
    """

    def __init__(self, table: RecordedSweep) -> None:
        self._is_free = np.ones(len(table.trials), dtype=bool)
        names = {name for trial in table.trials for name in trial.values}
        self._columns: dict[str, _Column] = {}
        for name in sorted(names):
            self._columns[name] = _column([trial.values.get(name) for trial in table.trials])

    def take_nearest(self, values: Mapping[str, Any]) -> int:
        """Return the index of the recorded trial nearest to a proposal and mark it as taken.

        Raises:
            IndexError: If no trial is left.
        """
        distances = self._distances(values)
        distances[~self._is_free] = np.inf
        index = int(np.argmin(distances))
        if not self._is_free[index]:
            raise IndexError("every recorded configuration was taken")
        self._is_free[index] = False
        return index

    def _distances(self, values: Mapping[str, Any]) -> Float64Array:
        """Return the distances between the proposal and the recorded trials, (trials,)."""
        distances = np.zeros(len(self._is_free))
        for name, column in self._columns.items():
            distances += column.distances(values.get(name))
        return distances


@dataclass(frozen=True)
class _NumberColumn:
    """A numeric parameter.

    ``places``, shape (trials,), are the positions of the values within their range; nan without a value.
    """

    scale: Scale
    places: Float64Array
    weight: float

    def distances(self, value: Any) -> Float64Array:
        if value is None:
            return self.weight * ~np.isnan(self.places)
        return self.weight * np.nan_to_num(np.abs(self.places - self.scale(value)), nan=1.0)


@dataclass(frozen=True)
class _ChoiceColumn:
    """A categorical parameter.

    ``values`` has shape (trials,) and dtype object; None without a value.
    """

    values: npt.NDArray[np.object_]
    weight: float

    def distances(self, value: Any) -> Float64Array:
        distances: Float64Array = self.weight * (self.values != value)
        return distances


_Column = _NumberColumn | _ChoiceColumn


def _column(values: Sequence[Scalar]) -> _Column:
    """Return the column of one parameter over all recorded trials, given None for trials without a value."""
    given = [value for value in values if value is not None]
    scale = _scale(given)
    if scale is None:
        return _ChoiceColumn(np.array(values, dtype=object), _weight(_mean_unlikeness(given)))
    places = np.array([np.nan if value is None else scale(value) for value in values])
    mean_difference = _mean_difference([scale(value) for value in given])
    return _NumberColumn(scale, places, _weight(mean_difference))


def _weight(mean_distance: float) -> float:
    """Return the factor that makes the mean distance 1, or 1 if all configurations are alike."""
    return 1 / (mean_distance or 1.0)


def _mean_difference(numbers: Sequence[float]) -> float:
    """Return the mean absolute difference over all pairs, including each number with itself."""
    count = len(numbers)
    return float(2 * ((2 * np.arange(count) - count + 1) * np.sort(numbers)).sum() / count**2)


def _mean_unlikeness(values: Sequence[Any]) -> float:
    """Return the probability that two values, drawn with replacement, differ."""
    return 1 - sum((number / len(values)) ** 2 for number in Counter(values).values())


def _scale(values: Sequence[Any]) -> Scale | None:
    """Return the scale of numeric values; None for words, nulls and empty input."""
    if any(isinstance(value, bool | str | None) for value in values) or not values:
        return None
    low, high = float(min(values)), float(max(values))
    return Scale(low, high, low > 0 and high / low >= LOG_RATIO)


def _with_nulls(rows: Sequence[Values], nullable: Set[str]) -> list[Values]:
    """Return the configurations with null for missing values.

    This applies to parameters for which null is a value and whose presence no other value decides.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    lacking = [name for name in names if any(name not in row for row in rows)]
    everywhere = [name for name in names if name not in lacking]
    parents = [name for name in everywhere if isinstance(_parameter([row[name] for row in rows], False), Choices)]
    undecided = [name for name in lacking if not any(_decides(rows, parent, name) for parent in parents)]
    return [{**{name: None for name in undecided if name in nullable}, **row} for row in rows]


def _parameters(rows: Sequence[Values], ranges: Set[str]) -> Parameters:
    """Return the parameters of these configurations.

    A parameter that only some configurations have is nested under the choice that decides it.
    """
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
    """Return whether the parent's value determines if a configuration has the parameter ``name``."""
    presence: dict[Scalar, set[bool]] = {}
    for row in rows:
        presence.setdefault(row[parent], set()).add(name in row)
    return all(len(seen) == 1 for seen in presence.values())


def _below(rows: Iterable[Values], parent: str, option: Scalar, children: Sequence[str]) -> list[Values]:
    """Return the values of ``children`` in the configurations with this value of the parent."""
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
