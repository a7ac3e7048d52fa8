"""The trials' points on dev, in columns, for the page's charts; a subset for very large runs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raysweep.report.page.scores import Json, scaled, scores_of
from raysweep.report.summary import Member, Summary
from raysweep.report.tables import kind_name
from raysweep.results.types import Point, PointKey

MAX_POINTS = 6_000  # more cannot be distinguished on a screen, and each takes 20 bytes


@dataclass(frozen=True)
class ShownPoints:
    """The shown ``points`` in ledger order, out of ``num_stored``; members and trials refer to them by index."""

    points: tuple[Point, ...]
    num_stored: int

    @classmethod
    def of(cls, summary: Summary) -> "ShownPoints":
        """Return all points if they are few; else the front, each trial's best, and an even sample of the others."""
        stored = [point for point in summary.results.points if point.split == "dev" and point.trial is not None]
        if len(stored) <= MAX_POINTS:
            return cls(tuple(stored), len(stored))
        kept = _kept(stored, summary)
        return cls(tuple(stored[place] for place in kept), len(stored))

    @property
    def places(self) -> dict[Point, int]:
        return {point: place for place, point in enumerate(self.points)}

    def columns(self) -> Json:
        """Return each field as a list; ``kind`` is an index into ``kinds``."""
        points = self.points
        one_of_each = {point.key: point for point in points}
        kinds = sorted(one_of_each, key=_order)
        numbers = {key: number for number, key in enumerate(kinds)}
        return {
            "stored": self.num_stored,
            "kinds": [_kind(one_of_each[key]) for key in kinds],
            "trial": [point.trial for point in points],
            "step": [point.step for point in points],
            "kind": [numbers[point.key] for point in points],
            "p": [scaled(point.polarity) for point in points],
            "s": [scaled(point.similarity) for point in points],
            "r": [scaled(point.retention) for point in points],
            "a": [scaled(point.accuracy) for point in points],
        }


def _order(key: PointKey) -> tuple[str, float]:
    kind, value = key
    return kind, value or 0.0


def _kind(point: Point) -> Json:
    return {"kind": point.kind, "name": kind_name(point)}


def _kept(stored: Sequence[Point], summary: Summary) -> list[int]:
    """Return the indexes of the points to show, in increasing order."""
    chosen = {id(member.dev) for member in summary.members}
    chosen |= {id(each.best) for each in summary.trials}
    needed = {place for place, point in enumerate(stored) if id(point) in chosen}
    num_others = max(0, MAX_POINTS - len(needed))
    evenly = np.linspace(0, len(stored) - 1, num_others, dtype=np.int64)
    return sorted(needed | {int(place) for place in evenly})


def member_values(member: Member, place: int) -> Json:
    """Return the values of one front member; ``point`` is its index among the shown points."""
    return {
        "point": place,
        "name": member.dev.name,
        "knee": member.is_knee,
        "best": member.is_best,
        "width": member.dev.width,
        "test": None if member.test is None else scores_of(member.test),
    }
