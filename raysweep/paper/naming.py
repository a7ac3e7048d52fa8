"""Names of configurations in layouts: the loss, its margin or scale, and the other parameters that differ."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raysweep.paper.layout import ABSENT
from raysweep.paper.model_scores import Configuration, ModelScores, all_configurations
from raysweep.report.tables import describe

_LOSS_PARAMETERS = ("loss", "margin", "scale")


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


class Naming:
    """Names for the configurations of these models.

    Different configurations have different names, though their texts may be equal. ``others`` are the parameters
    outside the loss that vary, or that only some configurations of a loss have.
    """

    def __init__(self, models: Sequence[ModelScores]) -> None:
        configurations = all_configurations(models)
        by_loss: dict[str, list[Configuration]] = defaultdict(list)
        for configuration in configurations:
            by_loss[_loss(configuration.values)].append(configuration)
        self._losses_with_scales = {loss for loss, members in by_loss.items() if _varies("scale", members)}
        parameters = dict.fromkeys(name for configuration in configurations for name in configuration.values)
        self.others: list[str] = []
        for name in parameters:
            is_partial = any(_is_partial(name, model.configurations) for model in models)
            if name not in _LOSS_PARAMETERS and (is_partial or _varies(name, configurations)):
                self.others.append(name)

    def name(self, values: Mapping[str, Any]) -> Name:
        loss, margin = _loss(values), values.get("margin")
        scale = values.get("scale") if loss in self._losses_with_scales else None
        parts = [] if margin is None else [_format(margin)]
        if scale is not None:
            parts.append(f"scale {_format(scale)}")
        present = {name: values[name] for name in self.others if name in values}
        others = describe(present, present) if present else ""
        ranks = [_rank(value) for value in (margin, scale, *map(values.get, self.others))]
        return Name(loss, ", ".join(parts) or ABSENT, others, tuple(ranks))


def _loss(values: Mapping[str, Any]) -> str:
    return str(values.get("loss", ABSENT))


def _is_partial(name: str, configurations: Iterable[Configuration]) -> bool:
    """Return whether only some configurations of one loss have the parameter."""
    presence: dict[str, set[bool]] = defaultdict(set)
    for configuration in configurations:
        presence[_loss(configuration.values)].add(name in configuration.values)
    return any(len(states) > 1 for states in presence.values())


def _varies(name: str, configurations: Iterable[Configuration]) -> bool:
    values = {repr(configuration.values[name]) for configuration in configurations if name in configuration.values}
    return len(values) > 1


def _format(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _rank(value: Any) -> tuple[int, float, str]:
    """Return the sort key of a value: missing values, then numbers, then words."""
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, int | float) else (2, 0.0, str(value))
