"""A run's front: its members on dev and test, its knee and its best point."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from raysweep.metrics.objective import Objective
from raysweep.metrics.pareto import knee
from raysweep.results.query_scores import PointName, name_of_point
from raysweep.results.types import GuardScore, Point, Results, RunInfo, ScoredSplit
from raysweep.results.views import front_points


@dataclass(frozen=True)
class Member:
    """A point on the front; ``test`` is None if it is not scored on test."""

    dev: Point
    test: Point | None
    is_knee: bool
    is_best: bool  # best by the objective
    is_feasible: bool  # meets the constraints on dev and the limits of all measured guards
    guards: Mapping[str, GuardScore] = field(default_factory=dict)  # keyed by name

    def on(self, split: ScoredSplit) -> Point | None:
        return self.dev if split == "dev" else self.test


@dataclass(frozen=True)
class Front:
    """A front selected on dev, with members sorted by decreasing S on dev."""

    members: tuple[Member, ...]

    def on(self, split: ScoredSplit) -> list[Point]:
        """Return the members' points on a split, or an empty list if any member is not scored there.

        A partial front would have a misleading hypervolume.
        """
        points = [point for member in self.members if (point := member.on(split))]
        return points if len(points) == len(self.members) else []

    def feasible_on(self, split: ScoredSplit) -> list[Point]:
        """Return the feasible members' points on a split; see :meth:`on`."""
        points = self.on(split)
        return [
            point for member, point in zip(self.members, points, strict=False) if member.is_feasible
        ]

    def names_on(self, split: ScoredSplit) -> list[PointName]:
        return [name_of_point(point) for point in self.on(split)]

    @property
    def knee(self) -> Member | None:
        """The knee, or None if the front is empty."""
        return next((member for member in self.members if member.is_knee), None)

    @property
    def best(self) -> Member | None:
        """The best member by the sweep's objective, or None if the front is empty."""
        return next((member for member in self.members if member.is_best), None)

    def why_partial(self, split: ScoredSplit) -> str:
        """Return a message if only some members are scored on a split, or an empty string."""
        num_scored = sum(member.on(split) is not None for member in self.members)
        if num_scored in (0, len(self.members)):
            return ""
        verb = "is" if num_scored == 1 else "are"
        return f"only {num_scored} of {len(self.members)} front members {verb} scored on {split}"


@dataclass(frozen=True)
class Criterion:
    """The sweep's ordering of points: by constraint violation, then by the objective."""

    info: RunInfo
    objectives_by_split: Mapping[ScoredSplit, Objective]

    @classmethod
    def of(cls, info: RunInfo, references: Mapping[ScoredSplit, Point]) -> "Criterion":
        objectives = {}
        for split, reference in references.items():
            pair = reference.pair(info.goals)
            objectives[split] = Objective.of(
                info.polarity_weight, info.similarity, info.constraints, pair, info.goals
            )
        return cls(info, objectives)

    def violation(self, point: Point) -> float:
        """Return a point's constraint violation, or 0 if the reference's scores are missing."""
        if not self.info.constraints or point.split not in self.objectives_by_split:
            return 0.0
        return self.objectives_by_split[point.split].violation(point.pair(self.info.goals))

    def is_feasible(self, point: Point) -> bool:
        return self.violation(point) == 0

    def rank(self, point: Point) -> tuple[float, float]:
        """Return a sort key that is greater for better points."""
        return -self.violation(point), self.info.objective(point)


def front_of(results: Results, points: Sequence[Point], criterion: Criterion) -> Front:
    """Return the front of ``points``, selected on dev."""
    goals = results.info.goals
    on_dev = front_points(points, goals)
    if not on_dev:
        return Front(())
    guards: dict[PointName, dict[str, GuardScore]] = defaultdict(dict)  # keyed by point and guard
    for score in results.guards:
        guards[score.trial, score.step, score.kind, score.value][score.guard] = score

    def is_guarded(point: Point) -> bool:
        return all(score.is_met for score in guards[name_of_point(point)].values())

    def is_feasible(point: Point) -> bool:
        return is_guarded(point) and criterion.is_feasible(point)

    # The best point by the objective is on the front, because the objective never decreases with P
    # or S. The same is true under constraints, because a point that dominates a feasible point is
    # feasible too. Only front members are evaluated on guards.
    best = max(on_dev, key=lambda point: (is_guarded(point), criterion.rank(point)))
    eligible = [point for point in on_dev if is_feasible(point)] or on_dev
    scores = [point.pair(goals) for point in eligible]
    balanced = eligible[knee(scores)]
    on_test = {
        name_of_point(point): point
        for point in points
        if point.split == "test" and point.trial is not None
    }
    members = []
    for point in on_dev:
        name = name_of_point(point)
        member = Member(
            dev=point,
            test=on_test.get(name),
            is_knee=point is balanced,
            is_best=point is best,
            is_feasible=is_feasible(point),
            guards=guards[name],
        )
        members.append(member)
    return Front(tuple(members))
