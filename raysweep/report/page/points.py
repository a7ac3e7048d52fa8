"""Points for the page's charts, with rounded scores x100."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from raysweep.metrics.scores import spec_of
from raysweep.output import escape_controls
from raysweep.report.summary import Summary
from raysweep.report.tables import kind_name
from raysweep.results.types import Point, ScoredSplit

MAX_POINTS = 6_000  # more cannot be distinguished on a screen

DIGITS = 3

Json = dict[str, object]


def scaled(score: float | None) -> float | None:
    """Multiply a score by 100 and round it; return None if it is unknown or not finite."""
    if score is None or not math.isfinite(score):
        return None
    return round(100 * score, DIGITS)


def score_keys(summary: Summary) -> dict[str, str]:
    """Return the names of the page's scores, by the keys that its scripts use.

    The goals have the keys ``p`` and ``s``, retention has ``r``, and accuracy has ``a``. Other scores
    are keyed by name.
    """
    goals = summary.goals
    letters = {goals.p: "p", goals.s: "s"}
    for name, letter in (("retention", "r"), ("accuracy", "a")):
        letters.setdefault(name, letter)
    return {letters.get(name, name): name for name in summary.score_names}


def score_texts(keys: Mapping[str, str]) -> list[Json]:
    """Return each score's headings and labels, in table order."""
    texts: list[Json] = []
    for key, name in keys.items():
        spec = spec_of(name)
        texts.append(
            {"key": key, "heading": spec.heading, "label": spec.label, "title": spec.title}
        )
    return texts


def scores_of(point: Point, keys: Mapping[str, str]) -> Json:
    """Return a point's scores by the page's ``keys``."""
    return {key: scaled(point.get(name)) for key, name in keys.items()}


@dataclass(frozen=True)
class ShownPoints:
    """The ``points`` shown in the charts, in ledger order, out of ``num_stored`` stored points."""

    points: tuple[Point, ...]
    num_stored: int

    @classmethod
    def of(cls, summary: Summary) -> "ShownPoints":
        """Return up to ``MAX_POINTS`` points: the front, each trial's best, and an evenly spaced sample."""
        stored = [
            point
            for point in summary.results.points
            if point.split == "dev" and point.trial is not None
        ]
        num_stored = len(stored)
        if num_stored <= MAX_POINTS:
            return cls(tuple(stored), num_stored)
        on_front = [member.dev for member in summary.members]
        best_of_trials = [trial.best for trial in summary.trials]
        required_ids = {id(point) for point in (*on_front, *best_of_trials)}
        indices = {index for index, point in enumerate(stored) if id(point) in required_ids}
        num_others = max(0, MAX_POINTS - len(indices))
        evenly_spaced = np.linspace(0, num_stored - 1, num_others, dtype=np.int64)
        indices.update(evenly_spaced.tolist())
        points = tuple(stored[index] for index in sorted(indices))
        return cls(points, num_stored)

    @property
    def indices(self) -> dict[Point, int]:
        return {point: index for index, point in enumerate(self.points)}

    def columns(self, keys: Mapping[str, str]) -> Json:
        """Return the points as columns; ``kind`` contains indices into ``kinds``."""
        points = self.points
        point_by_key = {point.key: point for point in points}
        point_keys = sorted(point_by_key, key=lambda key: (key[0], key[1] or 0.0))
        kinds = []
        kind_indices = {}
        for index, point_key in enumerate(point_keys):
            point = point_by_key[point_key]
            kind = {"kind": point.kind, "name": kind_name(point)}
            kinds.append(kind)
            kind_indices[point_key] = index
        kinds_of_points = [kind_indices[point.key] for point in points]
        scores = {key: [scaled(point.get(name)) for point in points] for key, name in keys.items()}
        return {
            "stored": self.num_stored,
            "kinds": kinds,
            "trial": [point.trial for point in points],
            "step": [point.step for point in points],
            "kind": kinds_of_points,
            **scores,
        }


def compared_points(summary: Summary, split: ScoredSplit) -> Json:
    """Return the oracle front, the reference, the baselines and the constraints on a split.

    Values that are not stored are empty or None.
    """
    reference = summary.references.get(split)
    keys = score_keys(summary)
    baselines = []
    for baseline in summary.baselines:
        point = baseline.points.get(split)
        if point is not None:
            name = escape_controls(baseline.name)
            baselines.append({"kind": baseline.kind, "name": name, **scores_of(point, keys)})
    objective = summary.objectives_by_split.get(split)
    minimum: Json = {"p": None, "s": None}
    if objective is not None:
        minimum["p"] = scaled(objective.min_polarity or None)
        minimum["s"] = scaled(objective.min_similarity or None)
    goals = summary.goals
    oracle = [[scaled(point[goals.s]), scaled(point[goals.p])] for point in summary.oracles[split]]
    return {
        "oracle": oracle,
        "reference": None if reference is None else scores_of(reference, keys),
        "baselines": baselines,
        "minimum": minimum,
    }
