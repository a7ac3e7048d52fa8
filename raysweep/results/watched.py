"""Measures on watched data before and after tuning, as stored in the ledger."""

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
    """Measures on one set of relations, for the untuned and the tuned encoder.

    ``values`` holds all measures, separately for each group of a pair file. ``whole`` holds the PND
    over the entire set for each geometry. The PND is the share of (positive, negative) pairs in the
    wrong order. ``skipped`` is the number of groups that cannot be measured. ``left_out`` is the
    number of source rows that are neither positive nor negative.
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
        """Return the PND over the entire set for one geometry."""
        return next(value for value in self.whole if value.geometry == geometry)

    def as_json(self) -> dict[str, Any]:
        """Return all measures, multiplied by 100, as JSON-serializable values."""
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
    """The change of a parameter tensor from its untuned values.

    ``maximum`` is the largest absolute change of an element. ``relative`` is the L2 norm of the
    change divided by that of the untuned tensor, or None if the latter is 0.
    """

    name: str
    maximum: float
    relative: float | None = None


@dataclass(frozen=True)
class Watched:
    """Measures of one rung's encoder on the watched sets and on the target, if any.

    ``learning_rate`` is the trial's peak learning rate. ``tensors`` holds the tensors with the
    largest relative or absolute changes.
    """

    sets: tuple[WatchedSet, ...]
    target: WatchedSet | None = None
    learning_rate: float = 0.0
    tensors: tuple[TensorChange, ...] = ()

    @property
    def score(self) -> float:
        """Return the ``watched`` score, the mean of 1 - PND over the watched sets under cosine similarity."""
        return watched_score(watched_set.whole_by("cosine").value for watched_set in self.sets)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form without fields that are None."""
        return dataclasses.asdict(self, dict_factory=_without_missing)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Watched":
        """Parse the JSON form that :meth:`to_json` returns."""
        watched: Watched = TypeAdapter(cls).validate_python(values)
        return watched


def _without_missing(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in items if value is not None}


def watched_score(shares: Iterable[float]) -> float:
    """Return the mean of 1 - PND; ``shares`` holds each set's PND under cosine similarity."""
    return 1 - statistics.fmean(shares)


@dataclass(frozen=True)
class WatchedRung:
    """A rung whose encoder was measured on watched data."""

    trial: int
    step: int
    watched: Watched
