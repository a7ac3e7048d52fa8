"""Scores of points, and their flat form in files with a key per mean and standard deviation."""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from raysweep.metrics.scores import SCORES, spec_of


@dataclass(frozen=True)
class Score:
    """A score's mean and standard deviation."""

    mean: float
    std: float | None = None  # None for scores without one, such as ratios of means


Scores = Mapping[str, Score]  # keyed by name; a missing score is unknown


def flatten(scores: Scores, deviation: str = "std") -> dict[str, float]:
    """Return a flat mapping with keys such as ``polarity`` and ``polarity_std``."""
    values = {}
    for name, score in scores.items():
        values[name] = score.mean
        if score.std is not None:
            values[f"{name}_{deviation}"] = score.std
    return values


def nest(
    values: Mapping[str, Any], fields: Collection[str], deviation: str = "std"
) -> dict[str, Any]:
    """Move all values except ``fields`` into a ``scores`` mapping, the inverse of :func:`flatten`.

    Scores without a mean are omitted. The values are not validated.
    """
    suffix = f"_{deviation}"
    nested: dict[str, Any] = {}
    scores = {}
    for name, value in values.items():
        if name in fields:
            nested[name] = value
        elif value is not None and not name.endswith(suffix):
            std = values.get(name + suffix)
            scores[name] = {"mean": value, "std": std}
    nested["scores"] = scores
    return nested


def with_ratios(scores: Scores, reference: Mapping[str, float]) -> dict[str, Score]:
    """Return the scores and their ratios to the means of the ``reference`` encoder, such as retention."""
    ratios = {}
    for name, spec in SCORES.items():
        numerator = spec.relative_to
        if numerator is not None and numerator in scores and numerator in reference:
            ratios[name] = Score(scores[numerator].mean / reference[numerator])
    return {**scores, **ratios}


def with_means(scores: Scores, means: Scores) -> dict[str, Score]:
    """Return the scores with means replaced by ``means``, and ratios scaled accordingly."""
    changed = {**scores}
    for name, score in scores.items():
        numerator = spec_of(name).relative_to
        if name in means:
            changed[name] = dataclasses.replace(score, mean=means[name].mean)
        elif numerator is not None and numerator in means:
            before = scores[numerator].mean
            ratio_of_numerator = score.mean / before if before else 0.0
            changed[name] = Score(ratio_of_numerator * means[numerator].mean)
    return changed
