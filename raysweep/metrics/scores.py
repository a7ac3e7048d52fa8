"""The scores of operating points: the table of their names, labels, ranges and measures, and the two goals of a sweep."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from raysweep.metrics import measures
from raysweep.metrics.measures import Measure

Pair = tuple[float, float]  # P and S of an operating point: its scores under the two goals of a sweep

ROUNDING = 0.001  # by which a score may exceed its range


@dataclass(frozen=True)
class ScoreSpec:
    """A score of an operating point: the mean of one value per query, or a ratio of such means.

    Args:
        name: Key of the score in the ledger, in files and in conditions.
        measure: Computes the value of each query from its retrieval; None if the score is not one of a retrieval.
        symbol: Short name in tables and formulas; the name by default.
        minimum: Lowest possible value.
        maximum: Highest possible value.
        is_maximized: Whether more is better. Only such scores can be goals.
        reference_share: Share of the reference encoder's score that is the reference point of hypervolumes.
        is_continuous: Whether values per query, which must be in [-1, 1], are stored in steps of 1/32767.
        is_binary: Whether values per query are 0 or 1, so the mean determines the standard deviation, which is not stored.
        relative_to: The score whose ratio to the reference encoder's this is; such a score has no values per query.
        is_of_relations: Whether it is a score of retrieval data and pair files instead of labeled sentences.
    """

    name: str
    measure: Measure | None = None
    symbol: str = ""
    minimum: float = 0.0
    maximum: float = 1.0
    is_maximized: bool = True
    reference_share: float = 1.0
    is_continuous: bool = False
    is_binary: bool = False
    relative_to: str | None = None
    is_of_relations: bool = False

    @property
    def heading(self) -> str:
        """The symbol, or the name of a score without one, for tables and formulas."""
        return self.symbol or self.name

    @property
    def label(self) -> str:
        """The name, followed by the symbol if there is one, for axes."""
        return f"{self.name} {self.symbol}" if self.symbol else self.name

    @property
    def title(self) -> str:
        """The symbol followed by the name, or only the name of a score without a symbol, for headings and menus."""
        return f"{self.symbol}, {self.name}" if self.symbol else self.name

    @property
    def goal(self) -> str:
        """The score in which an objective over this score builds its front: a ratio has the order of its numerator."""
        return self.relative_to or self.name

    def includes(self, score: float) -> bool:
        """Return whether a score is finite and in its range, up to rounding errors; ratios have no range."""
        if not math.isfinite(score):
            return False
        return self.relative_to is not None or self.minimum - ROUNDING <= score <= self.maximum + ROUNDING


_SPECS = (
    ScoreSpec("polarity", measures.polarity, symbol="P"),
    ScoreSpec("similarity", measures.similarity, symbol="S", minimum=-1.0, reference_share=0.5, is_continuous=True),
    ScoreSpec("retention", minimum=-1.0, relative_to="similarity"),
    ScoreSpec("accuracy", measures.accuracy, is_binary=True),
    ScoreSpec("ranking", is_of_relations=True),
    ScoreSpec("agreement", minimum=-1.0, reference_share=0.5, is_continuous=True, is_of_relations=True),
)

SCORES: dict[str, ScoreSpec] = {spec.name: spec for spec in _SPECS}
"""The known scores by name, in the order of tables."""

STANDARD = ("polarity", "similarity", "retention", "accuracy")
"""The scores that every table, file and page of a report shows."""


def spec_of(name: str) -> ScoreSpec:
    """Return the entry of a score in the table, or a default entry for an unknown score, as in another version's run."""
    return SCORES.get(name) or ScoreSpec(name)


class Goals(NamedTuple):
    """The names of the two scores that a sweep weighs against each other: ``p`` is called P, and ``s`` is called S."""

    p: str = "polarity"
    s: str = "similarity"

    @classmethod
    def of(cls, polarity: str, similarity: str) -> "Goals":
        """Return the goals of an objective, given the two scores that it weighs."""
        return cls(spec_of(polarity).goal, spec_of(similarity).goal)

    @property
    def headings(self) -> tuple[str, str]:
        """The headings of the two scores in tables."""
        return spec_of(self.p).heading, spec_of(self.s).heading

    @property
    def ratio(self) -> str | None:
        """The score that is the ratio of S to the reference encoder's, such as retention; None if S has none."""
        return next((name for name, spec in SCORES.items() if spec.relative_to == self.s), None)

    @property
    def main_scores(self) -> tuple[str, ...]:
        """The scores of short tables: P, S, and the ratio of S to the reference encoder's if it has a name."""
        return (self.p, self.s) if self.ratio is None else (self.p, self.s, self.ratio)

    @property
    def written_scores(self) -> list[str]:
        """The scores of every front that is written as JSON: polarity, similarity and retention, and the two goals."""
        return list(dict.fromkeys(["polarity", "similarity", "retention", *self]))

    def reference_point(self, reference: Pair) -> Pair:
        """Return the lower corner of hypervolumes, given the scores of the reference encoder."""
        p, s = reference
        return p * spec_of(self.p).reference_share, s * spec_of(self.s).reference_share


GOALS = Goals()

RELATION_GOALS = Goals("ranking", "agreement")
"""The default goals of sweeps over retrieval data and pair files; :mod:`raysweep.metrics.ranking` defines the scores."""
