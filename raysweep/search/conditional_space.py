"""Spaces in which some parameters exist only under certain values of others, known beforehand or learnt from trials.

A study of Optuna's says nothing of its space: the objective asks for one parameter after the other. What its trials were
asked for tells which parameters there are, and mostly also when each of them exists (:func:`inferred`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from raysweep.search.encoding import Axis, Params, axis_of

NUM_CHANGED = 2.0  # values of a configuration that are changed on average, to draw one near it


Code = tuple[float, ...]  # a configuration as numbers, one an axis


@dataclass(frozen=True)
class OneOf:
    """A parameter exists where its parent is one of these choices."""

    parent: str
    choices: tuple[Any, ...]

    def holds(self, params: Params) -> bool:
        return self.parent in params and params[self.parent] in self.choices


@dataclass(frozen=True)
class Above:
    """A parameter exists where its parent is a number above a limit, or below it."""

    parent: str
    limit: float
    below: bool = False

    def holds(self, params: Params) -> bool:
        return self.parent in params and (params[self.parent] < self.limit) == self.below


Condition = OneOf | Above


@dataclass(frozen=True)
class Parameter:
    """A parameter of a space; ``condition`` says where it exists, None everywhere."""

    name: str
    distribution: BaseDistribution
    condition: Condition | None = None
    ordered: tuple[Any, ...] | None = None  # its choices in their order, if they have one and are no numbers

    @cached_property
    def axis(self) -> Axis:
        """What the model sees of it."""
        return axis_of(self.distribution, self.ordered)

    def exists(self, params: Params) -> bool:
        """Whether a configuration with these values has the parameter."""
        return self.condition is None or self.condition.holds(params)


@dataclass(frozen=True)
class ConditionalSpace:
    """Parameters, each after the one that it depends on. Those in ``unexplained`` exist one cannot say where."""

    parameters: tuple[Parameter, ...]
    unexplained: frozenset[str] = frozenset()

    @cached_property
    def free(self) -> tuple[Parameter, ...]:
        """Those that may have more than one value: the axes of a configuration's code."""
        return tuple(parameter for parameter in self.parameters if not parameter.distribution.single())

    @cached_property
    def categorical(self) -> NDArray[np.bool_]:
        """(axes,), whether the values of an axis have no order."""
        return np.array([parameter.axis.is_categorical for parameter in self.free], dtype=bool)

    @cached_property
    def distributions(self) -> dict[str, BaseDistribution]:
        """By name, of all that may have more than one value."""
        return {parameter.name: parameter.distribution for parameter in self.free}

    @cached_property
    def _axes(self) -> list[tuple[str, Axis]]:
        return [(parameter.name, parameter.axis) for parameter in self.free]

    def code(self, params: Params) -> Code:
        """A configuration as numbers."""
        return tuple([axis.code(params[name]) if name in params else axis.absent for name, axis in self._axes])

    def draw(self, random: np.random.Generator, given: Mapping[str, Any]) -> Params:
        """A random configuration that has the values ``given``, wherever it has their parameters."""
        return self._drawn(given, lambda parameter: parameter.axis.draw(random))

    def draw_near(self, known: Params, size: float, random: np.random.Generator, given: Mapping[str, Any]) -> Params:
        """A known configuration with some of its values changed, about NUM_CHANGED of those that are not ``given``.

        A number moves by a normal step of standard deviation ``size`` on its scale from 0 to 1. A choice is drawn anew, and
        so is what the known configuration lacks because it stands under another choice.
        """
        num_changeable = max(len(known) - len(given), NUM_CHANGED)
        change_probability = NUM_CHANGED / num_changeable

        def value_of(parameter: Parameter) -> Any:
            if parameter.name not in known:
                return parameter.axis.draw(random)
            value = known[parameter.name]
            stays = random.random() >= change_probability
            return value if stays else parameter.axis.draw_near(value, size, random)

        return self._drawn(given, value_of)

    def _drawn(self, given: Mapping[str, Any], value_of: Callable[[Parameter], Any]) -> Params:
        params: Params = {}
        for parameter in self.parameters:
            if parameter.exists(params):
                is_given = parameter.name in given
                params[parameter.name] = given[parameter.name] if is_given else value_of(parameter)
        return params

    def is_whole(self, params: Params) -> bool:
        """Whether a configuration has every parameter that exists for its values."""
        return all(parameter.name in params for parameter in self.free if parameter.exists(params))

    def explains(self, trial: "Asked") -> bool:
        """Whether the space has what a trial was asked for, and nothing else for its values."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name, distribution in trial.distributions.items():
            if name not in self.unexplained and (
                name not in known or not _covers(known[name].distribution, distribution)
            ):
                return False
        return all(parameter.exists(trial.params) == (name in trial.params) for name, parameter in known.items())


class Asked(Protocol):
    """The part of ``optuna.trial.FrozenTrial`` that tells of a space."""

    @property
    def params(self) -> dict[str, Any]: ...
    @property
    def distributions(self) -> dict[str, BaseDistribution]: ...


def inferred(trials: Sequence[Asked]) -> ConditionalSpace:
    """The space that trials of one study were asked for.

    A parameter that some trials lack is taken to exist under certain choices of another, or where a number is large or
    small enough, if one other parameter tells apart the trials that have it. If none does, only trials since the first that
    has it are asked, since an objective may have grown. What is not explained then is left out.
    """
    counts = Counter(name for trial in trials for name in trial.distributions)
    # What more trials have cannot depend on what fewer have, so this is an order in which parents come first.
    names = sorted(counts, key=lambda name: (-counts[name], name))
    distributions = _merged_distributions(trials)
    parameters: list[Parameter] = []
    unexplained: set[str] = set()
    for name in names:
        possible = [parameter.name for parameter in parameters if counts[parameter.name] > counts[name]]
        possible.sort(key=lambda other: _RANKS[type(distributions[other])])
        first = next(index for index, trial in enumerate(trials) if name in trial.params)
        for asked in (trials, trials[first:]):
            if all(name in trial.params for trial in asked):
                parameters.append(Parameter(name, distributions[name]))
                break
            if condition := _condition(name, possible, asked):
                parameters.append(Parameter(name, distributions[name], condition))
                break
        else:
            unexplained.add(name)
    return ConditionalSpace(tuple(parameters), frozenset(unexplained))


# Choices are asked before numbers, which are the likelier to tell trials apart by chance the more values they have.
_RANKS = {CategoricalDistribution: 0, IntDistribution: 1, FloatDistribution: 2}


def _condition(name: str, possible: Sequence[str], trials: Sequence[Asked]) -> Condition | None:
    """Where the parameter ``name`` exists, by the first of the ``possible`` others that tells."""
    conditions = (_condition_on(parent, name, trials) for parent in possible)
    return next((condition for condition in conditions if condition is not None), None)


def _condition_on(parent: str, name: str, trials: Sequence[Asked]) -> Condition | None:
    if any(name in trial.params and parent not in trial.params for trial in trials):
        return None
    with_parent = [trial for trial in trials if parent in trial.params]
    having = [trial.params[parent] for trial in with_parent if name in trial.params]
    lacking = [trial.params[parent] for trial in with_parent if name not in trial.params]
    if not lacking:
        return None
    distribution = with_parent[0].distributions[parent]
    if isinstance(distribution, CategoricalDistribution):
        places = {int(distribution.to_internal_repr(choice)) for choice in having}
        are_apart = places.isdisjoint(int(distribution.to_internal_repr(choice)) for choice in lacking)
        choices = tuple(distribution.choices[place] for place in sorted(places))
        return OneOf(parent, choices) if are_apart else None
    if min(having) > max(lacking):
        return Above(parent, (min(having) + max(lacking)) / 2)
    if max(having) < min(lacking):
        return Above(parent, (max(having) + min(lacking)) / 2, below=True)
    return None


def _merged_distributions(trials: Iterable[Asked]) -> dict[str, BaseDistribution]:
    merged: dict[str, BaseDistribution] = {}
    for trial in trials:
        for name, distribution in trial.distributions.items():
            before = merged.get(name, distribution)
            merged[name] = before if _covers(before, distribution) else _joined(before, distribution)
    return merged


def _covers(one: BaseDistribution, other: BaseDistribution) -> bool:
    """Whether a distribution has all values of another of its kind."""
    if one == other or isinstance(one, CategoricalDistribution):
        return True
    assert isinstance(one, FloatDistribution | IntDistribution)
    assert isinstance(other, FloatDistribution | IntDistribution)
    is_as_fine = one.step in (None, other.step) or (isinstance(one, IntDistribution) and one.step == 1)
    return is_as_fine and one.low <= other.low and other.high <= one.high


def _joined(one: BaseDistribution, other: BaseDistribution) -> BaseDistribution:
    """The range from the lower to the higher end of two, logarithmic if both are."""
    assert isinstance(one, FloatDistribution | IntDistribution)
    assert isinstance(other, FloatDistribution | IntDistribution)
    low, high = min(one.low, other.low), max(one.high, other.high)
    log = one.log and other.log
    if isinstance(one, IntDistribution):
        return IntDistribution(int(low), int(high), log=log)
    return FloatDistribution(low, high, log=log)
