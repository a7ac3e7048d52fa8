"""What makes a trial good: the weighted objective, the constraints, and the hypervolume above a reference point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raysweep.metrics.pareto import hypervolume, non_dominated

Pair = tuple[float, float]  # P and S of an operating point


@dataclass(frozen=True)
class Objective:
    """Scores (P, S) lie in [0, 1]. Hypervolumes begin at ``reference_point``: P of the reference encoder and half its S."""

    polarity_weight: float
    reference_point: Pair
    similarity_unit: float = 1.0  # what S is multiplied by in the objective: 1 / S of R makes it the retention
    min_polarity: float = 0.0
    min_similarity: float = 0.0

    @classmethod
    def of(
        cls, polarity_weight: float, similarity: str, constraints: Mapping[str, float], reference: Pair
    ) -> "Objective":
        """The objective of a sweep whose reference encoder scores ``reference`` (P, S).

        ``similarity`` is what the objective weighs against P: "similarity" or "retention". ``constraints`` are the least
        ``polarity``, ``similarity`` and ``retention`` of a feasible point; any of them may be left out.
        """
        least = {"polarity": 0.0, "similarity": 0.0, "retention": 0.0, **constraints}
        return cls(
            polarity_weight=polarity_weight,
            reference_point=(reference[0], reference[1] / 2),
            similarity_unit=1 / reference[1] if similarity == "retention" else 1.0,
            min_polarity=least["polarity"],
            min_similarity=max(least["similarity"], least["retention"] * reference[1]),
        )

    @property
    def feasible_reference_point(self) -> Pair:
        """Where the hypervolume of feasible points begins."""
        return max(self.reference_point[0], self.min_polarity), max(self.reference_point[1], self.min_similarity)

    def weighted_sum(self, point: Pair) -> float:
        """The weighted objective of one point."""
        polarity, similarity = point
        return self.polarity_weight * polarity + (1 - self.polarity_weight) * self.similarity_unit * similarity

    def violation(self, point: Pair) -> float:
        """By how much the point misses the constraints, 0 when it satisfies them."""
        polarity, similarity = point
        return max(0.0, self.min_polarity - polarity) + max(0.0, self.min_similarity - similarity)

    def best_point(self, points: Sequence[Pair]) -> Pair:
        """The feasible point of the greatest weighted objective; where none is feasible, the one that misses by least."""
        return max(points, key=lambda point: (-self.violation(point), self.weighted_sum(point)))

    def best_value(self, points: Sequence[Pair]) -> float:
        """The objective of :meth:`best_point`; below 0, by what it misses, where no point is feasible."""
        best = self.best_point(points)
        return -self.violation(best) or self.weighted_sum(best)

    def area(self, points: Sequence[Pair]) -> float:
        """The hypervolume of the feasible points above the reference point; below 0, by what is missed, where none is."""
        feasible = [point for point in points if not self.violation(point)]
        if feasible:
            return hypervolume(feasible, self.reference_point)
        return -self.violation(self.best_point(points))

    def tchebycheff(self, points: Sequence[Pair], weight: float) -> float:
        """The best augmented Tchebycheff value (ParEGO, Knowles 2006) of the points, with ``weight`` on P; 1 at most.

        Scores are scaled first: P from the reference point's to 1, S from the reference point's to twice it, which is the
        reference encoder's own; to one more than the reference point's where that leaves no room. Below 0, by what it
        misses, where no point is feasible.
        """
        violation = self.violation(self.best_point(points))
        if violation:
            return -violation
        return max(self._tchebycheff_of(point, weight) for point in points)

    def _tchebycheff_of(self, point: Pair, weight: float) -> float:
        min_polarity, min_similarity = self.reference_point
        polarity = (point[0] - min_polarity) / ((1 - min_polarity) or 1.0)
        similarity = (point[1] - min_similarity) / (min_similarity or 1.0)
        shortfalls = (weight * (1 - polarity), (1 - weight) * (1 - similarity))
        return 1 - max(shortfalls) - 0.05 * sum(shortfalls)


def front_of(points: Sequence[Pair]) -> tuple[Pair, ...]:
    """The non-dominated among the points."""
    return tuple(points[index] for index in non_dominated(points))
