"""A conditional space as a flat list of parameters, for libraries that take one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raysweep.config.space import Choices, Parameters, Range, Scalar, Space


@dataclass(frozen=True)
class Flat:
    """A parameter under the sampler's name. It exists if its parent, if any, has the value ``option``."""

    name: str
    parameter: Range | Choices
    parent: str | None = None
    option: Scalar | None = None

    @property
    def options(self) -> list[Scalar]:
        """Return the options of a choice."""
        return list(self.parameter.options) if isinstance(self.parameter, Choices) else []


def flat(space: Space) -> list[Flat]:
    """Return every parameter that may occur; parents come before their children."""
    return list(_flat(space.parameters, "", None, None))


def _flat(
    parameters: Parameters, prefix: str, parent: str | None, option: Scalar | None
) -> Iterator[Flat]:
    for name, parameter in parameters.items():
        full_name = prefix + name
        if isinstance(parameter, Range):
            yield Flat(full_name, parameter, parent, option)
        elif isinstance(parameter, Choices):
            yield Flat(full_name, parameter, parent, option)
            for choice, children in parameter.options.items():
                yield from _flat(children, f"{full_name}={choice}.", full_name, choice)


@dataclass(frozen=True)
class Given:
    """A suggester that returns known values by the sampler's names, choices by their index, within their bounds."""

    values: Mapping[str, Any]

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        return min(max(float(self.values[name]), low), high)

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        return min(max(int(self.values[name]), low), high)

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        return choices[int(self.values[name])]


def indexed(parameters: list[Flat], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters by the sampler's names, with the index of each choice in place of its value."""
    made = {}
    for entry in parameters:
        if entry.name in params:
            value = params[entry.name]
            made[entry.name] = (
                entry.options.index(value) if isinstance(entry.parameter, Choices) else value
            )
    return made
