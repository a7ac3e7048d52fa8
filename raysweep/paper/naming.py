"""Names of configurations in tables: the loss, its margin or scale, and the other parameters that differ."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from raysweep.paper.recording import Configuration, Recording, configurations_of
from raysweep.report.tables import ABSENT, describe

_OF_THE_LOSS = ("loss", "margin", "scale")


@dataclass(frozen=True)
class Name:
    """Name of a configuration.

    ``margin`` is that of its loss, with ``scale 20`` if scales differ; ``others`` may be empty.
    """

    loss: str
    margin: str
    others: str = ""
    order: tuple[Any, ...] = ()  # sort key after the loss

    @property
    def text(self) -> str:
        """Return the name without the loss, in words."""
        margin = f"margin {self.margin}" if self.margin[0].isdigit() else self.margin
        return ", ".join(part for part in (margin, self.others) if part not in ("", ABSENT)) or ABSENT


@dataclass(frozen=True)
class Naming:
    """Names for the configurations of these recordings.

    Different configurations have different names, though their texts may be equal.
    """

    recordings: Sequence[Recording]

    def name(self, values: Mapping[str, Any]) -> Name:
        loss = str(values.get("loss", ABSENT))
        margin = values.get("margin")
        scale = values.get("scale") if loss in self._losses_of_varied_scale else None
        given = {name: values[name] for name in self.others if name in values}
        others = describe(given, given) if given else ""
        ranks = [_rank(value) for value in (margin, scale, *map(values.get, self.others))]
        return Name(loss, _of_the_loss(margin, scale), others, tuple(ranks))

    @cached_property
    def others(self) -> tuple[str, ...]:
        """Return the parameters outside the loss that vary, or that only some configurations of a loss have."""
        names = [name for name in _parameters(self._all) if name not in _OF_THE_LOSS]
        return tuple(name for name in names if _varies(name, self._all) or self._is_missing_in_some(name))

    def _is_missing_in_some(self, name: str) -> bool:
        """Return whether only some configurations of one loss in one recording have the parameter."""
        having: dict[tuple[int, str], set[bool]] = defaultdict(set)
        for number, recording in enumerate(self.recordings):
            for each in recording.configurations:
                having[number, str(each.values.get("loss"))].add(name in each.values)
        return any(len(answers) > 1 for answers in having.values())

    @cached_property
    def _losses_of_varied_scale(self) -> frozenset[str]:
        losses = {str(each.values.get("loss")) for each in self._all}
        of_loss = {loss: [each for each in self._all if str(each.values.get("loss")) == loss] for loss in losses}
        return frozenset(loss for loss, several in of_loss.items() if _varies("scale", several))

    @property
    def _all(self) -> list[Configuration]:
        return configurations_of(self.recordings)


def _parameters(configurations: Iterable[Configuration]) -> list[str]:
    return list(dict.fromkeys(name for configuration in configurations for name in configuration.values))


def _varies(name: str, configurations: Iterable[Configuration]) -> bool:
    return len({repr(each.values[name]) for each in configurations if name in each.values}) > 1


def _of_the_loss(margin: Any, scale: Any) -> str:
    """Return a loss's margin and scale, if any, in words."""
    parts = [] if margin is None else [_short(margin)]
    if scale is not None:
        parts.append(f"scale {_short(scale)}")
    return ", ".join(parts) or ABSENT


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _rank(value: Any) -> tuple[int, float, str]:
    """Return the sort key of a value: missing values, then numbers, then words."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, str(value)
