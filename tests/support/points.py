"""Scores of invented points."""

import dataclasses

from raysweep.results.scores import Score
from raysweep.results.types import Point


def make_scores(
    polarity: float,
    similarity: float,
    *,
    retention: float = 1.0,
    spreads: tuple[float, float] = (0.1, 0.1),
    **others: float,
) -> dict[str, Score]:
    """Return scores by name; ``spreads`` are the standard deviations of P and S, and ``others`` have none."""
    own = {"polarity": Score(polarity, spreads[0]), "similarity": Score(similarity, spreads[1])}
    return {
        **own,
        "retention": Score(retention),
        **{name: Score(mean) for name, mean in others.items()},
    }


def with_means(point: Point, **means: float) -> Point:
    """Return the point with other means of some scores."""
    changed = {
        name: dataclasses.replace(point.scores.get(name, Score(0.0)), mean=mean)
        for name, mean in means.items()
    }
    return dataclasses.replace(point, scores={**point.scores, **changed})


def with_spreads(point: Point, polarity: float, similarity: float) -> Point:
    """Return the point with other standard deviations of P and S."""
    scores = {**point.scores}
    for name, spread in (("polarity", polarity), ("similarity", similarity)):
        scores[name] = dataclasses.replace(scores[name], std=spread)
    return dataclasses.replace(point, scores=scores)
