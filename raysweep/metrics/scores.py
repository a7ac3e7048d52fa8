"""Definitions of scores, and the two goals of a sweep."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from raysweep.metrics import measures
from raysweep.metrics.measures import Measure

Pair = tuple[float, float]  # P and S of an operating point

ROUNDING = 0.001  # tolerance of range checks


@dataclass(frozen=True)
class ScoreSpec:
    """The definition of a score, which is a mean over queries or a ratio of such means.

    Args:
        name: Key in the ledger, files and conditions.
        measure: Function that computes the per-query values; None if the score is not computed from a retrieval.
        symbol: Short name in tables and formulas; defaults to the name.
        minimum: Lowest possible value.
        maximum: Highest possible value.
        is_maximized: Whether higher is better. Only such scores can be goals.
        reference_share: Fraction of the reference encoder's score to use in the hypervolume reference point.
        is_continuous: Whether per-query values are stored in steps of 1/32767; they must be in [-1, 1].
        is_binary: Whether per-query values are 0 or 1. The standard deviation is then derived from the mean.
        relative_to: If the score is a ratio to the reference encoder's score, the score in the numerator. Ratios have no
            per-query values.
        is_of_relations: Whether the score is for retrieval data and pair files instead of labeled sentences.
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
        """The text for tables and formulas: the symbol if there is one, else the name."""
        return self.symbol or self.name

    @property
    def label(self) -> str:
        """The text for axes: the name, followed by the symbol if there is one."""
        return f"{self.name} {self.symbol}" if self.symbol else self.name

    @property
    def title(self) -> str:
        """The text for headings and menus: the symbol, if there is one, and the name."""
        return f"{self.symbol}, {self.name}" if self.symbol else self.name

    @property
    def goal(self) -> str:
        """The goal of objectives that use this score: the numerator of a ratio, or the score itself."""
        return self.relative_to or self.name

    def includes(self, score: float) -> bool:
        """Return whether a score is finite and in range; ratios have no range."""
        if not math.isfinite(score):
            return False
        return (
            self.relative_to is not None
            or self.minimum - ROUNDING <= score <= self.maximum + ROUNDING
        )


WATCHED = "watched"
"""The mean of 1 - PND over watched sets; see :mod:`raysweep.evaluation.watched`."""

_SPECS = (
    ScoreSpec("polarity", measures.polarity, symbol="P"),
    ScoreSpec(
        "similarity",
        measures.similarity,
        symbol="S",
        minimum=-1.0,
        reference_share=0.5,
        is_continuous=True,
    ),
    ScoreSpec("retention", minimum=-1.0, relative_to="similarity"),
    ScoreSpec("accuracy", measures.accuracy, is_binary=True),
    ScoreSpec("ranking", is_of_relations=True),
    ScoreSpec(
        "agreement", minimum=-1.0, reference_share=0.5, is_continuous=True, is_of_relations=True
    ),
    ScoreSpec(WATCHED, reference_share=0.5),
)

SCORES: dict[str, ScoreSpec] = {spec.name: spec for spec in _SPECS}
"""Known scores by name, in display order."""

STANDARD = ("polarity", "similarity", "retention", "accuracy")
"""The scores shown in every table, file and page of a report."""


def spec_of(name: str) -> ScoreSpec:
    """Return a score's spec, or a default spec if the score is unknown (for example, from another version)."""
    return SCORES.get(name) or ScoreSpec(name)


class Goals(NamedTuple):
    """The names of the two scores that a sweep optimizes, P and S."""

    p: str = "polarity"
    s: str = "similarity"

    @classmethod
    def of(cls, polarity: str, similarity: str) -> "Goals":
        """Return the goals of an objective over these two scores."""
        return cls(spec_of(polarity).goal, spec_of(similarity).goal)

    @property
    def headings(self) -> tuple[str, str]:
        """The table headings of the two scores."""
        return spec_of(self.p).heading, spec_of(self.s).heading

    @property
    def ratio(self) -> str | None:
        """The score that is the ratio of S to the reference encoder's S, such as retention, or None."""
        return next((name for name, spec in SCORES.items() if spec.relative_to == self.s), None)

    @property
    def main_scores(self) -> tuple[str, ...]:
        """The scores in short tables: P, S and :attr:`ratio`, if any."""
        return (self.p, self.s) if self.ratio is None else (self.p, self.s, self.ratio)

    @property
    def written_scores(self) -> list[str]:
        """The scores in fronts written as JSON: polarity, similarity, retention and the two goals."""
        return list(dict.fromkeys(["polarity", "similarity", "retention", *self]))

    def reference_point(self, reference: Pair) -> Pair:
        """Return the reference point of hypervolumes, given the reference encoder's scores."""
        p, s = reference
        return p * spec_of(self.p).reference_share, s * spec_of(self.s).reference_share


GOALS = Goals()

RELATION_GOALS = Goals("ranking", "agreement")
"""The default goals of sweeps over retrieval data and pair files; see :mod:`raysweep.metrics.ranking`."""
