"""Compare a run's front with its baselines, which are points that no trial produced."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from raysweep.metrics.scores import Goals
from raysweep.results.types import BASELINES, Point, RunInfo, ScoredSplit


@dataclass(frozen=True)
class Baseline:
    """A baseline and its point on each scored split."""

    kind: str
    value: float | None
    label: str | None
    width: int | None
    points: Mapping[ScoredSplit, Point]

    @property
    def name(self) -> str:
        """The displayed name, such as ``probe(0.3)`` or ``setfit (FOLDER)``."""
        if self.value is not None:
            return f"{self.kind}({self.value:g})"
        return self.kind if self.label is None else f"{self.kind} ({self.label})"


@dataclass(frozen=True)
class ProbeComparison:
    """A comparison of the front with the probe's points on one split.

    The front dominates ``num_dominated`` of the probe's points. ``best`` is the point whose parameter is best on dev.
    ``dominating`` is the front member with the highest objective among those that dominate ``best``, or None. ``area``
    is the hypervolume of the probe's points that meet the constraints, with the same reference point as the front's.
    """

    num_points: int
    num_dominated: int
    best: Point
    dominating: Point | None
    area: float


def baselines_of(points: Iterable[Point]) -> tuple[Baseline, ...]:
    """Return the baselines grouped by kind, with probes sorted by their parameter."""
    points_by_name = defaultdict(list)
    for point in points:
        if point.kind in BASELINES:
            points_by_name[point.kind, point.value, point.label].append(point)
    baselines = []
    for (kind, value, label), named_points in points_by_name.items():
        width = named_points[0].width
        points_by_split = {point.split: point for point in named_points}
        baseline = Baseline(kind, value, label, width, points_by_split)
        baselines.append(baseline)
    baselines.sort(key=lambda baseline: (BASELINES.index(baseline.kind), baseline.value or 0.0))
    return tuple(baselines)


def dominates(one: Point, other: Point, goals: Goals) -> bool:
    """Return whether ``one`` is at least as good as ``other`` in both P and S, and better in at least one.

    Both points must be on the same split.
    """
    p, s = one.pair(goals)
    other_p, other_s = other.pair(goals)
    as_good = p >= other_p and s >= other_s
    return as_good and (p > other_p or s > other_s)


def is_dominated(point: Point, front: Iterable[Point], goals: Goals) -> bool:
    """Return whether any point of the front dominates ``point``."""
    return any(dominates(member, point, goals) for member in front)


def compare(
    probes: Sequence[Point], best: Point, front: Sequence[Point], info: RunInfo, area: float
) -> ProbeComparison:
    """Compare the front with the probe's points on one split."""
    goals = info.goals
    dominated = [probe for probe in probes if is_dominated(probe, front, goals)]
    dominating = [member for member in front if dominates(member, best, goals)]
    return ProbeComparison(
        num_points=len(probes),
        num_dominated=len(dominated),
        best=best,
        dominating=max(dominating, key=info.objective, default=None),
        area=area,
    )
