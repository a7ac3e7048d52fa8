"""Difference in hypervolume between two runs' fronts."""

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

# tolerance for an encoder's scores in two runs; processors round differently
MAX_DIFFERENCE = 1e-3

SEED = 0  # fixed for reproducible intervals


@dataclass(frozen=True)
class AreaDifference:
    """The hypervolume of run ``label`` minus that of run ``other`` on one split.

    ``interval`` accounts for query noise and, if ``has_seeds``, seed noise. If there is no interval,
    ``why_none`` gives the reason.
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
        """The sources of noise that the interval covers."""
        return noise_text(has_seeds=self.has_seeds)


@dataclass(frozen=True)
class CountedFront:
    """The points on a run's front that count toward its hypervolume ``area`` on a split."""

    label: str
    summary: Summary
    split: ScoredSplit
    points: Sequence[Point]
    area: float

    @property
    def why_unknown(self) -> str:
        """The reason why per-query scores are missing, or an empty string if none are missing."""
        split, summary = self.split, self.summary
        missing_result = missing_intervals(split)
        damage = summary.damage.get(missing_result)
        if damage is not None:
            return damage
        stored = summary.scores.get(split)
        if stored is None or REFERENCE not in stored:
            return f"{self.label} does not store per-query scores"
        num_missing = sum(name not in stored for name in self.names)
        if num_missing:
            return f"{self.label} does not store per-query scores for {num_missing} of its points"
        return ""

    @property
    def names(self) -> list[PointName]:
        return [name_of_point(point) for point in self.points]

    @property
    def stored(self) -> QueryScores:
        return self.summary.scores[self.split]

    @property
    def scores(self) -> Float64Array:
        """The points' per-query scores, (points, 2, queries)."""
        return stacked(self.stored, self.names)

    @property
    def reference(self) -> Float64Array:
        """The reference encoder's per-query scores, (1, 2, queries)."""
        return stacked(self.stored, [REFERENCE])

    @cached_property
    def runs(self) -> StoredRuns | None:
        """The runs of the points' configurations, or None if some points have no dev scores."""
        dev = self.summary.scores.get("dev")
        if dev is None or not all(name in dev for name in self.names):
            return None
        return StoredRuns(self.summary.results, dev)


def difference(front: CountedFront, other: CountedFront, level: float) -> AreaDifference:
    """Return the difference in hypervolume between two fronts on one split.

    It has an interval at confidence ``level`` if the required scores are stored.
    """
    estimate = front.area - other.area
    why_none = front.why_unknown or other.why_unknown
    if not why_none and not _are_same_queries(front.reference, other.reference):
        why_none = f"{front.label} and {other.label} were scored on different queries, or in a different order"
    if why_none:
        return AreaDifference(front.split, front.label, other.label, estimate, None, why_none)
    with_seeds = _noise_with_seeds(front, other)
    if with_seeds is None:
        scores = [front.scores, other.scores, front.reference]
        noise = Noise.of_queries(np.concatenate(scores), SEED)
        num_first = len(front.points)
    else:
        noise, num_first = with_seeds
    at_reference = len(noise.means) - 1
    goals = front.summary.goals
    area = FrontArea(range(num_first), at_reference, goals)
    other_area = FrontArea(range(num_first, at_reference), at_reference, goals)
    gain = Gain(area, other_area)
    return AreaDifference(
        split=front.split,
        label=front.label,
        other=other.label,
        estimate=estimate,
        interval=noise.interval(gain, level),
        has_seeds=noise.seeds is not None,
    )


def _noise_with_seeds(front: CountedFront, other: CountedFront) -> tuple[Noise, int] | None:
    """Return the noise over queries and seeds, and the number of points from the first front.

    The noise covers the first front, the other front and the reference, in this order. Points are averaged over the
    runs of their configuration. Return None if replicates, dev scores or points are missing.
    """
    runs, other_runs = front.runs, other.runs
    has_points = bool(front.points or other.points)
    if runs is None or other_runs is None or not has_points:
        return None
    replicated = [*runs.replicated(), *other_runs.replicated()]
    seed_noise = SeedNoise(replicated)
    if not seed_noise.is_known:
        return None
    configurations = runs.scored(front.names, front.stored)
    num_first = sum(len(configuration.scores) for configuration in configurations)
    configurations += other_runs.scored(other.names, other.stored)
    trained = Trained(configurations, seed_noise)
    noise = noise_of(trained, front.reference, SEED)
    return noise, num_first


def _are_same_queries(one: Float64Array, other: Float64Array) -> bool:
    """Return whether two runs' reference scores (1, 2, queries) are for the same queries.

    S must agree for most queries; a few may differ because of rounding.
    """
    if one.shape != other.shape:
        return False
    differences = np.abs(one[0, 1] - other[0, 1])
    return bool(np.median(differences) <= MAX_DIFFERENCE)
