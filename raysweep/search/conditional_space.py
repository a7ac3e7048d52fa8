"""Spaces with conditional parameters, which exist only for certain values of other parameters.

Optuna studies do not declare a search space, so :func:`infer_space` infers it from the trials.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from raysweep.config.freezing import check_level, level_depth
from raysweep.config.space import Choices, Parameters, Range, Scalar, Space
from raysweep.errors import InputError
from raysweep.search.encoding import Axis, Params, axis_of

NUM_CHANGED = 2.0  # mean number of changed values when sampling near a configuration


Code = tuple[float, ...]  # an encoded configuration, one number per axis


@dataclass(frozen=True)
class OneOf:
    """The condition that the parent's value is one of these choices."""

    parent: str
    choices: tuple[Any, ...]

    def holds(self, params: Params) -> bool:
        return self.parent in params and params[self.parent] in self.choices


@dataclass(frozen=True)
class Above:
    """The condition that the parent's value is above or below a limit."""

    parent: str
    limit: float
    below: bool = False

    def holds(self, params: Params) -> bool:
        return self.parent in params and (params[self.parent] < self.limit) == self.below


Condition = OneOf | Above


@dataclass(frozen=True)
class Parameter:
    """A parameter that exists if its ``condition`` holds, or always if ``condition`` is None."""

    name: str
    distribution: BaseDistribution
    condition: Condition | None = None
    # the choices in order, if they are ordered but not numeric
    ordered: tuple[Any, ...] | None = None

    @cached_property
    def axis(self) -> Axis:
        return axis_of(self.distribution, self.ordered)

    def exists(self, params: Params) -> bool:
        return self.condition is None or self.condition.holds(params)


@dataclass(frozen=True)
class ConditionalSpace:
    """Parameters, each listed after its parent.

    ``unexplained`` contains the names of omitted parameters, whose conditions are unknown.
    """

    parameters: tuple[Parameter, ...]
    unexplained: frozenset[str] = frozenset()

    @cached_property
    def free(self) -> tuple[Parameter, ...]:
        """The parameters with more than one possible value, which are the axes of codes."""
        return tuple(
            parameter for parameter in self.parameters if not parameter.distribution.single()
        )

    @cached_property
    def categorical(self) -> NDArray[np.bool_]:
        """A mask (axes,) of the axes whose values are unordered."""
        return np.array([parameter.axis.is_categorical for parameter in self.free], dtype=bool)

    @cached_property
    def distributions(self) -> dict[str, BaseDistribution]:
        """The distributions of the free parameters, by name."""
        return {parameter.name: parameter.distribution for parameter in self.free}

    @cached_property
    def _axes(self) -> list[tuple[str, Axis]]:
        return [(parameter.name, parameter.axis) for parameter in self.free]

    def code(self, params: Params) -> Code:
        return tuple(
            [
                axis.code(params[name]) if name in params else axis.absent
                for name, axis in self._axes
            ]
        )

    def draw(self, random: np.random.Generator, fixed: Mapping[str, Any]) -> Params:
        """Return a random configuration with the values in ``fixed`` that apply to it."""
        return self._build(fixed, lambda parameter: parameter.axis.draw(random))

    def draw_near(
        self, known: Params, size: float, random: np.random.Generator, fixed: Mapping[str, Any]
    ) -> Params:
        """Return a copy of a known configuration with about NUM_CHANGED changed values.

        Values in ``fixed`` do not change. Numbers change by a normally distributed step with standard
        deviation ``size`` on the scale from 0 to 1. Choices and parameters missing from the known
        configuration are sampled at random.
        """
        num_changeable = max(len(known) - len(fixed), NUM_CHANGED)
        change_probability = NUM_CHANGED / num_changeable

        def draw_value(parameter: Parameter) -> Any:
            if parameter.name not in known:
                return parameter.axis.draw(random)
            value = known[parameter.name]
            is_changed = random.random() < change_probability
            return (
                parameter.axis.draw_near(value, size, random)
                if is_changed
                else parameter.axis.clip(value)
            )

        return self._build(fixed, draw_value)

    def _build(self, fixed: Mapping[str, Any], draw_value: Callable[[Parameter], Any]) -> Params:
        params: Params = {}
        for parameter in self.parameters:
            name = parameter.name
            if parameter.exists(params):
                params[name] = fixed[name] if name in fixed else draw_value(parameter)
        return params

    def is_complete(self, params: Params) -> bool:
        """Return whether a configuration has all parameters whose conditions hold."""
        return all(parameter.name in params for parameter in self.free if parameter.exists(params))

    def explains(self, trial: "SuggestedParams") -> bool:
        """Return whether the space is consistent with the parameters that a trial suggested."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name, distribution in trial.distributions.items():
            if name in self.unexplained:
                continue
            if name not in known or not _covers(known[name].distribution, distribution):
                return False
        return all(
            parameter.exists(trial.params) == (name in trial.params)
            for name, parameter in known.items()
        )


def make_conditional_space(space: Space) -> ConditionalSpace:
    """Return a sweep's space without fixed parameters.

    Names of conditional parameters include the condition, such as ``loss=triplet.margin``.
    """
    return ConditionalSpace(tuple(_parameters(space.parameters, "", None)))


def _parameters(
    parameters: Parameters, prefix: str, condition: OneOf | None
) -> Iterator[Parameter]:
    for name, parameter in parameters.items():
        full_name = prefix + name
        distribution: BaseDistribution
        if isinstance(parameter, Range):
            low, high, log = parameter.low, parameter.high, parameter.log
            if parameter.integer:
                distribution = IntDistribution(int(low), int(high), log=log)
            else:
                distribution = FloatDistribution(low, high, log=log)
            yield Parameter(full_name, distribution, condition)
        if isinstance(parameter, Choices):
            options = tuple(parameter.options)
            distribution = CategoricalDistribution(options)
            ordered = None
            if name == "freezing" and all(map(_is_freezing_level, options)):
                by_depth = sorted(options, key=lambda level: level_depth(str(level)))
                ordered = tuple(by_depth)
            yield Parameter(full_name, distribution, condition, ordered)
            for option, children in parameter.options.items():
                has_option = OneOf(full_name, (option,))
                yield from _parameters(children, f"{full_name}={option}.", has_option)


def _is_freezing_level(option: Scalar) -> bool:
    try:
        check_level(str(option))
    except InputError:
        return False
    return True


class SuggestedParams(Protocol):
    """A trial's suggested parameters, such as an ``optuna.trial.FrozenTrial``."""

    @property
    def params(self) -> dict[str, Any]: ...
    @property
    def distributions(self) -> dict[str, BaseDistribution]: ...


def infer_space(trials: Sequence[SuggestedParams]) -> ConditionalSpace:
    """Infer the space from a study's trials.

    If only some trials have a parameter, the parameter is assumed to depend on one other parameter,
    its parent. The condition is either a set of the parent's choices or a limit on the parent's
    value, and must hold for exactly the trials with the parameter. If no such condition exists, the
    trials before the parameter first appeared are ignored, because the parameter may have been added
    to the objective later. Parameters that remain unexplained are omitted.
    """
    counts = Counter(name for trial in trials for name in trial.distributions)
    # A parent exists in more trials than its children, so this order puts parents first.
    names = sorted(counts, key=lambda name: (-counts[name], name))
    distributions: dict[str, BaseDistribution] = {}
    for trial in trials:
        for name, distribution in trial.distributions.items():
            known = distributions.get(name, distribution)
            distributions[name] = _merge(known, distribution)
    parameters: list[Parameter] = []
    unexplained: set[str] = set()
    for name in names:
        distribution = distributions[name]
        parents = [
            parameter.name for parameter in parameters if counts[parameter.name] > counts[name]
        ]
        parents.sort(key=lambda parent: _RANKS[type(distributions[parent])])
        first = next(index for index, trial in enumerate(trials) if name in trial.params)
        parameter = _explain(name, distribution, parents, trials)
        if parameter is None:
            parameter = _explain(name, distribution, parents, trials[first:])
        if parameter is None:
            unexplained.add(name)
        else:
            parameters.append(parameter)
    return ConditionalSpace(tuple(parameters), frozenset(unexplained))


def _explain(
    name: str,
    distribution: BaseDistribution,
    parents: Sequence[str],
    trials: Sequence[SuggestedParams],
) -> Parameter | None:
    """Return the parameter with a condition that explains the trials, or None."""
    if all(name in trial.params for trial in trials):
        return Parameter(name, distribution)
    for parent in parents:
        condition = _find_condition(parent, name, trials)
        if condition is not None:
            return Parameter(name, distribution, condition)
    return None


# Choices are tried first, because numbers are more likely to separate the trials by accident.
_RANKS = {CategoricalDistribution: 0, IntDistribution: 1, FloatDistribution: 2}


def _find_condition(parent: str, name: str, trials: Sequence[SuggestedParams]) -> Condition | None:
    """Return a condition on ``parent`` that holds for exactly the trials with the parameter, or None."""
    if any(name in trial.params and parent not in trial.params for trial in trials):
        return None
    with_parent = [trial for trial in trials if parent in trial.params]
    having = [trial.params[parent] for trial in with_parent if name in trial.params]
    lacking = [trial.params[parent] for trial in with_parent if name not in trial.params]
    if not lacking:
        return None
    distribution = with_parent[0].distributions[parent]
    if isinstance(distribution, CategoricalDistribution):
        indices = set(map(distribution.to_internal_repr, having))  # choices may be unhashable
        indices_lacking = set(map(distribution.to_internal_repr, lacking))
        if not indices.isdisjoint(indices_lacking):
            return None
        choices = tuple(distribution.choices[int(index)] for index in sorted(indices))
        return OneOf(parent, choices)
    return _separate_numbers(parent, having, lacking)


def _separate_numbers(
    parent: str, having: Sequence[float], lacking: Sequence[float]
) -> Above | None:
    """Return a limit on the parent that separates the values in ``having`` and ``lacking``, or None."""
    smallest = min(having)
    largest = max(having)
    smallest_lacking = min(lacking)
    largest_lacking = max(lacking)
    if smallest > largest_lacking:
        limit = (smallest + largest_lacking) / 2
        return Above(parent, limit)
    if largest < smallest_lacking:
        limit = (largest + smallest_lacking) / 2
        return Above(parent, limit, below=True)
    return None


def _covers(one: BaseDistribution, other: BaseDistribution) -> bool:
    """Return whether a distribution contains all values of another distribution of the same kind."""
    if one == other or isinstance(one, CategoricalDistribution):
        return True
    assert isinstance(one, FloatDistribution | IntDistribution)
    assert isinstance(other, FloatDistribution | IntDistribution)
    is_as_fine = one.step in (None, other.step) or (
        isinstance(one, IntDistribution) and one.step == 1
    )
    return is_as_fine and one.low <= other.low and other.high <= one.high


def _merge(one: BaseDistribution, other: BaseDistribution) -> BaseDistribution:
    """Return a distribution that covers both, which is logarithmic only if both are."""
    if _covers(one, other):
        return one
    assert isinstance(one, FloatDistribution | IntDistribution)
    assert isinstance(other, FloatDistribution | IntDistribution)
    low = min(one.low, other.low)
    high = max(one.high, other.high)
    log = one.log and other.log
    if isinstance(one, IntDistribution):
        return IntDistribution(int(low), int(high), log=log)
    return FloatDistribution(low, high, log=log)
