"""Scores as the page's charts take them: x100, with as many digits as a screen can show."""

import math

from raysweep.report.summary import Member, half_width
from raysweep.results.types import Point, ScoredSplit

DIGITS = 3

Json = dict[str, object]


def scaled(score: float | None) -> float | None:
    """A score in [0, 1] x100, None where it is not known or not finite."""
    if score is None or not math.isfinite(score):
        return None
    return round(100 * score, DIGITS)


def scores_of(point: Point) -> Json:
    """P, S, retention and accuracy of one point."""
    return {
        "p": scaled(point.polarity),
        "s": scaled(point.similarity),
        "r": scaled(point.retention),
        "a": scaled(point.accuracy),
    }


def query_intervals(member: Member, split: ScoredSplit, num_queries: int | None) -> Json | None:
    """The 95% intervals of a member's P and S over queries, None where they are not known."""
    point = member.on(split)
    if point is None or not num_queries:
        return None
    if not point.polarity_std and not point.similarity_std:
        return None
    return {
        "level": 0.95,
        "p": _around(point.polarity, half_width(point.polarity_std, num_queries)),
        "s": _around(point.similarity, half_width(point.similarity_std, num_queries)),
    }


def _around(score: float, width: float) -> list[float | None]:
    return [scaled(score - width), scaled(score + width)]
