"""Recorded sweeps: what every configuration scored at every rung, for replaying searches without training."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from raysweep.config.space import Choices, Fixed, Parameter, Parameters, Range, Scalar, Space
from raysweep.errors import InputError
from raysweep.metrics.objective import Objective, Pair
from raysweep.metrics.pareto import hypervolume
from raysweep.search.encoding import Scale

MAX_CHOICES = 16  # numbers of no more different values, that come twice or more, are choices; otherwise a range


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
    """A recorded sweep.

    ``reference_point`` is where hypervolumes begin: P of R and half its S, or the worst scores recorded.

    ``reference`` are R's own scores, where the table has them.
    """

    trials: tuple[RecordedTrial, ...]
    reference_point: Pair
    reference: Pair | None = None

    @cached_property
    def area(self) -> float:
        """The hypervolume of everything recorded."""
        return hypervolume([p for t in self.trials for r in t.rungs for p in r.points], self.reference_point)

    @cached_property
    def space(self) -> Space:
        """The space that the recorded configurations come from, as far as they tell."""
        return Space(_parameters([dict(trial.values) for trial in self.trials]))

    @property
    def num_rungs(self) -> int:
        return max(len(trial.rungs) for trial in self.trials)

    @property
    def first_budget(self) -> int:
        return min(trial.rungs[0].budget for trial in self.trials)

    def objective(self) -> Objective:
        return Objective(0.5, self.reference_point)


class Positions:
    """Which recorded configuration a proposal stands for: the nearest that no proposal has stood for yet.

    Distances are sums over parameters: of numbers the difference (in logarithms where the range is wide), of all else 0 or
    1, either over its mean between two of the recorded configurations, so that no parameter outweighs another by its kind.
    A parameter that only one of the two has counts as the greatest difference.
    """

    def __init__(self, table: RecordedSweep) -> None:
        self._free = np.ones(len(table.trials), dtype=bool)
        self._columns: dict[str, tuple[Scale | None, Any, float]] = {}
        for name in sorted({name for trial in table.trials for name in trial.values}):
            values = [trial.values.get(name) for trial in table.trials]
            scale = _scale([value for value in values if value is not None])
            places = [None if value is None else scale(value) if scale else value for value in values]
            there = [place for place in places if place is not None]
            weight = 1 / ((_mean_difference(there) if scale else _mean_unlikeness(there)) or 1.0)
            self._columns[name] = scale, np.array(places, dtype=np.float64 if scale else object), weight

    def take(self, values: Mapping[str, Any]) -> int:
        """The index of the recorded trial that a proposal stands for; it is free no more."""
        distances = np.zeros(len(self._free))
        for name, (scale, recorded, weight) in self._columns.items():
            value = values.get(name)
            if scale is None:
                distances += weight * (recorded != value)
            elif value is None:
                distances += weight * ~np.isnan(recorded)
            else:
                distances += weight * np.nan_to_num(np.abs(recorded - scale(value)), nan=1.0)
        distances[~self._free] = np.inf
        index = int(np.argmin(distances))
        if not self._free[index]:
            raise IndexError("every recorded configuration was taken")
        self._free[index] = False
        return index


def _mean_difference(numbers: Sequence[Any]) -> float:
    """Between any two of them, each with itself included."""
    count = len(numbers)
    return float(2 * ((2 * np.arange(count) - count + 1) * np.sort(numbers)).sum() / count**2)


def _mean_unlikeness(values: Sequence[Any]) -> float:
    """The chance that two of them, drawn with replacement, are unlike."""
    return 1 - sum((number / len(values)) ** 2 for number in Counter(values).values())


def _scale(values: Sequence[Any]) -> Scale | None:
    """Of these values, where they are numbers."""
    if any(isinstance(value, bool | str) for value in values) or not values:
        return None
    low, high = float(min(values)), float(max(values))
    return Scale(low, high, low > 0 and high / low >= LOG_RATIO)


def _parameters(rows: list[dict[str, Scalar]]) -> Parameters:
    """The parameters of these configurations; one that only some have stands under the choice that decides it."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    everywhere = [name for name in names if all(name in row for row in rows)]
    found: dict[str, Parameter] = {name: _parameter([row[name] for row in rows]) for name in everywhere}
    waiting = [name for name in names if name not in found]
    for parent in sorted(everywhere, key=lambda name: len({row[name] for row in rows})):
        parameter = found[parent]
        under = [name for name in waiting if _decided(rows, parent, name)]
        if not under or not isinstance(parameter, Choices):
            continue
        options = {}
        for option in parameter.options:
            chosen = [{n: row[n] for n in under if n in row} for row in rows if row[parent] == option]
            options[option] = _parameters(chosen)
        found[parent] = Choices(options)
        waiting = [name for name in waiting if name not in under]
    if waiting:
        raise InputError(
            f"column {waiting[0]!r} is empty in some rows, and no other column's value decides in which; fill it or drop it"
        )
    return found


def _decided(rows: list[dict[str, Scalar]], parent: str, name: str) -> bool:
    present: dict[Scalar, set[bool]] = {}
    for row in rows:
        present.setdefault(row[parent], set()).add(name in row)
    return all(len(seen) == 1 for seen in present.values())


def _parameter(values: list[Scalar]) -> Parameter:
    different = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    if len(different) == 1:
        return Fixed(different[0])
    scale = _scale(different)
    if scale is None or len(different) <= min(MAX_CHOICES, len(values) // 2):
        return Choices({value: {} for value in different})
    integer = all(isinstance(value, int) for value in different)
    return Range(scale.low, scale.high, scale.log, integer)
