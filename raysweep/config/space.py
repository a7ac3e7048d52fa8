"""Conditional search spaces: the values that each parameter of a trial may have.

A parameter is a plain value (fixed), a range ``{low, high, log}``, or ``{choices: ...}``. Choices are a list, or a
mapping from each choice to parameters that exist only under it::

    loss:
      choices:
        triplet: {margin: {low: 0.01, high: 1.0, log: true}}
        multiple_negatives: {scale: {choices: [10, 20, 40]}}
    learning_rate: {low: 1.0e-6, high: 2.0e-4, log: true}

The sampler's name for a parameter under a choice includes the choice (``loss=triplet.margin``), because Optuna requires
one distribution per name.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from raysweep.config.adapter import TARGETS
from raysweep.config.freezing import level_depth
from raysweep.config.losses import find_loss
from raysweep.config.trial import OFF, TrialConfig, trial_config
from raysweep.errors import InputError

Scalar = bool | int | float | str | None


class Suggester(Protocol):
    """The part of ``optuna.Trial`` that a space uses."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float: ...
    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int: ...
    def suggest_categorical(self, name: str, choices: Any) -> Any: ...


@dataclass(frozen=True)
class Fixed:
    """A parameter with a single value."""

    value: Scalar

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Range:
    """Any number from ``low`` to ``high``, inclusive, optionally on a logarithmic scale or restricted to integers."""

    low: float
    high: float
    log: bool
    integer: bool

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}{' (log)' if self.log else ''}"

    def draw(self, name: str, suggest: Suggester) -> float:
        if self.integer:
            return suggest.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return suggest.suggest_float(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Choices:
    """One of several values, each with the parameters that exist only under it."""

    options: Mapping[Scalar, "Parameters"]

    def __str__(self) -> str:
        return ", ".join(map(str, self.options))

    @property
    def conditional(self) -> bool:
        """Return whether any choice has parameters of its own."""
        return any(self.options.values())


Parameter = Fixed | Range | Choices


Parameters = Mapping[str, Parameter]


class FixedSuggester:
    """A Suggester that returns a known configuration's values and records the sampler's parameters.

    ``params`` and ``distributions`` are keyed by the sampler's names, like those in ``optuna.trial.FixedTrial``. The
    methods raise ValueError if a value is not in the space. If the parameter is in ``widened``, its range is extended
    instead.
    """

    def __init__(self, values: Mapping[str, Any], widened: Collection[str] = ()) -> None:
        self._values = values
        self._widened = widened
        self.params: dict[str, Any] = {}
        self.distributions: dict[str, tuple[Any, ...]] = {}

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        return float(self._record_number(name, "float", low, high, log=log))

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        return int(self._record_number(name, "int", low, high, log=log))

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        value = self._value(name)
        if value not in choices:
            raise ValueError(f"{name} is {value!r}, not one of {', '.join(map(str, choices))}")
        self.params[name] = value
        self.distributions[name] = ("categorical", tuple(choices))
        return value

    def _record_number(self, name: str, kind: str, low: float, high: float, *, log: bool) -> float:
        value = self._value(name)
        is_number = isinstance(value, int | float)
        if is_number and _parameter_of(name) in self._widened:
            is_on_scale = value > 0 or not log
            if is_on_scale:
                low = min(low, value)
                high = max(high, value)
        if not is_number or not low <= value <= high:
            raise ValueError(f"{name} is {value!r}, outside the range {low:g} to {high:g}")
        self.params[name] = value
        self.distributions[name] = (kind, low, high, log)
        number: float = value
        return number

    def _value(self, name: str) -> Any:
        return self._values.get(_parameter_of(name))


def _parameter_of(name: str) -> str:
    """Return the parameter's name, such as ``margin`` for ``loss=triplet.margin``."""
    return name.rpartition(".")[2]


_MOST_MEMORY: Mapping[str, Callable[[list[Any]], Any]] = {
    "batch_size": max,
    "freezing": lambda levels: min(levels, key=level_depth),
    "average_decay": max,
    "dropout": max,
    "lora_rank": max,
    "lora_targets": lambda targets: max(targets, key=TARGETS.index),
    "lora_dropout": max,
}
"""Functions that select the most memory-intensive value of a parameter."""


@dataclass(frozen=True)
class Space:
    """A parsed and validated search space."""

    parameters: Parameters

    def draw(self, suggest: Suggester) -> dict[str, Any]:
        """Draw a configuration's values from ``suggest``, such as an ``optuna.Trial``."""
        return dict(_draw(self.parameters, suggest, ""))

    def suggest_fixed(
        self, values: Mapping[str, Any], widened: Collection[str] = ()
    ) -> FixedSuggester:
        """Return a suggester with the sampler's parameters for a known configuration.

        Ranges of parameters in ``widened`` are extended if necessary.

        Raises:
            ValueError: If a value is not in the space.
        """
        suggester = FixedSuggester(values, widened)
        for name, value in self.draw(suggester).items():
            if values.get(name) != value:
                raise ValueError(f"{name} is {values.get(name)!r}, not {value!r}")
        return suggester

    def grid(self) -> list[dict[str, Scalar]]:
        """Return all combinations of choices under the sampler's names; raise InputError if a parameter is a range."""
        return list(_combinations(self.parameters, ""))

    def describe(self) -> list[str]:
        """Return one line of text per parameter, indented for parameters under a choice."""
        return list(_describe(self.parameters, ""))

    def largest(self) -> list[TrialConfig]:
        """Return the trial that uses the most memory for each branch of the space and each tower."""
        extremes = {}
        for name, choose in _MOST_MEMORY.items():
            values = [value for value in self.values(name) if value is not None]
            if values:
                extremes[name] = choose(values)
        if "fp32" in self.values("precision"):
            extremes["precision"] = "fp32"
        if False in self.values("freeze_output_dense"):
            extremes["freeze_output_dense"] = False
        weight = max(self.values("consistency_weight"), default=0)
        trials = []
        for branch in branches(self.parameters, ("tower",)):
            values_of_branch = branch | {
                name: value for name, value in extremes.items() if name in branch
            }
            # with a positive weight, each batch is embedded twice
            if weight and "consistency_weight" in find_loss(branch["loss"]).parameters:
                values_of_branch["consistency_weight"] = weight
            trials.append(trial_config(values_of_branch))
        return trials

    @property
    def searched(self) -> tuple[str, ...]:
        """Return the parameters with more than one value, in the space's order."""
        names = dict.fromkeys(names_of(self.parameters))
        return tuple(name for name in names if len(self.values(name)) > 1)

    @property
    def logarithmic(self) -> tuple[str, ...]:
        """Return the parameters that have a range on a logarithmic scale, in the space's order."""
        logarithmic = []
        for name in dict.fromkeys(names_of(self.parameters)):
            parameters = find(self.parameters, name)
            if any(isinstance(parameter, Range) and parameter.log for parameter in parameters):
                logarithmic.append(name)
        return tuple(logarithmic)

    def values(self, name: str) -> list[Any]:
        """Return all values that a parameter may have, including the two bounds of each range."""
        return values_of(self.parameters, name)


def num_configurations(parameters: Parameters) -> float:
    """Return the number of distinct configurations, or infinity if any parameter is a range."""
    count: float = 1
    for parameter in parameters.values():
        if isinstance(parameter, Range):
            return math.inf
        if isinstance(parameter, Choices):
            count *= sum(map(num_configurations, parameter.options.values()))
    return count


def names_of(parameters: Parameters) -> Iterator[str]:
    """Yield the names of all parameters, including those under choices."""
    for name, parameter in parameters.items():
        yield name
        if isinstance(parameter, Choices):
            for children in parameter.options.values():
                yield from names_of(children)


def _describe(parameters: Parameters, indent: str) -> Iterator[str]:
    for name, parameter in parameters.items():
        heading = f"{indent}{name}:"
        if isinstance(parameter, Choices) and parameter.conditional:
            yield heading
            child_indent = indent + "    "
            for option, children in parameter.options.items():
                yield f"{indent}  {option}"
                yield from _describe(children, child_indent)
        else:
            yield f"{heading} {parameter}"


def _draw(parameters: Parameters, suggest: Suggester, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, parameter in parameters.items():
        full_name = prefix + name
        if isinstance(parameter, Fixed):
            yield name, parameter.value
        elif isinstance(parameter, Range):
            yield name, parameter.draw(full_name, suggest)
        else:
            options = list(parameter.options)
            value = suggest.suggest_categorical(full_name, options)
            yield name, value
            children = parameter.options[value]
            child_prefix = f"{full_name}={value}."
            yield from _draw(children, suggest, child_prefix)


def _combinations(parameters: Parameters, prefix: str) -> Iterator[dict[str, Scalar]]:
    axes = []
    for name, parameter in parameters.items():
        full_name = prefix + name
        if isinstance(parameter, Range):
            raise InputError(f"space: {full_name} is a range; the grid sampler needs choices")
        if isinstance(parameter, Choices):
            combinations = []
            for value, children in parameter.options.items():
                child_prefix = f"{full_name}={value}."
                for combination in _combinations(children, child_prefix):
                    combinations.append({full_name: value, **combination})
            axes.append(combinations)
    return _merged_product(axes)


def _merged_product(axes: list[list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield each combination of one dictionary per axis as a single dictionary."""
    for parts in itertools.product(*axes):
        merged: dict[str, Any] = {}
        for part in parts:
            merged |= part
        yield merged


def find(parameters: Parameters, name: str) -> Iterator[Parameter]:
    """Yield all parameters with this name, including those under choices."""
    for key, parameter in parameters.items():
        if key == name:
            yield parameter
        if isinstance(parameter, Choices):
            for children in parameter.options.values():
                yield from find(children, name)


def values_of(parameters: Parameters, name: str) -> list[Any]:
    """Return all values that a parameter may have, including the two bounds of each range."""
    values: list[Any] = []
    for parameter in find(parameters, name):
        if isinstance(parameter, Fixed):
            values.append(parameter.value)
        elif isinstance(parameter, Range):
            values += [parameter.low, parameter.high]
        else:
            values += list(parameter.options)
    return list(dict.fromkeys(values))


# parameters whose values allow or require other parameters
_DECIDING = (
    "loss",
    "optimizer",
    "schedule",
    "adapter",
)
# parameters that depend on those above, excluding most loss-specific ones
_DEPENDING = (
    "momentum",
    "decay",
    *OFF,
)


def branches(parameters: Parameters, names: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield a trial's values for each combination of the values that affect other parameters.

    Parameters that depend on others and parameters in ``names`` are also varied; ranges are reduced to their two ends.
    All other parameters have their first choice or lower end.
    """
    axes = [list(_branches_of(name, parameter, names)) for name, parameter in parameters.items()]
    return _merged_product(axes)


def _branches_of(
    name: str, parameter: Parameter, names: Collection[str]
) -> Iterator[dict[str, Any]]:
    if isinstance(parameter, Fixed):
        yield {name: parameter.value}
    elif isinstance(parameter, Range):
        ends = [parameter.low]
        if name in _DEPENDING or name in names:
            ends.append(parameter.high)
        for end in ends:
            value = int(end) if parameter.integer else end
            yield {name: value}
    elif parameter.conditional or name in (*_DECIDING, *_DEPENDING, *names):
        for option, children in parameter.options.items():
            for branch in branches(children, names):
                yield {name: option, **branch}
    else:
        first = next(iter(parameter.options))
        yield {name: first}
