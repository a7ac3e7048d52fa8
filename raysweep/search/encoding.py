"""Configurations as numbers, for models that learn from them; and drawn at random."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from raysweep.config.freezing import check_level, level_depth
from raysweep.config.space import Choices, Fixed, Parameters, Scalar
from raysweep.errors import InputError

Params = dict[str, Any]  # of a configuration, as a sampler calls them


LOG_RATIO = 4.0  # choices among positive numbers whose ends differ by this factor are taken by their logarithms


@dataclass(frozen=True)
class Scale:
    """Places of numbers within a range, from 0 to 1."""

    low: float
    high: float
    log: bool = False

    def __call__(self, value: Any) -> float:
        low, high, at = map(math.log, (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return (at - low) / (high - low) if high > low else 0.0


@dataclass(frozen=True)
class Axis:
    """A parameter as the model sees it: a number in [0, 1], or one of several that are all unlike."""

    name: str
    scale: Scale | None  # None where all are unlike
    ranks: Mapping[Scalar, float] | None = None  # of choices that are no numbers

    @property
    def unlike(self) -> bool:
        return self.scale is None

    def code(self, params: Params) -> float:
        """Of a configuration: where the parameter lies, or the number of its choice; in between where it has none."""
        if self.name not in params:
            return 0.5 if self.scale else -1.0
        value = params[self.name]
        number = float(value if self.ranks is None else self.ranks[value])
        return self.scale(number) if self.scale else number


def axes(parameters: Parameters, prefix: str) -> Iterator[Axis]:
    """Of all parameters that are not fixed, also of those under choices; named after ``prefix``."""
    for name, parameter in parameters.items():
        if isinstance(parameter, Fixed):
            continue
        if not isinstance(parameter, Choices):
            yield Axis(prefix + name, Scale(parameter.low, parameter.high, parameter.log))
            continue
        options = list(parameter.options)
        if all(isinstance(option, int | float) and not isinstance(option, bool) for option in options):
            low, high = min(map(float, options)), max(map(float, options))
            yield Axis(prefix + name, Scale(low, high, low > 0 and high / low >= LOG_RATIO))
        elif name == "freezing" and all(map(_is_level, options)):  # which are ordered by depth
            ordered = sorted(options, key=lambda level: level_depth(str(level)))
            yield Axis(prefix + name, Scale(0, len(ordered) - 1), {level: i for i, level in enumerate(ordered)})
        else:
            yield Axis(prefix + name, None, {option: i for i, option in enumerate(options)})
        for option, children in parameter.options.items():
            yield from axes(children, f"{prefix}{name}={option}.")


def _is_level(option: Scalar) -> bool:
    """A recorded table may call by this name what it likes."""
    try:
        check_level(str(option))
    except InputError:
        return False
    return True


class RandomSuggester:
    """A Suggester that draws uniformly and notes what."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self.params: Params = {}

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        self.params[name] = min(max(self._uniform(low, high, log), low), high)
        return float(self.params[name])

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        # as if each whole number were the range half a unit around it
        self.params[name] = min(max(round(self._uniform(low - 0.5, high + 0.5, log)), low), high)
        return int(self.params[name])

    def _uniform(self, low: float, high: float, log: bool) -> float:
        if log:
            return math.exp(self._random.uniform(math.log(low), math.log(high)))
        return float(self._random.uniform(low, high))

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        self.params[name] = choices[int(self._random.integers(len(choices)))]
        return self.params[name]
