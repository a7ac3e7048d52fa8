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
    """Measures on one set of relations under the untuned and the tuned encoder.

    ``values`` holds all measures, separately for each group in a pair file. ``whole`` holds the PND, the share of
    wrongly ordered (positive, negative) pairs, over the entire set, once per geometry. ``skipped`` is the number of
    groups that cannot be measured, and ``left_out`` the number of source rows that are neither positive nor negative.
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
        """Return the PND over the entire set under one geometry, together with its change."""
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

    ``relative`` is the L2 norm of the change divided by the norm of the untuned tensor, or None if that norm is 0.
    ``maximum`` is the largest absolute change in any element.
    """

    name: str
    maximum: float
    relative: float | None = None


@dataclass(frozen=True)
class Watched:
    """Measures of one rung's encoder on the watched sets and, if there is one, on the target.

    ``learning_rate`` is the trial's peak learning rate. ``tensors`` holds the tensors that changed the most, by
    either measure of change.
    """

    sets: tuple[WatchedSet, ...]
    target: WatchedSet | None = None
    learning_rate: float = 0.0
    tensors: tuple[TensorChange, ...] = ()

    @property
    def score(self) -> float:
        """Return the ``watched`` score: the mean of 1 - PND over the watched sets, based on cosines."""
        return watched_score(watched_set.whole_by("cosine").value for watched_set in self.sets)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for a ledger event, leaving out fields that are None."""
        return dataclasses.asdict(self, dict_factory=_without_missing)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Watched":
        """Parse the JSON form that :meth:`to_json` returns."""
        watched: Watched = TypeAdapter(cls).validate_python(values)
        return watched


def _without_missing(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in items if value is not None}


def watched_score(shares: Iterable[float]) -> float:
    """Return the mean of 1 - PND over several sets; ``shares`` holds each set's PND based on cosines."""
    return 1 - statistics.fmean(shares)


@dataclass(frozen=True)
class WatchedRung:
    """A rung whose encoder was measured on watched data."""

    trial: int
    step: int
    watched: Watched
