"""The series that the page's chart compares the front with on a split: the oracle, the reference, the baselines."""

from raysweep.report.page.scores import Json, scaled, scores_of
from raysweep.report.page.visible import visible
from raysweep.report.summary import Summary
from raysweep.results.types import Point, ScoredSplit


def limits(summary: Summary, split: ScoredSplit) -> Json:
    """Return the series of a split; each is empty or None if it is not stored. The oracle is by increasing bonus."""
    reference = summary.references.get(split)
    return {
        "oracle": [_pair(point) for point in summary.oracles[split]],
        "reference": None if reference is None else scores_of(reference),
        "baselines": _baselines(summary, split),
        "least": _least(summary, split),
    }


def _pair(point: Point) -> list[float | None]:
    return [scaled(point.similarity), scaled(point.polarity)]


def _baselines(summary: Summary, split: ScoredSplit) -> list[Json]:
    found = []
    for baseline in summary.baselines:
        point = baseline.points.get(split)
        if point is not None:
            found.append({"kind": baseline.kind, "name": visible(baseline.name), **scores_of(point)})
    return found


def _least(summary: Summary, split: ScoredSplit) -> Json:
    """Return the constraints on this split, which the chart draws as lines."""
    objective = summary.objectives_by_split.get(split)
    if objective is None:
        return {"p": None, "s": None}
    polarity, similarity = objective.min_polarity, objective.min_similarity
    return {"p": scaled(polarity) if polarity else None, "s": scaled(similarity) if similarity else None}
