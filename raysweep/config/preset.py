"""Configurations that a person wants tried, in whole or in part, checked against the space that they lie in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from raysweep.config.document import unknown_key
from raysweep.config.space import Choices, Fixed, Parameter, Parameters, Range, Space, find
from raysweep.config.trial import TrialConfig
from raysweep.errors import InputError

MOST_SHOWN = 80  # characters of a value, in a message


class PresetError(InputError):
    """What is wrong with the value of a parameter, ``key``."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key, self.problem = key, problem


@dataclass(frozen=True)
class Preset:
    """Values that a trial is to have; the sampler proposes the others.

    ``params`` are the values under the sampler's names, such as ``loss=triplet.margin``, without those of parameters that
    the space fixes. ``is_whole`` says that nothing is left to the sampler.
    """

    values: Mapping[str, Any]
    params: Mapping[str, Any]
    is_whole: bool


def preset_of(space: Space, values: Mapping[str, Any]) -> Preset:
    """The values as a preset. PresetError names the first that does not lie in the space, and what is allowed.

    A parameter that exists only under a choice can be given together with that choice only.
    """
    reading = _Reading(values)
    params = dict(reading.params(space.parameters, ""))
    for key in values:
        if key not in reading.used:
            raise PresetError(key, _why_unused(space, key, values))
    return Preset(dict(values), params, is_whole=not reading.left_out)


@dataclass
class _Reading:
    """Goes through a space with values at hand, and notes which it used and whether any were left out."""

    values: Mapping[str, Any]
    used: set[str] = field(default_factory=set)
    left_out: bool = False

    def params(self, parameters: Parameters, prefix: str) -> Iterator[tuple[str, Any]]:
        """The values of these parameters under the sampler's names, which begin with ``prefix``."""
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
    """The value as the space has it. PresetError where it does not lie there."""
    if isinstance(value, dict | list):
        raise PresetError(name, f"must be one plain value, not {_shown(value)}")
    match parameter:
        case Fixed():
            if not _is_same(parameter.value, value):
                raise PresetError(name, f"is {_shown(value)}; the space fixes it at {parameter.value!r}")
            return parameter.value
        case Range():
            return _within(name, parameter, value)
        case Choices():
            for option in parameter.options:
                if _is_same(option, value):
                    return option
            allowed = ", ".join(map(str, parameter.options))
            raise PresetError(name, f"is {_shown(value)}; allowed: {allowed}")


def _within(name: str, parameter: Range, value: Any) -> int | float:
    is_number = isinstance(value, int) if parameter.integer else isinstance(value, int | float)
    if not is_number or isinstance(value, bool) or not parameter.low <= value <= parameter.high:
        kind = "a whole number" if parameter.integer else "a number"
        raise PresetError(name, f"is {_shown(value)}; allowed: {kind} from {parameter}")
    return int(value) if parameter.integer else float(value)


def _is_same(one: Any, other: Any) -> bool:
    """Whether two plain values are equal, where true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _why_unused(space: Space, key: str, values: Mapping[str, Any]) -> str:
    """Why a value stands for no parameter of the space, or not beside the other values."""
    if conditions := list(_conditions(space.parameters, key)):
        options = " or ".join(conditions)
        return f"exists only under {options}, which {_shown_values(values)} does not say"
    if key not in TrialConfig.model_fields:
        return unknown_key(_shortened(key), _names(space.parameters))
    names = ", ".join(sorted(_names(space.parameters)))
    return f"is no parameter of this space; allowed: {names}"


def _conditions(parameters: Parameters, key: str) -> Iterator[str]:
    """The choices that a parameter stands under, such as ``loss: triplet``."""
    for name, parameter in parameters.items():
        if isinstance(parameter, Choices):
            for option, children in parameter.options.items():
                if any(True for _ in find(children, key)):
                    yield f"{name}: {option}"


def _names(parameters: Parameters) -> set[str]:
    """Of all parameters, those under choices included."""
    found = set(parameters)
    for parameter in parameters.values():
        if isinstance(parameter, Choices):
            for children in parameter.options.values():
                found |= _names(children)
    return found


def _shown_values(values: Mapping[str, Any]) -> str:
    """As they may stand in a file."""
    return _shortened("{" + ", ".join(f"{name}: {value}" for name, value in values.items()) + "}")


def _shown(value: Any) -> str:
    return _shortened(repr(value))


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
