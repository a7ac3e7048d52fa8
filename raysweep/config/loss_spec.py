"""The specification of a loss: its class, parameters, examples, targets and batches."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from raysweep.config.sides import Side
from raysweep.errors import InputError

ExampleKind = Literal["triplet", "labeled_pair", "positive_pair", "scored_pair"]
"""Kinds of mined examples. Add new kinds at the end, because the sampling seed depends on the position."""

# A labeled sentence is a training sentence and its class. It is not mined.
LossExamples = ExampleKind | Literal["labeled_sentence"]

TargetType = Literal["none", "float", "class"]


@dataclass(frozen=True)
class ExampleSchema:
    """The sentence columns of an example and the type of its target."""

    columns: tuple[str, ...]
    targets: TargetType = "none"

    @property
    def sides(self) -> tuple[Side, ...]:
        """Return the side of each column: anchors are queries, and all other sentences are documents."""
        return tuple("query" if column == "anchor" else "document" for column in self.columns)


EXAMPLES: Mapping[LossExamples, ExampleSchema] = MappingProxyType(
    {
        "triplet": ExampleSchema(("anchor", "positive", "negative")),
        # target 1 for the same class, otherwise 0
        "labeled_pair": ExampleSchema(("anchor", "other"), "class"),
        "positive_pair": ExampleSchema(("anchor", "positive")),
        "scored_pair": ExampleSchema(("anchor", "other"), "float"),  # a target cosine
        "labeled_sentence": ExampleSchema(("sentence",), "class"),
    }
)

TargetRule = Literal["examples", "reference_margin", "reference_embedding"]
"""The rules that :func:`raysweep.training.batch.targets_of` can use to compute a batch's targets.

- ``examples``: the targets stored with the examples, if their kind has any.
- ``reference_margin``: cosine(anchor, positive) - cosine(anchor, negative) under the reference encoder.
- ``reference_embedding``: the unit embedding of the first sentence under the reference encoder.
"""

BatchRule = Literal["plain", "by_label"]
"""How batches are formed: from single examples, or from groups of ``examples_per_class`` examples of the same class."""

Value = bool | int | float | str
"""A value of a loss parameter."""

_BOUNDS = (("at_least", "at least"), ("above", "above"), ("at_most", "at most"), ("below", "below"))


@dataclass(frozen=True)
class Number:
    """A numeric parameter of a loss, with optional bounds.

    Attributes:
        default: Default value, or None if the parameter is required.
        keyword: The keyword argument of the class, or empty if raysweep applies the parameter itself.
        off: The value that disables the parameter, if any. It is also allowed for losses without this parameter.
    """

    default: float | None
    keyword: str = ""
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    is_integer: bool = False
    off: float | None = None
    description: str = ""

    @property
    def allowed(self) -> str:
        """Return the allowed values as text, such as "above 0, at most 10"."""
        named = ((words, getattr(self, name)) for name, words in _BOUNDS)
        bounds = [f"{words} {bound:g}" for words, bound in named if bound is not None]
        if self.is_integer:
            return " ".join(["a whole number", ", ".join(bounds)]).strip()
        return ", ".join(bounds) or "a number"

    def check(self, name: str, value: object) -> float:
        """Return the value as a float, or as an int if the parameter is an integer.

        Raises:
            InputError: If the value is not a number or is out of range.
        """
        is_number = isinstance(value, int if self.is_integer else int | float) and not isinstance(
            value, bool
        )
        number: Any = value
        is_in_range = (
            is_number
            and abs(number)
            <= sys.float_info.max  # rejects NaN, infinity and integers beyond the float range
            and (self.at_least is None or number >= self.at_least)
            and (self.above is None or number > self.above)
            and (self.at_most is None or number <= self.at_most)
            and (self.below is None or number < self.below)
        )
        if not is_in_range:
            shown = f"{value:g}" if isinstance(value, float) else repr(value)
            raise InputError(f"{name} is {shown}; allowed: {self.allowed}")
        return int(number) if self.is_integer else float(number)

    def arguments(self, value: float) -> dict[str, Any]:
        """Return the keyword arguments for the class."""
        return {self.keyword: value} if self.keyword else {}


@dataclass(frozen=True)
class Option:
    """An option of a :class:`Choice`, which sets keyword arguments of the loss class or replaces the class."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    class_path: str | None = None


@dataclass(frozen=True)
class Choice:
    """A loss parameter with named options; ``default`` is None if the parameter is required."""

    options: Mapping[bool | str, Option]
    default: bool | str | None
    description: str = ""

    off = None

    @property
    def allowed(self) -> str:
        """Return the options, separated by commas."""
        return ", ".join(
            str(option).lower() if isinstance(option, bool) else option for option in self.options
        )

    def check(self, name: str, value: object) -> bool | str:
        """Return the value; raise InputError if it is not an option."""
        for option in self.options:
            if type(option) is type(value) and option == value:
                return option
        raise InputError(f"{name} is {value!r}; allowed: {self.allowed}")

    def arguments(self, value: bool | str) -> dict[str, Any]:
        """Return the keyword arguments for the class."""
        return dict(self.options[value].arguments)


Parameter = Number | Choice


@dataclass(frozen=True)
class LossSpec:
    """A loss that trials can minimize.

    Attributes:
        examples: The kind of examples that the loss trains on.
        class_path: The import path of the loss class, as ``package.module:Class``.
        parameters: The parameters, keyed by name. A name has the same meaning in all losses.
        constants: Fixed keyword arguments for the class, with import paths as values.
        targets: How a batch's targets are computed.
        batches: How batches are formed.
        has_head: Whether the loss trains a softmax head, which predicts class probabilities.
        description: A description for the reference documentation.
    """

    examples: LossExamples
    class_path: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    targets: TargetRule = "examples"
    batches: BatchRule = "plain"
    has_head: bool = False
    description: str = ""

    @property
    def defaults(self) -> dict[str, Value]:
        """Return the defaults of all parameters that have one."""
        return {
            name: spec.default for name, spec in self.parameters.items() if spec.default is not None
        }

    def class_path_of(self, values: Mapping[str, Value]) -> str:
        """Return the import path of the class, which an option can replace."""
        for name, spec in self.parameters.items():
            if isinstance(spec, Choice):
                option = spec.options[values[name]]  # type: ignore[index]
                if option.class_path is not None:
                    return option.class_path
        return self.class_path

    def arguments(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """Return the keyword arguments for the class, excluding the constants."""
        arguments: dict[str, Any] = {}
        for name, spec in self.parameters.items():
            arguments |= spec.arguments(values[name])  # type: ignore[arg-type]
        return arguments
