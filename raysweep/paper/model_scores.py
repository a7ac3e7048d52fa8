"""A common representation of scores from runs and files."""

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raysweep.config.losses import LOSSES
from raysweep.errors import InputError
from raysweep.results.types import ScoredSplit

NUM_EXAMPLES = "examples_per_rung"
"""The parameter that papers call N."""

_LOSS_NAMES = {
    loss.class_path.partition(":")[2]: name for name, loss in reversed(list(LOSSES.items()))
}
"""Loss names, keyed by class; if several losses share a class, the first one is used."""

_DISTINCTIONS = ("dataset", "reference", "retrieval", "origin", "place")
"""Attributes that are appended to equal column names, in this order, until the names are unique."""


@dataclass(frozen=True)
class Counts:
    """The number of queries over which P is averaged, and the number of sentences retrieved per query."""

    num_queries: int
    k: int


@dataclass(frozen=True)
class Scores:
    """Mean scores of one encoder on one split, in [0, 1], with standard deviations over queries, if known.

    ``counts`` is None if unknown or if the rank weights are not uniform.
    """

    polarity: float
    similarity: float
    polarity_std: float | None = None
    similarity_std: float | None = None
    counts: Counts | None = None


SplitScores = Mapping[ScoredSplit, Scores]


@dataclass(frozen=True)
class ScoredPoint:
    """Scores of a configuration after one rung; see :class:`Configuration` for ``values``."""

    values: Mapping[str, Any]
    rung: int
    split: ScoredSplit
    scores: Scores


@dataclass(frozen=True)
class Configuration:
    """A trained configuration and its scores.

    Args:
        values: Parameters, except those that are None. Whole numbers are integers.
        rungs: Scores keyed by rung number, in ascending order. There is at least one rung.
    """

    values: Mapping[str, Any]
    rungs: Mapping[int, SplitScores]

    @property
    def last_rung(self) -> int:
        return max(self.rungs)


@dataclass(frozen=True)
class ModelScores:
    """Scores of one model under one measurement setup.

    Args:
        origin: Name of the run or file.
        place: Path or URI of the run or file.
        baselines: Scores of encoders that do not come from a trial, keyed by name, with the reference first.
        retrieval: Description of the retrieval settings; empty if unknown.
        setting: Everything that the scores depend on besides the configuration; empty if unknown. Scores with different
            settings never share a column.
        names_split: False for a file without a ``split`` column.
        why_no_test: Reason why the run's test scores are left out.
    """

    model: str
    origin: str
    place: str
    configurations: tuple[Configuration, ...]
    baselines: Mapping[str, SplitScores] = field(default_factory=dict)
    dataset: str = ""
    reference: str = ""
    retrieval: str = ""
    setting: str = ""
    names_split: bool = True
    why_no_test: str = ""


def loss_name(name: Any) -> str:
    """Return raysweep's name for a loss, given that name or the class name."""
    return _LOSS_NAMES.get(str(name), str(name))


def last_part(place: str) -> str:
    """Return the last component of a path, URI or encoder name."""
    return place.rstrip("/").rpartition("/")[2] or place


def all_configurations(models: Iterable[ModelScores]) -> list[Configuration]:
    return [configuration for model in models for configuration in model.configurations]


def mean_scores(repeats: Sequence[Scores]) -> Scores:
    """Return the mean over repeats; standard deviations are averaged as variances."""
    if len(repeats) == 1:
        return repeats[0]
    counts = {scores.counts for scores in repeats}
    polarity = statistics.fmean(scores.polarity for scores in repeats)
    similarity = statistics.fmean(scores.similarity for scores in repeats)
    return Scores(
        polarity=polarity,
        similarity=similarity,
        polarity_std=_mean_deviation(scores.polarity_std for scores in repeats),
        similarity_std=_mean_deviation(scores.similarity_std for scores in repeats),
        counts=counts.pop() if len(counts) == 1 else None,
    )


def _mean_deviation(deviations: Iterable[float | None]) -> float | None:
    variances = [deviation**2 for deviation in deviations if deviation is not None]
    return math.sqrt(statistics.fmean(variances)) if variances else None


def make_configurations(points: Iterable[ScoredPoint]) -> tuple[Configuration, ...]:
    """Group points by configuration, averaging repeated points."""
    points_of_configuration: dict[str, list[ScoredPoint]] = {}
    for point in points:
        key = repr(sorted(point.values.items()))
        points_of_configuration.setdefault(key, []).append(point)
    configurations = []
    for members in points_of_configuration.values():
        repeats: dict[int, dict[ScoredSplit, list[Scores]]] = {}  # keyed by rung
        for point in members:
            by_split = repeats.setdefault(point.rung, {})
            by_split.setdefault(point.split, []).append(point.scores)
        rungs = {}
        for rung in sorted(repeats):
            by_split = repeats[rung]
            rungs[rung] = {split: mean_scores(scores) for split, scores in by_split.items()}
        configurations.append(Configuration(members[0].values, rungs))
    return tuple(configurations)


def join_runs(models: Iterable[ModelScores]) -> list[ModelScores]:
    """Merge runs with the same setting and no common configurations, such as parts of a grid."""
    joined: list[ModelScores] = []
    for model in models:
        values = [configuration.values for configuration in model.configurations]
        for index, other in enumerate(joined):
            is_shared = any(
                configuration.values in values for configuration in other.configurations
            )
            if model.setting and model.setting == other.setting and not is_shared:
                joined[index] = dataclasses.replace(
                    other,
                    origin=f"{other.origin} + {model.origin}",
                    place=f"{other.place} + {model.place}",
                    configurations=other.configurations + model.configurations,
                    baselines={**model.baselines, **other.baselines},
                )
                break
        else:
            joined.append(model)
    return joined


def column_names(models: Sequence[ModelScores]) -> list[str]:
    """Return the model names, extended until they are unique.

    Raises:
        InputError: If a run or file is passed twice.
    """
    names = [model.model for model in models]
    for attribute in _DISTINCTIONS:
        values = [getattr(model, attribute) for model in models]
        if len(set(values)) == 1:
            continue
        counts = Counter(names)
        for index, (name, value) in enumerate(zip(names, values, strict=True)):
            if counts[name] > 1 and value:
                names[index] = f"{name}, {value}"
    counts = Counter(names)
    for name, model in zip(names, models, strict=True):
        if counts[name] > 1:
            raise InputError(f"{model.place} is passed twice; pass each run or file only once")
    return names


def select(models: Iterable[ModelScores], where: Mapping[str, str]) -> list[ModelScores]:
    """Filter scores by the values of ``model``, ``dataset`` and parameters.

    Raises:
        InputError: If no configuration matches.
    """
    selected = list(models)
    for name, wanted in where.items():
        texts: set[str] = set()
        parts = []
        for model in selected:
            configurations = []
            for configuration in model.configurations:
                value = (
                    getattr(model, name)
                    if name in ("model", "dataset")
                    else configuration.values.get(name)
                )
                if value is not None:
                    texts.add(str(value))
                if _equals(value, wanted):
                    configurations.append(configuration)
            if configurations:
                parts.append(dataclasses.replace(model, configurations=tuple(configurations)))
        if not parts:
            allowed = ", ".join(sorted(texts)[:20]) or "model, dataset, or the name of a parameter"
            raise InputError(f"--where: no configuration has {name} {wanted!r}; allowed: {allowed}")
        selected = parts
    return selected


def _equals(value: Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return str(value).lower() == wanted.lower()
    if isinstance(value, int | float):
        try:
            return float(wanted) == value
        except ValueError:
            return False
    return value is not None and str(value) == wanted
