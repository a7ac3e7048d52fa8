"""Scores for the page's charts: x100, rounded to the precision of a screen."""

import math

from raysweep.report.page.visible import visible
from raysweep.report.summary import Member
from raysweep.results.query_scores import name_of_point
from raysweep.results.types import GuardScore, Point
from raysweep.uncertainty.front import FrontUncertainty
from raysweep.uncertainty.interval import Interval

DIGITS = 3

Json = dict[str, object]


def scaled(score: float | None) -> float | None:
    """Return a score in [0, 1] x100; None if it is unknown or not finite."""
    if score is None or not math.isfinite(score):
        return None
    return round(100 * score, DIGITS)


def scores_of(point: Point) -> Json:
    """Return P, S, retention and accuracy of a point."""
    return {
        "p": scaled(point.polarity),
        "s": scaled(point.similarity),
        "r": scaled(point.retention),
        "a": scaled(point.accuracy),
    }


def guard_values(measured: GuardScore) -> Json:
    """Return a guard's score of a member, and its limit, which is None if the sweep sets none."""
    return {
        "name": visible(measured.guard),
        "metric": visible(measured.metric),
        "score": scaled(measured.score),
        "least": scaled(measured.at_least),
        "isMet": measured.is_met,
    }


def member_intervals(member: Member, front: FrontUncertainty | None) -> Json:
    """Return intervals of a member's scores on the split of ``front``, and its stability.

    The result is empty if per-query scores are not stored.
    """
    known = None if front is None else front.members.get(name_of_point(member.dev))
    if front is None or known is None:
        return {}
    return {
        "level": front.level,
        "p": _ends(known.polarity),
        "s": _ends(known.similarity),
        "r": None if known.retention is None else _ends(known.retention),
        "stability": round(known.stability, 3),
        "inKneeRegion": known.in_knee_region,
    }


def _ends(interval: Interval) -> list[float | None]:
    return [scaled(interval.low), scaled(interval.high)]
