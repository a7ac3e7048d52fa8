"""Scores of one model, shown in one column of a layout. Both runs and files are converted to this form."""

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
"""Names of losses, keyed by class; if several losses share a class, the first one in the table is used."""

_DISTINCTIONS = ("dataset", "reference", "retrieval", "origin", "place")
"""Attributes that distinguish several columns for the same model, in the order in which they are tried."""


@dataclass(frozen=True)
class Counts:
    """The number of queries that P is averaged over, and the number of sentences retrieved per query."""

    num_queries: int
    k: int


@dataclass(frozen=True)
class Scores:
    """One encoder's scores on one split: means over queries in [0, 1], and standard deviations if known.

    ``counts`` is None if unknown, or if P is not an unweighted share because ranks have different weights.
    """

    polarity: float
    similarity: float
    polarity_std: float | None = None
    similarity_std: float | None = None
    counts: Counts | None = None


SplitScores = Mapping[ScoredSplit, Scores]


@dataclass(frozen=True)
class ScoredPoint:
    """Scores of a configuration's tuned encoder after one rung; ``values`` is as in :class:`Configuration`."""

    values: Mapping[str, Any]
    rung: int
    split: ScoredSplit
    scores: Scores


@dataclass(frozen=True)
class Configuration:
    """A trained configuration. ``values`` omits parameters that are None and stores whole numbers as integers.

    ``rungs`` maps rung numbers, in ascending order, to the tuned encoder's scores; there is at least one rung.
    """

    values: Mapping[str, Any]
    rungs: Mapping[int, SplitScores]

    @property
    def last_rung(self) -> int:
        return max(self.rungs)


@dataclass(frozen=True)
class ModelScores:
    """Scores of one model under one measurement setup.

    ``origin`` is the name of the run or file, and ``place`` its location. ``retrieval`` describes the retrieval
    settings; it is empty if they are unknown. ``names_split`` is False for a file without a ``split`` column.
    ``setting`` contains everything that the scores depend on besides the configuration; it is empty if unknown. Scores
    with different settings never share a column. ``baselines`` maps the names of encoders that do not come from a trial
    to their scores, with the reference first. ``why_no_test`` is the reason why the run's test scores are left out.
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
    """Return raysweep's name for a loss, given either that name or the library's class name."""
    return _LOSS_NAMES.get(str(name), str(name))


def last_part(place: str) -> str:
    """Return the last component of a path, URI or name with slashes, such as an encoder's name without its owner."""
    return place.rstrip("/").rpartition("/")[2] or place


def all_configurations(models: Iterable[ModelScores]) -> list[Configuration]:
    return [configuration for model in models for configuration in model.configurations]


def mean_scores(repeats: Sequence[Scores]) -> Scores:
    """Return the mean over a configuration's runs; deviations over queries are averaged as variances."""
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
    """Return the configurations of these points, averaging points that were measured more than once."""
    points_of_configuration: dict[str, list[ScoredPoint]] = {}
    for point in points:
        key = repr(sorted(point.values.items()))
        points_of_configuration.setdefault(key, []).append(point)
    configurations = []
    for members in points_of_configuration.values():
        # keyed by rung
        repeats: dict[int, dict[ScoredSplit, list[Scores]]] = {}
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
    """Merge scores with the same setting but no configuration in common, such as parts of a grid from several runs."""
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
    """Return each column's model name, extended until all names are unique.

    Raises:
        InputError: If the same scores are passed twice.
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
        InputError: If no scores are left.
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
