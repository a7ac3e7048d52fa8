"""Uncertainty of a front on one split, estimated from per-query scores."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.scores import GOALS, Goals, Pair
from raysweep.uncertainty import interval
from raysweep.uncertainty.areas import NO_CONSTRAINTS, FrontArea, Gain, HullArea, Share
from raysweep.uncertainty.configurations import Trained, noise_of, noise_text
from raysweep.uncertainty.interval import LEVEL, Interval, ScoreIntervals
from raysweep.uncertainty.many_fronts import dominated, knees, memberships
from raysweep.uncertainty.noise import Noise
from raysweep.uncertainty.resamples import RESAMPLES, Resamples

PointName = tuple[int | None, int | None, str, float | None]
"""A point's trial, step, kind and value. Points that do not come from a trial have neither a trial nor a step."""

_POINTS_AT_ONCE = 1000  # points per block, which limits a block of resampled means to 16 MB


@dataclass(frozen=True)
class PointUncertainty(ScoreIntervals):
    """Uncertainty of a front member. The intervals account for the sampling of queries.

    ``stability`` is the share of query resamples in which the point is on the front. It is not the probability that the
    point is truly on the front, because a lucky point is also on the front in most resamples. ``knee_share`` is the share
    of resamples in which the point is the knee.
    """

    stability: float
    knee_share: float
    in_knee_region: bool


@dataclass(frozen=True)
class Floor:
    """The front's gain in hypervolume over a linear probe on the untuned encoder."""

    gain: float
    interval: Interval

    @property
    def is_beaten(self) -> bool:
        """Return whether the front is significantly better than the probe."""
        return self.interval.low > 0

    @property
    def is_better(self) -> bool:
        """Return whether the probe is significantly better than the front."""
        return self.interval.high < 0


@dataclass(frozen=True)
class FrontUncertainty:
    """Intervals for one split at confidence ``level``.

    They account for the sampling of queries. If ``has_seeds`` is True, the intervals for hypervolume, share and floor also
    account for seed noise.
    """

    members: Mapping[PointName, PointUncertainty]
    others: Mapping[PointName, ScoreIntervals]  # compared with the front
    hypervolume: Interval | None
    share: Interval | None
    floor: Floor | None
    num_compared: int  # number of points compared for stability
    level: float = LEVEL
    has_seeds: bool = False

    @property
    def noise(self) -> str:
        """Return the sources of variation covered by the intervals for hypervolume, share and floor."""
        return noise_text(has_seeds=self.has_seeds)

    def of(self, name: PointName) -> ScoreIntervals | None:
        """Return the intervals for a point, or None if its per-query scores are unknown."""
        return self.members.get(name) or self.others.get(name)

    @property
    def knee_region(self) -> tuple[PointName, ...]:
        """Return the smallest set of members that contains the knee in at least a fraction ``level`` of the resamples.

        Members are sorted by descending knee share.
        """
        region = [name for name, member in self.members.items() if member.in_knee_region]
        return tuple(sorted(region, key=lambda name: -self.members[name].knee_share))


@dataclass(frozen=True)
class FrontQueryScores:
    """Per-query scores of the points needed to assess a front on one split.

    ``members``, ``feasible``, ``rivals``, ``reference``, ``oracle`` and ``floor`` are rows of ``scores``.

    Attributes:
        names: Names of all points.
        scores: P and S of all points, (points, 2, queries).
        members: Points on the front.
        feasible: Members that meet the constraints.
        rivals: All points from trials, including members.
        reference: The reference encoder, or None.
        oracle: Points of the oracle; may be empty.
        floor: Points of the linear probe; may be empty.
        least: Minimum P and S that the constraints require.
        trained: Configurations of the feasible members, if any of the run's configurations were trained several times.
            Areas are then computed for configurations, and their intervals also account for seed noise.
        goals: The scores that serve as P and S.
    """

    names: Sequence[PointName]
    scores: Float64Array
    members: Sequence[int]
    feasible: Sequence[int]
    rivals: Sequence[int]
    reference: int | None
    oracle: Sequence[int] = ()
    floor: Sequence[int] = ()
    least: Pair = NO_CONSTRAINTS
    trained: Trained | None = None
    goals: Goals = GOALS

    @property
    def judged(self) -> list[int]:
        """Return the sorted rows of the members, oracle, floor and reference."""
        others = [] if self.reference is None else [self.reference]
        return sorted({*self.members, *self.oracle, *self.floor, *others})

    @property
    def other_rivals(self) -> list[int]:
        """Return the rows of rivals that are not members."""
        members = set(self.members)
        return [row for row in self.rivals if row not in members]

    def among_judged(self, rows: Iterable[int]) -> list[int]:
        """Return these rows' indices in :attr:`judged`."""
        place = {row: index for index, row in enumerate(self.judged)}
        return [place[row] for row in rows]

    def only_judged(self) -> "FrontQueryScores":
        """Return only the scores of the :attr:`judged` points."""
        rows = self.judged
        members = self.among_judged(self.members)
        return replace(
            self,
            names=[self.names[row] for row in rows],
            scores=self.scores[rows],
            members=members,
            feasible=self.among_judged(self.feasible),
            rivals=members,
            reference=None if self.reference is None else rows.index(self.reference),
            oracle=self.among_judged(self.oracle),
            floor=self.among_judged(self.floor),
        )


def assess(front: FrontQueryScores, seed: int, resamples: int = RESAMPLES) -> FrontUncertainty:
    """Return a front's uncertainty, estimated with query resamples."""
    query_resamples = Resamples(front.scores.shape[-1], seed, resamples)
    resampled = query_resamples.means(front.scores[front.judged])
    stability = _stability(front, query_resamples, resampled)
    judged = front.only_judged()
    noise = Noise(judged.scores.mean(axis=-1), resampled, query_resamples.num_queries)
    knee_shares = _knee_shares(judged, noise)
    region = _region(knee_shares)
    intervals = _score_intervals(front)
    members = {}
    for row in judged.members:
        name = judged.names[row]
        own = intervals.pop(name)
        members[name] = PointUncertainty(
            polarity=own.polarity,
            similarity=own.similarity,
            retention=own.retention,
            stability=stability[name],
            knee_share=knee_shares.get(row, 0.0),
            in_knee_region=row in region,
        )
    hypervolume, share, floor = _areas(judged, noise, seed)
    return FrontUncertainty(
        members=members,
        others=intervals,
        hypervolume=hypervolume,
        share=share,
        floor=floor,
        num_compared=len(front.rivals),
        has_seeds=front.trained is not None,
    )


def _score_intervals(front: FrontQueryScores) -> dict[PointName, ScoreIntervals]:
    intervals: dict[PointName, ScoreIntervals] = {}
    rows = range(len(front.names))
    for block in _blocks(rows):
        names = [front.names[row] for row in block]
        scores = front.scores[block]
        polarity, similarity = scores[:, 0], scores[:, 1]
        polarities, similarities = interval.of_means(polarity), interval.of_means(similarity)
        retentions: Sequence[Interval | None] = [None] * len(block)
        if front.reference is not None:
            reference_similarity = front.scores[front.reference, 1]
            ratios = interval.of_ratios(similarity, reference_similarity)
            retentions = [ratio.within(-np.inf, 1) for ratio in ratios]
        block_intervals = map(ScoreIntervals, polarities, similarities, retentions)
        for name, point_intervals in zip(names, block_intervals, strict=True):
            intervals[name] = point_intervals.within(front.goals)
    return intervals


def _stability(
    front: FrontQueryScores, query_resamples: Resamples, judged: Float64Array
) -> dict[PointName, float]:
    """Return each member's stability.

    Rivals are compared in blocks because there may be many thousands of them.
    """
    positions = front.among_judged(front.members)
    members = judged[:, positions]
    is_off = ~memberships(members)
    for rows in _blocks(front.other_rivals):
        scores = front.scores[rows]
        rivals = query_resamples.means(scores)
        is_off |= dominated(members, rivals)
    shares = np.mean(~is_off, axis=0).tolist()
    names = [front.names[row] for row in front.members]
    return dict(zip(names, shares, strict=True))


def _blocks(rows: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(rows), _POINTS_AT_ONCE):
        yield rows[start : start + _POINTS_AT_ONCE]


def _knee_shares(front: FrontQueryScores, noise: Noise) -> dict[int, float]:
    """Return the nonzero knee shares by row.

    Members that violate a constraint are excluded unless all members do.
    """
    eligible = list(front.feasible or front.members)
    if not eligible:
        return {}
    knee_indices = knees(noise.resampled[:, eligible]).tolist()
    counts = Counter(eligible[index] for index in knee_indices)
    return {row: count / len(knee_indices) for row, count in counts.items()}


def _region(shares: Mapping[int, float]) -> set[int]:
    region: set[int] = set()
    total = 0.0
    for row, share in sorted(shares.items(), key=lambda item: -item[1]):
        if total >= LEVEL:
            break
        region.add(row)
        total += share
    return region


@dataclass(frozen=True)
class _Compared:
    """Rows in ``noise`` of the points whose hypervolumes are compared."""

    noise: Noise
    front: Sequence[int]
    reference: int
    oracle: Sequence[int]
    floor: Sequence[int]

    @classmethod
    def of(cls, front: FrontQueryScores, noise: Noise, reference: int, seed: int) -> "_Compared":
        """Return the rows of the feasible members, or of their configurations if ``front.trained`` is set."""
        if front.trained is None:
            return cls(noise, front.feasible, reference, front.oracle, front.floor)
        rows = [reference, *front.oracle, *front.floor]
        untrained = front.scores[rows]
        resamples = len(noise.resampled)
        noise_with_seeds = noise_of(front.trained, untrained, seed, resamples)
        reference_row = front.trained.num_points
        first_oracle = reference_row + 1
        first_floor = first_oracle + len(front.oracle)
        return cls(
            noise=noise_with_seeds,
            front=range(reference_row),
            reference=reference_row,
            oracle=range(first_oracle, first_floor),
            floor=range(first_floor, first_floor + len(front.floor)),
        )


def _areas(
    front: FrontQueryScores, query_noise: Noise, seed: int
) -> tuple[Interval | None, Interval | None, Floor | None]:
    """Return the intervals for hypervolume and share, and the floor."""
    if front.reference is None or not front.feasible:
        return None, None, None
    compared = _Compared.of(front, query_noise, front.reference, seed)
    noise = compared.noise
    reference = compared.reference
    area = FrontArea(compared.front, reference, front.goals)
    hypervolume = noise.interval(area).within(0.0, np.inf)
    share = floor = None
    if compared.oracle:
        limit = HullArea(compared.oracle, reference, front.goals, front.least)
        share_of_limit = Share(area, limit)
        share = noise.interval(share_of_limit).within(0.0, np.inf)
    if compared.floor:
        floor_area = FrontArea(compared.floor, reference, front.goals)
        gain = Gain(area, floor_area)
        floor = Floor(noise.estimate(gain), noise.interval(gain))
    return hypervolume, share, floor
