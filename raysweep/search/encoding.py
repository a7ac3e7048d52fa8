"""Configurations as numbers, for models that learn from them, and configurations drawn at random."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raysweep.config.freezing import check_level, level_depth
from raysweep.config.space import Choices, Fixed, Parameters, Scalar
from raysweep.errors import InputError

Params = dict[str, Any]  # a configuration under the names that a sampler knows, such as ``loss=triplet.margin``


NUM_CHANGED = 2.0  # values of a configuration that are changed on average, to draw one near it


LOG_RATIO = 4.0  # choices among positive numbers whose ends differ by this factor lie on a logarithmic scale


@dataclass(frozen=True)
class Scale:
    """Where numbers lie within a range: ``low`` at 0, ``high`` at 1."""

    low: float
    high: float
    log: bool = False

    def __call__(self, value: Any) -> float:
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return (at - low) / (high - low) if high > low else 0.0

    def value(self, position: float) -> float:
        """The number that lies at a position in [0, 1]."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            return math.exp(low + position * (high - low))
        return self.low + position * (self.high - self.low)


@dataclass(frozen=True)
class Axis:
    """A parameter as the model sees it: a number in [0, 1], or one of several choices that have no order."""

    name: str
    scale: Scale | None  # None where the choices have no order
    ranks: Mapping[Scalar, float] | None = None  # of choices that are no numbers

    @property
    def is_categorical(self) -> bool:
        """Whether the choices have no order, so that any two are equally far apart."""
        return self.scale is None

    def code(self, params: Params) -> float:
        """Where a configuration lies on a scale in [0, 1], in the middle where it lacks the parameter.

        On a categorical axis the index of its choice, -1 where it lacks the parameter.
        """
        if self.name not in params:
            return 0.5 if self.scale else -1.0
        value = params[self.name]
        number = float(value if self.ranks is None else self.ranks[value])
        return self.scale(number) if self.scale else number


def axes(parameters: Parameters, prefix: str) -> Iterator[Axis]:
    """The axes of all parameters that are not fixed, those under choices included; ``prefix`` begins their names."""
    for name, parameter in parameters.items():
        if isinstance(parameter, Fixed):
            continue
        full_name = prefix + name
        if not isinstance(parameter, Choices):
            scale = Scale(parameter.low, parameter.high, parameter.log)
            yield Axis(full_name, scale)
            continue
        options = parameter.options
        yield _axis_of_choices(name, prefix, list(options))
        for option, children in options.items():
            yield from axes(children, f"{full_name}={option}.")


def _axis_of_choices(name: str, prefix: str, options: Sequence[Scalar]) -> Axis:
    if all(map(_is_number, options)):
        return Axis(prefix + name, _scale_of_numbers([float(option) for option in options]))
    if name == "freezing" and all(map(_is_freezing_level, options)):
        by_depth = sorted(options, key=lambda level: level_depth(str(level)))
        return Axis(prefix + name, Scale(0, len(options) - 1), _ranks(by_depth))
    return Axis(prefix + name, None, _ranks(options))


def _scale_of_numbers(numbers: Sequence[float]) -> Scale:
    low, high = min(numbers), max(numbers)
    log = low > 0 and high / low >= LOG_RATIO
    return Scale(low, high, log)


def _ranks(options: Sequence[Scalar]) -> dict[Scalar, float]:
    return {option: rank for rank, option in enumerate(options)}


def _is_number(option: Scalar) -> bool:
    return isinstance(option, int | float) and not isinstance(option, bool)


def _is_freezing_level(option: Scalar) -> bool:
    """A recorded table may call anything it likes "freezing"."""
    try:
        check_level(str(option))
    except InputError:
        return False
    return True


class RandomSuggester:
    """A Suggester that draws uniformly, but for the values that are ``given``, and keeps all of them in ``params``."""

    def __init__(self, random: np.random.Generator, given: Mapping[str, Any] | None = None) -> None:
        self._random = random
        self._given = given or {}
        self.params: Params = {}

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        if name in self._given:
            self.params[name] = self._given[name]
        else:
            drawn = self._number(name, Scale(low, high, log))
            self.params[name] = min(max(drawn, low), high)
        return float(self.params[name])

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        if name in self._given:
            self.params[name] = self._given[name]
        else:  # each whole number stands for the range half a unit around it
            drawn = self._number(name, Scale(low - 0.5, high + 0.5, log))
            self.params[name] = min(max(round(drawn), low), high)
        return int(self.params[name])

    def _number(self, name: str, scale: Scale) -> float:
        return scale.value(self._random.random())

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        if name in self._given:
            self.params[name] = self._given[name]
        else:
            self.params[name] = choices[int(self._random.integers(len(choices)))]
        return self.params[name]


class NearbySuggester(RandomSuggester):
    """A Suggester that gives the values of a known configuration, each changed with the same probability.

    What is ``given`` stays. A number moves by a normal step of standard deviation ``size`` on its scale from 0 to 1, turned
    back at the ends; a choice is drawn anew. So are parameters that the known configuration lacks because they stand under
    another choice.
    """

    def __init__(
        self, random: np.random.Generator, known: Params, size: float, given: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(random, given)
        self._known = known
        self._size = size
        self._change_probability = NUM_CHANGED / max(len(known), NUM_CHANGED)

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        if name not in self._given and self._stays(name):
            self.params[name] = self._known[name]
            return self.params[name]
        return super().suggest_categorical(name, choices)

    def _number(self, name: str, scale: Scale) -> float:
        if name not in self._known:
            return super()._number(name, scale)
        value = float(self._known[name])
        if self._stays(name):
            return value
        moved = scale(value) + self._size * self._random.normal()
        return scale.value(_turned_back(moved))

    def _stays(self, name: str) -> bool:
        return name in self._known and self._random.random() >= self._change_probability


def _turned_back(position: float) -> float:
    """A position outside [0, 1] as far inside the end that it passed."""
    within = abs(position) % 2
    return min(within, 2 - within)
