"""A sweep's weighted objective, its constraints, and the hypervolume above a reference point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raysweep.metrics.pareto import hypervolume, non_dominated
from raysweep.metrics.scores import GOALS, Goals, Pair, spec_of


@dataclass(frozen=True)
class Objective:
    """A sweep's objective over its two goals (P, S).

    Hypervolumes are relative to ``reference_point``; see :meth:`.Goals.reference_point`.
    """

    polarity_weight: float
    reference_point: Pair
    # factor of S in the objective; 1 / (S of the reference encoder) gives retention
    similarity_unit: float = 1.0
    min_polarity: float = 0.0
    min_similarity: float = 0.0
    goals: Goals = GOALS

    @classmethod
    def of(
        cls,
        polarity_weight: float,
        similarity: str,
        constraints: Mapping[str, float],
        reference: Pair,
        goals: Goals = GOALS,
    ) -> "Objective":
        """Return the objective for a reference encoder with scores ``reference`` (P, S).

        Args:
            polarity_weight: Weight of P; the weight of S is ``1 - polarity_weight``.
            similarity: Name of the second score in the objective: S, or the ratio of S to the reference encoder's S.
            constraints: Optional minimums of ``polarity``, ``similarity`` and ``retention``.
        """
        minimum = {"polarity": 0.0, "similarity": 0.0, "retention": 0.0, **constraints}
        return cls(
            polarity_weight=polarity_weight,
            reference_point=goals.reference_point(reference),
            similarity_unit=1 / reference[1] if spec_of(similarity).relative_to else 1.0,
            min_polarity=minimum["polarity"],
            min_similarity=max(minimum["similarity"], minimum["retention"] * reference[1]),
            goals=goals,
        )

    @property
    def feasible_reference_point(self) -> Pair:
        """The reference point for the hypervolume of feasible points."""
        return max(self.reference_point[0], self.min_polarity), max(
            self.reference_point[1], self.min_similarity
        )

    def weighted_sum(self, point: Pair) -> float:
        """Return the weighted objective of one point."""
        polarity, similarity = point
        return (
            self.polarity_weight * polarity
            + (1 - self.polarity_weight) * self.similarity_unit * similarity
        )

    def violation(self, point: Pair) -> float:
        """Return how far the point violates the constraints, or 0 if it satisfies them."""
        polarity, similarity = point
        return max(0.0, self.min_polarity - polarity) + max(0.0, self.min_similarity - similarity)

    def best_point(self, points: Sequence[Pair]) -> Pair:
        """Return the feasible point with the largest weighted objective.

        If no point is feasible, return the point with the smallest violation.
        """
        return max(points, key=lambda point: (-self.violation(point), self.weighted_sum(point)))

    def best_value(self, points: Sequence[Pair]) -> float:
        """Return the objective of :meth:`best_point`, or minus its violation if no point is feasible."""
        best = self.best_point(points)
        return -self.violation(best) or self.weighted_sum(best)

    def area(self, points: Sequence[Pair]) -> float:
        """Return the hypervolume of the feasible points, or minus the smallest violation if no point is feasible."""
        feasible = [point for point in points if not self.violation(point)]
        if feasible:
            return hypervolume(feasible, self.reference_point)
        return -self.violation(self.best_point(points))

    def tchebycheff(self, points: Sequence[Pair], weight: float) -> float:
        """Return the points' best augmented Tchebycheff value (ParEGO, Knowles 2006), at most 1.

        If the reference point is (p, s), P is scaled from [p, 1] to [0, 1], and S from [s, 2 * s] to [0, 1]. By default,
        2 * s is the reference encoder's S. If no point is feasible, return minus the smallest violation. ``weight`` is
        the weight of P.
        """
        best = self.best_point(points)
        violation = self.violation(best)
        if violation:
            return -violation
        min_polarity, min_similarity = self.reference_point
        polarity_range = (1 - min_polarity) or 1.0
        similarity_range = min_similarity or 1.0
        values = []
        for polarity, similarity in points:
            scaled_polarity = (polarity - min_polarity) / polarity_range
            scaled_similarity = (similarity - min_similarity) / similarity_range
            polarity_shortfall = weight * (1 - scaled_polarity)
            similarity_shortfall = (1 - weight) * (1 - scaled_similarity)
            largest = max(polarity_shortfall, similarity_shortfall)
            total = polarity_shortfall + similarity_shortfall
            values.append(1 - largest - 0.05 * total)
        return max(values)


def front_of(points: Sequence[Pair]) -> tuple[Pair, ...]:
    """Return the non-dominated points."""
    return tuple(points[index] for index in non_dominated(points))
