"""What can be said of a front on one split, given the per-query scores of its members and of what it is compared with."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import Pair
from raysweep.uncertainty import interval
from raysweep.uncertainty.areas import NO_CONSTRAINTS, FrontArea, Gain, HullArea, Share
from raysweep.uncertainty.interval import LEVEL, Interval
from raysweep.uncertainty.many_fronts import knees, memberships
from raysweep.uncertainty.noise import Noise
from raysweep.uncertainty.resamples import RESAMPLES

PointName = tuple[int | None, int | None, str, float | None]
"""Trial, step, kind and value of a point; no trial and step of what no trial made."""

_POINTS_AT_ONCE = 1 << 20  # of resamples by points, when fronts are told apart


@dataclass(frozen=True)
class PointUncertainty:
    """Intervals of a front member's scores, over the queries that might have been drawn.

    ``stability`` is the share of resamples of the queries in which the point is on the front of those that it was compared
    with. It is no probability that the point truly is: a point that is there by luck is there in most resamples too.
    ``knee_share`` is the share in which it is the knee.
    """

    polarity: Interval
    similarity: Interval
    retention: Interval | None
    stability: float
    knee_share: float
    in_knee_region: bool


@dataclass(frozen=True)
class Floor:
    """By how much the front's hypervolume exceeds that of the linear probe on the untuned encoder, on the same queries."""

    gain: float
    interval: Interval

    @property
    def is_beaten(self) -> bool:
        """Whether the lower bound of the difference is above 0."""
        return self.interval.low > 0


@dataclass(frozen=True)
class FrontUncertainty:
    """Intervals of the confidence ``level`` for one split; ``noise`` says what would have to be drawn again."""

    members: Mapping[PointName, PointUncertainty]
    hypervolume: Interval | None
    share: Interval | None
    floor: Floor | None
    num_compared: int  # points among which stability was told
    level: float = LEVEL
    noise: str = "queries"

    @property
    def knee_region(self) -> tuple[PointName, ...]:
        """The fewest members that hold the knee in a share ``level`` of the resamples, the most frequent first."""
        region = [name for name, member in self.members.items() if member.in_knee_region]
        return tuple(sorted(region, key=lambda name: -self.members[name].knee_share))


@dataclass(frozen=True)
class FrontScores:
    """Scores (points, 2, queries), P and S, of all points that a front on one split is judged with, and what each is.

    ``members`` are the front's rows, ``counting`` those of them that meet the constraints; ``rivals`` are the rows of all
    points that trials made, members too. ``oracle`` and ``floor``, the probe, may have none, ``reference`` may be None.
    ``least`` P and S are what the constraints ask for.
    """

    names: Sequence[PointName]
    scores: Float64Array
    members: Sequence[int]
    counting: Sequence[int]
    rivals: Sequence[int]
    reference: int | None
    oracle: Sequence[int] = ()
    floor: Sequence[int] = ()
    least: Pair = NO_CONSTRAINTS


def assess(front: FrontScores, seed: int, resamples: int = RESAMPLES) -> FrontUncertainty:
    """Intervals, stability, knee region and floor of a front, all from the same resamples of the queries."""
    noise = Noise.of_queries(front.scores, seed, resamples)
    shares = _knee_shares(front, noise)
    region = _region(shares)
    stability = _stability(front, noise)
    members = {}
    for row in front.members:
        polarity, similarity, retention = _score_intervals(front, row)
        members[front.names[row]] = PointUncertainty(
            polarity, similarity, retention, stability[row], shares.get(row, 0.0), row in region
        )
    hypervolume, share, floor = _areas(front, noise)
    return FrontUncertainty(members, hypervolume, share, floor, len(front.rivals))


def _score_intervals(front: FrontScores, row: int) -> tuple[Interval, Interval, Interval | None]:
    polarity, similarity = front.scores[row]
    retention = None
    if front.reference is not None:
        retention = interval.of_ratio(similarity, front.scores[front.reference, 1])
    return interval.of_mean(polarity).within(0, 1), interval.of_mean(similarity).within(-1, 1), retention


def _stability(front: FrontScores, noise: Noise) -> dict[int, float]:
    """Of each rival."""
    rivals = list(front.rivals)
    counts = np.zeros(len(rivals))
    num_resamples = len(noise.resampled)
    at_once = max(1, _POINTS_AT_ONCE // max(1, len(rivals)))
    for start in range(0, num_resamples, at_once):
        counts += memberships(noise.resampled[start : start + at_once, rivals]).sum(axis=0)
    stable = counts / num_resamples
    return dict(zip(rivals, stable.tolist(), strict=True))


def _knee_shares(front: FrontScores, noise: Noise) -> dict[int, float]:
    """Of each member that is the knee in any resample; members that miss a constraint are none, unless all do."""
    eligible = list(front.counting or front.members)
    if not eligible:
        return {}
    found = knees(noise.resampled[:, eligible])
    counts = Counter(eligible[index] for index in found.tolist())
    return {row: count / len(found) for row, count in counts.items()}


def _region(shares: Mapping[int, float], level: float = LEVEL) -> set[int]:
    region: set[int] = set()
    held = 0.0
    for row, share in sorted(shares.items(), key=lambda item: -item[1]):
        if held >= level:
            break
        region.add(row)
        held += share
    return region


def _areas(front: FrontScores, noise: Noise) -> tuple[Interval | None, Interval | None, Floor | None]:
    """The intervals of hypervolume and share, and the floor."""
    if front.reference is None or not front.counting:
        return None, None, None
    area = FrontArea(front.counting, front.reference)
    hypervolume = _not_below_zero(noise.interval(area))
    share = floor = None
    if front.oracle:
        limit = HullArea(front.oracle, front.reference, front.least)
        share = _not_below_zero(noise.interval(Share(area, limit)))
    if front.floor:
        gain = Gain(area, FrontArea(front.floor, front.reference))
        floor = Floor(noise.estimate(gain), noise.interval(gain))
    return hypervolume, share, floor


def _not_below_zero(found: Interval) -> Interval:
    return found.within(0.0, np.inf)
