"""Values of parameters as numbers, for models that learn from them, and values drawn at random."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

Params = dict[str, Any]  # a configuration under the names that a sampler knows, such as ``loss=triplet.margin``


LOG_RATIO = 4.0  # choices among positive numbers whose ends differ by this factor lie on a logarithmic scale


@dataclass(frozen=True)
class Scale:
    """Where numbers lie within a range: ``low`` at 0, ``high`` at 1."""

    low: float
    high: float
    log: bool = False

    def __call__(self, value: Any) -> float:
        low, high = self._ends
        at = math.log(value) if self.log else value
        return (at - low) / (high - low) if high > low else 0.0

    def value(self, position: float) -> float:
        """The number that lies at a position in [0, 1]."""
        low, high = self._ends
        at = low + position * (high - low)
        return math.exp(at) if self.log else at

    @cached_property
    def _ends(self) -> tuple[float, float]:
        """Where the range begins and ends, as logarithms if it is logarithmic."""
        return (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)


class Numbers:
    """A parameter that is any number of a range, or one of evenly spaced ones."""

    is_categorical = False
    absent = 0.5  # the code of a configuration that lacks the parameter: the middle

    def __init__(self, distribution: FloatDistribution | IntDistribution) -> None:
        self._low, self._high = distribution.low, distribution.high
        self._is_whole = isinstance(distribution, IntDistribution)
        # Numbers between which nothing lies stand each for the range half a step around them.
        log_step = 1 if self._is_whole else None
        self._step = log_step if distribution.log else distribution.step
        self._scale = Scale(self._low, self._high, distribution.log)
        reach = (self._step or 0.0) / 2
        self._drawn = Scale(self._low - reach, self._high + reach, distribution.log)

    def code(self, value: Any) -> float:
        """Where the value lies in [0, 1], at an end if it is beyond it."""
        within = min(max(float(value), self._low), self._high)
        return self._scale(within)

    def draw(self, random: np.random.Generator) -> float:
        """Any of the numbers, with the same probability."""
        return self._nearest(self._drawn.value(random.random()))

    def draw_near(self, value: Any, size: float, random: np.random.Generator) -> float:
        """A number so many (``size``) standard deviations of a normal step away, on the scale; turned back at the ends."""
        within = min(max(float(value), self._low), self._high)
        moved = self._drawn(within) + size * random.normal()
        return self._nearest(self._drawn.value(_turned_back(moved)))

    def _nearest(self, value: float) -> float:
        """The number of the range that is nearest."""
        if self._step:
            value = self._low + self._step * round((value - self._low) / self._step)
        within = min(max(value, self._low), self._high)
        return round(within) if self._is_whole else within


class Choice:
    """A parameter that is one of several choices: at a position in [0, 1] if they have an order, otherwise an index."""

    def __init__(self, distribution: CategoricalDistribution, ordered: Sequence[Any] | None = None) -> None:
        """``ordered`` are the choices in their order, if they have one that is not that of numbers."""
        self._distribution = distribution
        self._choices = distribution.choices
        self._positions = _positions(self._choices, ordered)
        self.is_categorical = self._positions is None  # no order: any two are equally far apart
        self.absent = -1.0 if self.is_categorical else 0.5

    def code(self, value: Any) -> float:
        """The place of the choice; that of an absent one where the value is none of the choices."""
        try:
            index = int(self._distribution.to_internal_repr(value))
        except ValueError:
            return self.absent
        return float(index) if self._positions is None else self._positions[index]

    def draw(self, random: np.random.Generator) -> Any:
        """Any of the choices, with the same probability."""
        return self._choices[int(random.integers(len(self._choices)))]

    def draw_near(self, value: Any, size: float, random: np.random.Generator) -> Any:
        """Any of the choices: none is near another."""
        return self.draw(random)


Axis = Numbers | Choice  # a parameter as the model sees it


def axis_of(distribution: BaseDistribution, ordered: Sequence[Any] | None = None) -> Axis:
    """A parameter of this distribution as the model sees it; ``ordered`` are its choices in their order, if any."""
    if isinstance(distribution, CategoricalDistribution):
        return Choice(distribution, ordered)
    if isinstance(distribution, FloatDistribution | IntDistribution):
        return Numbers(distribution)
    raise TypeError(f"{type(distribution).__name__} is no distribution of numbers or choices")


def _positions(choices: Sequence[Any], ordered: Sequence[Any] | None) -> list[float] | None:
    """Where each choice lies in [0, 1]; None where the choices have no order."""
    if ordered is not None:
        scale = Scale(0, len(ordered) - 1)
        return [scale(ordered.index(choice)) for choice in choices]
    if not all(map(_is_number, choices)):
        return None
    low, high = min(choices), max(choices)
    log = low > 0 and high / low >= LOG_RATIO
    return [Scale(low, high, log)(choice) for choice in choices]


def _is_number(choice: Any) -> bool:
    return isinstance(choice, int | float) and not isinstance(choice, bool) and math.isfinite(choice)


def _turned_back(position: float) -> float:
    """A position outside [0, 1] as far inside the end that it passed."""
    within = abs(position) % 2
    return min(within, 2 - within)
