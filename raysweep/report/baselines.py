"""The baselines of a run: points that no trial made, and which of them the front dominates."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from raysweep.results.types import BASELINES, Point, ScoredSplit


@dataclass(frozen=True)
class Baseline:
    """One of them, with its scores on each split where it has any."""

    kind: str
    value: float | None
    label: str | None
    width: int | None
    points: Mapping[ScoredSplit, Point]

    @property
    def name(self) -> str:
        """What readers are shown, such as ``probe(0.3)`` or ``setfit (FOLDER)``."""
        if self.value is not None:
            return f"{self.kind}({self.value:g})"
        return self.kind if self.label is None else f"{self.kind} ({self.label})"


@dataclass(frozen=True)
class ProbeComparison:
    """The front beside the points of the probe on one split, of which it dominates ``num_dominated``.

    ``best`` is the one that is best on dev, and ``dominating`` the member of the front, best under the objective on this
    split, that dominates it, or None. ``area`` is the hypervolume of the probe's points alone, above the point that the
    front's begins at, without those that miss a constraint.
    """

    num_points: int
    num_dominated: int
    best: Point
    dominating: Point | None
    area: float


def baselines_of(points: Iterable[Point]) -> tuple[Baseline, ...]:
    """By kind; the probe's by rising parameter, others as they were stored."""
    by_name: dict[tuple[str, float | None, str | None], list[Point]] = defaultdict(list)
    for point in points:
        if point.kind in BASELINES:
            by_name[point.kind, point.value, point.label].append(point)
    found = []
    for name, of_splits in by_name.items():
        width = of_splits[0].width
        scored = {point.split: point for point in of_splits}
        found.append(Baseline(*name, width, scored))
    return tuple(sorted(found, key=_order))


def _order(baseline: Baseline) -> tuple[int, float]:
    return BASELINES.index(baseline.kind), baseline.value or 0.0


def dominates(one: Point, other: Point) -> bool:
    """Whether one of two points on a split is as good as the other in both P and S, and better in one."""
    as_good = one.polarity >= other.polarity and one.similarity >= other.similarity
    return as_good and (one.polarity > other.polarity or one.similarity > other.similarity)


def compare(
    probes: Sequence[Point], best: Point, front: Sequence[Point], objective: Callable[[Point], float], area: float
) -> ProbeComparison:
    """The front's points beside the probe's, all on one split; ``area`` is as in :class:`ProbeComparison`."""
    dominated = [probe for probe in probes if any(dominates(member, probe) for member in front)]
    dominating = [member for member in front if dominates(member, best)]
    return ProbeComparison(
        num_points=len(probes),
        num_dominated=len(dominated),
        best=best,
        dominating=max(dominating, key=objective, default=None),
        area=area,
    )
