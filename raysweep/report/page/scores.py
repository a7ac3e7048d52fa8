"""Scores as the page's charts take them: x100, with as many digits as a screen can show."""

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


def guard_values(measured: GuardScore) -> Json:
    """A guard's score of a member, and the least that the sweep asks for, None where it asks for nothing."""
    return {
        "name": visible(measured.guard),
        "metric": visible(measured.metric),
        "score": scaled(measured.score),
        "least": scaled(measured.at_least),
        "isMet": measured.is_met,
    }


def member_intervals(member: Member, front: FrontUncertainty | None) -> Json:
    """Intervals of a member's scores on the split of ``front``, and how sure it is that it is on the front.

    Empty where scores of each query are not stored.
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
