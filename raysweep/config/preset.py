"""Presets: complete or partial configurations requested by the user."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from raysweep.config.document import join_key, unknown_key
from raysweep.config.space import Choices, Fixed, Parameter, Parameters, Range, Space, names_of
from raysweep.config.trial import parameter_names
from raysweep.errors import InputError

MAX_SHOWN = 80  # maximum number of characters shown in a message


class ParameterError(InputError):
    """An invalid parameter in a preset."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(join_key(key, problem))
        self.key, self.problem = key, problem


@dataclass(frozen=True)
class Preset:
    """A trial's requested values; the sampler proposes the rest.

    ``params`` maps the sampler's parameter names, such as ``loss=triplet.margin``, to values. It excludes parameters
    that the space fixes. ``is_complete`` is true if there is nothing left for the sampler to propose.
    """

    values: Mapping[str, Any]
    params: Mapping[str, Any]
    is_complete: bool


def preset_of(space: Space, values: Mapping[str, Any]) -> Preset:
    """Check the values against the space and return them as a preset.

    A parameter that exists only under a choice must be given together with that choice.

    Raises:
        ParameterError: If any value is not in the space.
    """
    reading = _Reading(values)
    params = dict(reading.params(space.parameters, ""))
    for key in values:
        if key not in reading.used:
            raise ParameterError(key, _why_unused(space, key, values))
    return Preset(dict(values), params, is_complete=not reading.left_out)


@dataclass
class _Reading:
    """State while matching a preset's values to a space's parameters."""

    values: Mapping[str, Any]
    used: set[str] = field(default_factory=set)
    left_out: bool = False

    def params(self, parameters: Parameters, prefix: str) -> Iterator[tuple[str, Any]]:
        """Yield the sampler's name, which starts with ``prefix``, and the value of each requested parameter."""
        for name, parameter in parameters.items():
            if name in self.values:
                self.used.add(name)
                value = _checked(name, parameter, self.values[name])
            elif isinstance(parameter, Fixed):
                continue
            else:
                self.left_out = True
                continue
            if not isinstance(parameter, Fixed):
                yield prefix + name, value
            if isinstance(parameter, Choices):
                yield from self.params(parameter.options[value], f"{prefix}{name}={value}.")


def _checked(name: str, parameter: Parameter, value: Any) -> Any:
    """Return the value with its type in the space; raise ParameterError if it is not in the space."""
    shown = _shortened(repr(value))
    if isinstance(value, dict | list):
        raise ParameterError(name, f"is {shown}; allowed: a plain value")
    match parameter:
        case Fixed():
            if not _is_same(parameter.value, value):
                raise ParameterError(
                    name, f"is {shown}; allowed: {parameter.value!r}, since the space fixes it"
                )
            return parameter.value
        case Range():
            number_type = int if parameter.integer else (int, float)
            is_number = isinstance(value, number_type) and not isinstance(value, bool)
            if not is_number or not parameter.low <= value <= parameter.high:
                kind = "a whole number" if parameter.integer else "a number"
                raise ParameterError(name, f"is {shown}; allowed: {kind} from {parameter}")
            return int(value) if parameter.integer else float(value)
        case Choices():
            for option in parameter.options:
                if _is_same(option, value):
                    return option
            raise ParameterError(name, f"is {shown}; allowed: {parameter}")


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two plain values are equal; unlike in Python, True does not equal 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _why_unused(space: Space, key: str, values: Mapping[str, Any]) -> str:
    """Return the error message for a key that matches no parameter of the configuration."""
    conditions = []
    for name, parameter in space.parameters.items():
        if not isinstance(parameter, Choices):
            continue
        for option, children in parameter.options.items():
            if key in names_of(children):
                conditions.append(f"{name}: {option}")
    if conditions:
        alternatives = " or ".join(conditions)
        configuration = ", ".join(f"{name}: {value}" for name, value in values.items())
        shown = _shortened("{" + configuration + "}")
        return f"exists only under {alternatives}; the configuration is {shown}"
    names = sorted(set(names_of(space.parameters)))
    if key not in parameter_names():
        return unknown_key(_shortened(key), names)
    return f"is not a parameter of this space; allowed: {', '.join(names)}"


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
