"""Recordings of sweeps, on which searches are replayed without training."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from raysweep.config.space import Choices, Fixed, Parameter, Parameters, Range, Scalar, Space
from raysweep.errors import InputError
from raysweep.metrics.objective import Objective
from raysweep.metrics.pareto import hypervolume
from raysweep.metrics.scores import Pair
from raysweep.search.encoding import Scale

Values = Mapping[str, Scalar]

# A numeric parameter becomes a set of choices if it has at most this many distinct values and each value was recorded
# at least twice on average. Otherwise, it becomes a range.
MAX_CHOICES = 16

LOG_RATIO = 10.0  # a range is searched on a log scale if its ends differ by at least this factor


@dataclass(frozen=True)
class RecordedRung:
    budget: int  # examples seen
    seconds: float  # since the trial started
    points: tuple[Pair, ...]


@dataclass(frozen=True)
class RecordedTrial:
    values: Mapping[str, Scalar]
    rungs: tuple[RecordedRung, ...]  # sorted by ascending budget


@dataclass(frozen=True)
class RecordedSweep:
    """A recorded sweep: the scores of every configuration at every rung.

    ``reference_point`` is the hypervolume's reference point: the reference encoder's P and half its S, or the worst
    recorded scores. ``reference`` contains the reference encoder's own scores, if recorded. Parameters in ``ranges``
    are searched as ranges even if they have few distinct values. For parameters in ``nullable``, a missing value is
    null unless another parameter determines which trials have a value.
    """

    trials: tuple[RecordedTrial, ...]
    reference_point: Pair
    reference: Pair | None = None
    ranges: frozenset[str] = frozenset()
    nullable: frozenset[str] = frozenset()

    @cached_property
    def area(self) -> float:
        """Return the hypervolume of all recorded points."""
        points = [point for trial in self.trials for rung in trial.rungs for point in rung.points]
        return hypervolume(points, self.reference_point)

    @cached_property
    def space(self) -> Space:
        """Return the search space inferred from the recorded configurations."""
        rows = [dict(trial.values) for trial in self.trials]
        everywhere, elsewhere = _names(rows)
        parents = []
        for name in everywhere:
            values = [row[name] for row in rows]
            if isinstance(_parameter(values, is_range=False), Choices):
                parents.append(name)
        nulls: dict[str, Scalar] = {}
        for name in elsewhere:
            is_decided = any(_decides(rows, parent, name) for parent in parents)
            if name in self.nullable and not is_decided:
                nulls[name] = None
        rows_with_nulls = [{**nulls, **row} for row in rows]
        return Space(_parameters(rows_with_nulls, self.ranges))

    @property
    def num_rungs(self) -> int:
        return max(len(trial.rungs) for trial in self.trials)

    @property
    def total_budget(self) -> int:
        """Return the number of examples needed to run every trial to its last recorded rung."""
        return sum(trial.rungs[-1].budget for trial in self.trials)

    @property
    def first_budget(self) -> int:
        """Return the smallest budget of any rung."""
        return min(trial.rungs[0].budget for trial in self.trials)

    def objective(self) -> Objective:
        """Return the objective that gives P and S equal weight."""
        return Objective(0.5, self.reference_point)


def infer_scale(values: Sequence[Any]) -> Scale | None:
    """Return the scale of numeric values, or None if ``values`` is empty or not all numeric."""
    if any(isinstance(value, bool | str | None) for value in values) or not values:
        return None
    low = float(min(values))
    high = float(max(values))
    is_log = low > 0 and high / low >= LOG_RATIO
    return Scale(low, high, is_log)


def _parameters(rows: Sequence[Values], ranges: Set[str]) -> Parameters:
    """Return the parameters inferred from these configurations.

    A parameter that only some configurations have is nested under the choice that determines its presence.
    """
    everywhere, undecided = _names(rows)
    values = {name: [row[name] for row in rows] for name in everywhere}
    parameters = {name: _parameter(values[name], name in ranges) for name in everywhere}
    fewest_values_first = sorted(everywhere, key=lambda name: len(set(values[name])))
    for parent in fewest_values_first:
        parameter = parameters[parent]
        if not isinstance(parameter, Choices):
            continue
        children = [name for name in undecided if _decides(rows, parent, name)]
        undecided = [name for name in undecided if name not in children]
        if children:
            nested: dict[Scalar, Parameters] = {}
            for option in parameter.options:
                values_of_children = []
                for row in rows:
                    if row[parent] == option:
                        values_of_children.append(
                            {name: row[name] for name in children if name in row}
                        )
                nested[option] = _parameters(values_of_children, ranges)
            parameters[parent] = Choices(nested)
    if undecided:
        raise InputError(
            f"column {undecided[0]!r} is empty in some rows, and no other column's value determines which; fill "
            "in the column or drop it"
        )
    return parameters


def _names(rows: Sequence[Values]) -> tuple[list[str], list[str]]:
    """Return the parameters that all configurations have and the parameters that only some have."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    everywhere = [name for name in names if all(name in row for row in rows)]
    return everywhere, [name for name in names if name not in everywhere]


def _decides(rows: Iterable[Values], parent: str, name: str) -> bool:
    """Return whether the value of ``parent`` determines which configurations have ``name``."""
    presence: dict[Scalar, set[bool]] = {}
    for row in rows:
        presence.setdefault(row[parent], set()).add(name in row)
    return all(len(states) == 1 for states in presence.values())


def _parameter(values: Sequence[Scalar], is_range: bool) -> Parameter:
    different = sorted(set(values), key=_numbers_first)
    if len(different) == 1:
        return Fixed(different[0])
    scale = infer_scale(different)
    max_choices = min(MAX_CHOICES, len(values) // 2)
    has_few_values = len(different) <= max_choices
    if scale is None or (has_few_values and not is_range):
        return Choices({value: {} for value in different})
    is_integer = all(isinstance(value, int) for value in different)
    return Range(scale.low, scale.high, scale.log, is_integer)


def _numbers_first(value: Scalar) -> tuple[bool, bool, Scalar]:
    """Return a sort key for the order null, numbers, strings."""
    return value is not None, isinstance(value, str), 0 if value is None else value
