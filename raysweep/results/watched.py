"""What a trial changed on watched data: values and their changes as the ledger stores them."""

import dataclasses
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from raysweep.metrics.closeness import Geometry
from raysweep.metrics.measured_value import MeasuredValue


@dataclass(frozen=True)
class WatchedSet:
    """The measures of a set of relations under the untuned and the tuned encoder.

    ``values`` are all measures, those of each group of a pair file; ``whole`` has the PND of the set as a whole by each
    geometry. ``skipped`` counts the groups that cannot be measured, and ``left_out`` the rows of the source that are
    neither positive nor negative.
    """

    name: str
    kind: str
    groups: int
    skipped: int
    left_out: int
    pairs: int
    values: tuple[MeasuredValue, ...]
    whole: tuple[MeasuredValue, ...]

    def whole_by(self, geometry: Geometry) -> MeasuredValue:
        """Return the PND of the set as a whole and its change."""
        return next(value for value in self.whole if value.geometry == geometry)

    def as_json(self) -> dict[str, Any]:
        """Return all measures x100 for :func:`json.dumps`."""
        return {
            "data": self.name,
            "kind": self.kind,
            "groups": self.groups,
            "skipped": self.skipped,
            "left_out": self.left_out,
            "pairs": self.pairs,
            "measures": [value.as_json() for value in self.values],
            "whole": [value.as_json() for value in self.whole],
        }


@dataclass(frozen=True)
class TensorChange:
    """How far training moved a parameter tensor from its untuned values.

    ``relative`` is the L2 norm of the change divided by that of the untuned tensor, None if that is 0, and ``maximum``
    the largest absolute change of an element.
    """

    name: str
    maximum: float
    relative: float | None = None


@dataclass(frozen=True)
class Watched:
    """The measures of one rung's encoder: those of the target, if there is one, and of the watched sets.

    ``learning_rate`` is the trial's peak rate. ``tensors`` has the tensors that changed most by either measure.
    """

    sets: tuple[WatchedSet, ...]
    target: WatchedSet | None = None
    learning_rate: float = 0.0
    tensors: tuple[TensorChange, ...] = ()

    @property
    def score(self) -> float:
        """Return the score ``watched``: the mean of 1 - PND by cosine over the watched sets."""
        return watched_score(watched_set.whole_by("cosine").value for watched_set in self.sets)

    def to_json(self) -> dict[str, Any]:
        """Return the form in a ledger event, without fields that are None."""
        return dataclasses.asdict(self, dict_factory=_without_missing)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Watched":
        """Undo :meth:`to_json`."""
        watched: Watched = TypeAdapter(cls).validate_python(values)
        return watched


def _without_missing(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in items if value is not None}


def watched_score(shares: Iterable[float]) -> float:
    """Return the mean of 1 - PND over sets, given the PND of each by cosine."""
    return 1 - statistics.fmean(shares)


@dataclass(frozen=True)
class WatchedRung:
    """A rung at which watched data was measured."""

    trial: int
    step: int
    watched: Watched
