"""Conditions on operating points, such as ``polarity >= 0.85``, in the users' syntax."""

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from raysweep.errors import InputError, did_you_mean
from raysweep.report.tables import short

Fields = Mapping[str, Any]  # a point's scores, identity and configuration, by name

SCORES = ("polarity", "similarity", "retention", "accuracy", "objective")

_LEAST = {"polarity": 0.0, "accuracy": 0.0}  # other scores: -1

_CONDITION = re.compile(r"\s*(\w[\w.-]*)\s*(>=|<=|!=|==|=|>|<)\s*([^\s<>=!].*?)\s*")

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")

_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}

_ABSENT = ("none", "null")


@dataclass(frozen=True)
class Condition:
    """A condition on a point's field ``name``; ``text`` is the value as the user wrote it.

    A missing value never satisfies an ordering, and only equals ``none``.
    """

    name: str
    sign: str
    text: str

    def __str__(self) -> str:
        return f"{self.name} {self.sign} {self.text}"

    @property
    def is_order(self) -> bool:
        """Whether the condition is an inequality."""
        return self.sign in _ORDERS

    def is_met(self, fields: Fields) -> bool:
        value = fields.get(self.name)
        if self.is_order:
            return _is_number(value) and _ORDERS[self.sign](value, float(self.text))
        return self._equals(value) != (self.sign == "!=")

    def _equals(self, value: Any) -> bool:
        if value is None:
            return self.text.lower() in _ABSENT
        if isinstance(value, bool):
            return self.text.lower() == str(value).lower()
        if not _is_number(value):
            return bool(self.text == value)
        if _NUMBER.fullmatch(self.text) is None:
            return False
        number = float(self.text)
        return number == float(short(value)) or math.isclose(number, value)  # as rounded in tables, or exact


def read_conditions(
    texts: Iterable[str], points: Collection[Fields], guards: Collection[str] = (), parameters: Iterable[str] = ()
) -> list[Condition]:
    """Parse conditions on points with these fields; ``guards`` names additional fields, which are scores too.

    Points may lack a guard or one of the ``parameters``.

    Raises:
        InputError: If a condition is invalid; the message names the allowed values.
    """
    of_points = [name for fields in points for name in fields if name not in guards]
    names = [*dict.fromkeys([*of_points, *parameters]), *sorted(guards)]
    scores = {*SCORES, *guards}
    return [_read(text, points, names, scores) for text in texts]


def _read(text: str, points: Collection[Fields], names: Sequence[str], scores: Collection[str]) -> Condition:
    found = _CONDITION.fullmatch(text)
    if found is None or (_NUMBER.fullmatch(found[1]) and found[1] not in names):
        raise InputError(f"--where is {text!r}; it is NAME, one of >= > <= < = !=, and a value: 'polarity >= 0.85'")
    name, sign, value = found.groups()
    condition = Condition(name, "=" if sign == "==" else sign, value)
    if name not in names:
        raise InputError(
            f"--where {text!r}: there is no {name}{did_you_mean(name, names)}; allowed: {', '.join(names)}"
        )
    values = [fields.get(name) for fields in points]
    is_score = name in scores
    is_absence = value.lower() in _ABSENT
    if condition.is_order or (is_score and not is_absence):
        _check_number(condition, values)
        if is_score:
            _check_score(condition)
    return condition


def _check_number(condition: Condition, values: Iterable[Any]) -> None:
    """Check that a condition's value is a number that the field's ``values`` can be compared with.

    Raises:
        InputError: If it is not, or if the field holds strings.
    """
    name, text = condition.name, condition.text
    words = sorted({value for value in values if isinstance(value, str)})
    if words:
        allowed = ", ".join(words[:20])
        raise InputError(f"--where '{condition}': {name} is a word, which = and != compare; there are {allowed}")
    if _NUMBER.fullmatch(text) is None:
        several = "; give each condition a --where of its own" if " " in text else ""
        raise InputError(f"--where '{condition}': {text!r} is no number{several}")


def _check_score(condition: Condition) -> None:
    least, number = _LEAST.get(condition.name, -1.0), float(condition.text)
    if least <= number <= 1:
        return
    hint = f": {number / 100:g}, not {condition.text}" if 1 < number <= 100 else ""
    raise InputError(f"--where '{condition}': {condition.name} lies in [{least:g}, 1]{hint}")


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def why_none(conditions: Iterable[Condition], points: Collection[Fields]) -> str:
    """Return why no point meets all conditions: how many points meet each one, and the range of the fields."""
    reasons = []
    for condition in conditions:
        num_meeting = sum(condition.is_met(fields) for fields in points)
        values = [fields.get(condition.name) for fields in points]
        reasons.append(f"{condition} holds for {num_meeting} of {len(points)}{_reach(condition.name, values)}")
    return "; ".join(reasons)


def _reach(name: str, values: Iterable[Any]) -> str:
    """Return the range of numeric values, or the list of strings."""
    values = list(values)
    numbers = [value for value in values if _is_number(value)]
    words = sorted({value for value in values if isinstance(value, str)})
    if numbers:
        return f" ({name} is from {min(numbers):.4g} to {max(numbers):.4g})"
    return f" ({name} is {' or '.join(words[:20])})" if words else f" (none has a {name})"
