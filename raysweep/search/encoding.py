"""Encoding of parameter values as numbers, and sampling of random values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

Params = dict[str, Any]  # a configuration, with names such as ``loss=triplet.margin``


# positive numeric choices use a log scale if the ratio of the largest to the smallest is at least this
LOG_RATIO = 4.0


@dataclass(frozen=True)
class Scale:
    """A map from a range to [0, 1], with ``low`` mapped to 0 and ``high`` to 1."""

    low: float
    high: float
    log: bool = False

    def __call__(self, value: Any) -> float:
        low, high = self._ends
        at = math.log(value) if self.log else value
        return (at - low) / (high - low) if high > low else 0.0

    def value(self, position: float) -> float:
        """Return the number at a position in [0, 1]."""
        low, high = self._ends
        at = low + position * (high - low)
        return math.exp(at) if self.log else at

    @cached_property
    def _ends(self) -> tuple[float, float]:
        return (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)


class Numbers:
    """A numeric parameter, continuous or with evenly spaced values."""

    is_categorical = False
    absent = 0.5  # code for configurations without the parameter

    def __init__(self, distribution: FloatDistribution | IntDistribution) -> None:
        self._low, self._high = distribution.low, distribution.high
        self._is_integer = isinstance(distribution, IntDistribution)
        # Sample from a range that is half a step wider at each end, so that rounding does not disfavor the ends.
        log_step = 1 if self._is_integer else None
        self._step = log_step if distribution.log else distribution.step
        self._scale = Scale(self._low, self._high, distribution.log)
        reach = (self._step or 0.0) / 2
        self._drawn = Scale(self._low - reach, self._high + reach, distribution.log)

    def code(self, value: Any) -> float:
        """Return the value's position, which is in [0, 1] if the value is in the range."""
        number = float(value)
        has_position = number > 0 or not self._scale.log
        return self._scale(number if has_position else self._clip(number))

    def clip(self, value: Any) -> Any:
        """Return the nearest value in the range."""
        return self._clip(value)

    def draw(self, random: np.random.Generator) -> float:
        """Return a random value from a uniform distribution on the parameter's scale."""
        return self._nearest(self._drawn.value(random.random()))

    def draw_near(self, value: Any, size: float, random: np.random.Generator) -> float:
        """Return the value plus a normally distributed step, reflected at the ends of the range.

        ``size`` is the standard deviation of the step on the scale from 0 to 1.
        """
        moved = self._drawn(self._clip(float(value))) + size * random.normal()
        beyond_start = abs(moved) % 2  # reflected at 0
        reflected = min(beyond_start, 2 - beyond_start)  # reflected at 1
        return self._nearest(self._drawn.value(reflected))

    def _nearest(self, value: float) -> float:
        if self._step:
            num_steps = round((value - self._low) / self._step)
            value = self._low + self._step * num_steps
        clipped = self._clip(value)
        return round(clipped) if self._is_integer else clipped

    def _clip(self, value: float) -> float:
        return min(max(value, self._low), self._high)


class Choice:
    """A categorical parameter, encoded as a position in [0, 1] if the choices are ordered, or else an index."""

    def __init__(
        self, distribution: CategoricalDistribution, ordered: Sequence[Any] | None = None
    ) -> None:
        """Initialize the parameter. ``ordered`` lists the choices in order if they are ordered but not numeric."""
        self._distribution = distribution
        self._choices = distribution.choices
        self._positions = _positions(self._choices, ordered)
        self.is_categorical = self._positions is None
        self.absent = -1.0 if self.is_categorical else 0.5

    def code(self, value: Any) -> float:
        """Return the code of a choice, or :attr:`absent` if the value is not one of the choices."""
        try:
            index = int(self._distribution.to_internal_repr(value))
        except ValueError:
            return self.absent
        return float(index) if self._positions is None else self._positions[index]

    def draw(self, random: np.random.Generator) -> Any:
        """Return a uniformly random choice."""
        return self._choices[int(random.integers(len(self._choices)))]

    def clip(self, value: Any) -> Any:
        """Return the value unchanged."""
        return value

    def draw_near(self, value: Any, size: float, random: np.random.Generator) -> Any:
        """Return a random choice."""
        return self.draw(random)


Axis = Numbers | Choice  # a parameter as the model sees it


def axis_of(distribution: BaseDistribution, ordered: Sequence[Any] | None = None) -> Axis:
    """Return the axis of a parameter; see :class:`Choice` for ``ordered``."""
    if isinstance(distribution, CategoricalDistribution):
        return Choice(distribution, ordered)
    if isinstance(distribution, FloatDistribution | IntDistribution):
        return Numbers(distribution)
    raise TypeError(
        f"the distribution is a {type(distribution).__name__}; allowed: FloatDistribution, IntDistribution and "
        "CategoricalDistribution"
    )


def _positions(choices: Sequence[Any], ordered: Sequence[Any] | None) -> list[float] | None:
    """Return the position of each choice in [0, 1], or None if the choices are unordered."""
    if ordered is not None:
        scale = Scale(0, len(ordered) - 1)
        return [scale(ordered.index(choice)) for choice in choices]
    if not all(map(_is_number, choices)):
        return None
    low, high = min(choices), max(choices)
    log = low > 0 and high / low >= LOG_RATIO
    scale = Scale(low, high, log)
    return [scale(choice) for choice in choices]


def _is_number(choice: Any) -> bool:
    return (
        isinstance(choice, int | float) and not isinstance(choice, bool) and math.isfinite(choice)
    )
