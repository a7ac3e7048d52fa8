"""By how much hypervolumes of two runs' fronts differ, and the interval of that where scores of each query are stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.report.certainty import REFERENCE
from raysweep.report.replicates import StoredRuns, stacked
from raysweep.report.summary import Summary, missing_intervals
from raysweep.results.query_scores import PointName, QueryScores, name_of_point
from raysweep.results.types import Point, ScoredSplit
from raysweep.uncertainty.areas import FrontArea, Gain
from raysweep.uncertainty.configurations import SeedNoise, Trained, noise_of, noise_text
from raysweep.uncertainty.interval import Interval
from raysweep.uncertainty.noise import Noise

MOST_DIFFERENCE = 1e-3  # between the scores of one encoder in two runs: processors round otherwise

SEED = 0  # of the bootstrap: the same runs give the same interval


@dataclass(frozen=True)
class AreaDifference:
    """By how much the hypervolume of ``label`` exceeds that of ``other`` on a split.

    Where there is no ``interval``, ``why_none`` says why. It is over queries, and with ``has_seeds`` over seeds too.
    """

    split: ScoredSplit
    label: str
    other: str
    estimate: float
    interval: Interval | None
    why_none: str = ""
    has_seeds: bool = False

    @property
    def noise(self) -> str:
        """What the interval is over."""
        return noise_text(has_seeds=self.has_seeds)


@dataclass(frozen=True)
class Front:
    """The points of a run's front on a split that count for its hypervolume, which is ``area``."""

    label: str
    summary: Summary
    split: ScoredSplit
    points: Sequence[Point]
    area: float

    @property
    def why_unknown(self) -> str:
        """Why scores of each query are not known of all points; empty where they are."""
        damage = self.summary.damage.get(missing_intervals(self.split))
        if damage is not None:
            return damage
        stored = self.summary.scores.get(self.split)
        if stored is None or REFERENCE not in stored:
            return f"{self.label} has not stored its scores on each query"
        num_missing = sum(name not in stored for name in self.names)
        if num_missing:
            return f"{self.label} has not stored the scores of {num_missing} of its points on each query"
        return ""

    @property
    def names(self) -> list[PointName]:
        return [name_of_point(point) for point in self.points]

    @property
    def stored(self) -> QueryScores:
        return self.summary.scores[self.split]

    @property
    def scores(self) -> Float64Array:
        """Of each query (points, 2, queries)."""
        return stacked(self.stored, self.names)

    @property
    def reference(self) -> Float64Array:
        """Of the reference encoder (1, 2, queries)."""
        return stacked(self.stored, [REFERENCE])

    @cached_property
    def runs(self) -> StoredRuns | None:
        """Which runs the points' configurations had; None where dev has no scores of the points, which tell."""
        dev = self.summary.scores.get("dev")
        if dev is None or not all(name in dev for name in self.names):
            return None
        return StoredRuns(self.summary.results, dev)


def difference(front: Front, other: Front, level: float) -> AreaDifference:
    """Of two fronts on one split, with an interval of this level where all that it needs is stored."""
    estimate = front.area - other.area
    why_none = front.why_unknown or other.why_unknown
    if not why_none and not _are_same_queries(front.reference, other.reference):
        why_none = f"{front.label} and {other.label} were not scored on the same queries, or in another order"
    if why_none:
        return AreaDifference(front.split, front.label, other.label, estimate, None, why_none)
    noise, num_first = _noise(front, other)
    at_reference = len(noise.means) - 1
    gain = Gain(
        FrontArea(range(num_first), at_reference),
        FrontArea(range(num_first, at_reference), at_reference),
    )
    return AreaDifference(
        split=front.split,
        label=front.label,
        other=other.label,
        estimate=estimate,
        interval=noise.interval(gain, level),
        has_seeds=noise.seeds is not None,
    )


def _noise(front: Front, other: Front) -> tuple[Noise, int]:
    """That of the first front's points, whose number is given too, then of the other's, and last of the reference.

    With seeds the points are those of configurations, where any has a second run in either run.
    """
    seeds = _noise_with_seeds(front, other)
    if seeds is not None:
        return seeds
    scores = [front.scores, other.scores, front.reference]
    noise = Noise.of_queries(np.concatenate(scores), SEED)
    return noise, len(front.points)


def _noise_with_seeds(front: Front, other: Front) -> tuple[Noise, int] | None:
    """None where no configuration has a second run in either, or neither front has a point."""
    runs, others = front.runs, other.runs
    has_points = bool(front.points or other.points)
    if runs is None or others is None or not has_points:
        return None
    of_seeds = SeedNoise([*runs.replicated(), *others.replicated()])
    if not of_seeds.is_known:
        return None
    first = runs.scored(front.names, front.stored)
    second = others.scored(other.names, other.stored)
    trained = Trained([*first, *second], of_seeds)
    num_first = sum(len(each.scores) for each in first)
    return noise_of(trained, front.reference, SEED), num_first


def _are_same_queries(one: Float64Array, other: Float64Array) -> bool:
    """Whether the reference encoder's S of (1, 2, queries) is the same query by query, but for a few that rounding moved."""
    if one.shape != other.shape:
        return False
    differences = np.abs(one[0, 1] - other[0, 1])
    return bool(np.median(differences) <= MOST_DIFFERENCE)
