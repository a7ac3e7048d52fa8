"""Scores of one model, a column of a layout, and names of its configurations.

Runs and files are both converted to them.
"""

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raysweep.config.losses import LOSSES
from raysweep.errors import InputError
from raysweep.output import ABSENT
from raysweep.report.tables import describe
from raysweep.results.types import ScoredSplit

NUM_EXAMPLES = "examples_per_rung"
"""The parameter called N in papers."""

_LOSS_NAMES = {loss.library_class: name for name, loss in LOSSES.items() if loss.library_class}

_LOSS_PARAMETERS = ("loss", "margin", "scale")

_DISTINCTIONS = ("dataset", "reference", "retrieval", "origin", "place")
"""Attributes that tell scores of one model apart, in this order."""


@dataclass(frozen=True)
class Counts:
    """The number of queries that P is a mean over, and of retrieved sentences per query."""

    num_queries: int
    k: int


@dataclass(frozen=True)
class Scores:
    """Scores of one encoder on one split: means over queries in [0, 1], and standard deviations if known.

    ``counts`` is None if unknown, or if P is not an unweighted share because rank weights differ.
    """

    polarity: float
    similarity: float
    polarity_std: float | None = None
    similarity_std: float | None = None
    counts: Counts | None = None


SplitScores = Mapping[ScoredSplit, Scores]


@dataclass(frozen=True)
class Configuration:
    """A trained configuration. ``values`` omits parameters that are None and has whole numbers as integers.

    ``rungs`` maps rung numbers, ascending, to the scores of the tuned encoder; there is at least one.
    """

    values: Mapping[str, Any]
    rungs: Mapping[int, SplitScores]

    @property
    def last_rung(self) -> int:
        return max(self.rungs)

    @property
    def last_scores(self) -> SplitScores:
        return self.rungs[self.last_rung]


@dataclass(frozen=True)
class ModelScores:
    """Scores of one model under one measurement setup.

    ``origin`` is the name of the run or file, and ``place`` its location. ``retrieval`` describes the retrieval
    settings, empty if unknown. ``names_split`` is False for a file without a column ``split``. ``setting`` contains
    everything besides the configuration that scores depend on, empty if unknown: scores with different settings never
    share a column. ``baselines`` maps names to the encoders without a trial, the reference first. ``why_no_test`` is
    the reason for leaving out the run's test scores.
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
    """Return raysweep's name of a loss, given that name or the library's class."""
    return _LOSS_NAMES.get(str(name), str(name))


def last_part(place: str) -> str:
    """Return the last part of a path, a URI or a name with slashes, such as an encoder's name without its owner."""
    return place.rstrip("/").rpartition("/")[2] or place


def all_configurations(models: Iterable[ModelScores]) -> list[Configuration]:
    return [configuration for model in models for configuration in model.configurations]


def mean_scores(repeats: Sequence[Scores]) -> Scores:
    """Return the mean over runs of one configuration; a deviation is the root of the mean variance over queries."""
    if len(repeats) == 1:
        return repeats[0]
    counts = {scores.counts for scores in repeats}
    return Scores(
        statistics.fmean(scores.polarity for scores in repeats),
        statistics.fmean(scores.similarity for scores in repeats),
        _mean_deviation([scores.polarity_std for scores in repeats]),
        _mean_deviation([scores.similarity_std for scores in repeats]),
        counts.pop() if len(counts) == 1 else None,
    )


def _mean_deviation(deviations: Iterable[float | None]) -> float | None:
    known = [deviation for deviation in deviations if deviation is not None]
    return math.sqrt(statistics.fmean(deviation**2 for deviation in known)) if known else None


def merge_repeats(configurations: Iterable[Configuration]) -> tuple[Configuration, ...]:
    """Merge configurations that were trained more than once, with the means of their scores rung by rung."""
    values: dict[str, Mapping[str, Any]] = {}
    repeats: dict[str, dict[tuple[int, ScoredSplit], list[Scores]]] = defaultdict(lambda: defaultdict(list))
    for configuration in configurations:
        key = repr(sorted(configuration.values.items()))
        values.setdefault(key, configuration.values)
        for rung, by_split in configuration.rungs.items():
            for split, scores in by_split.items():
                repeats[key][rung, split].append(scores)
    merged = []
    for key, by_place in repeats.items():
        rungs: dict[int, dict[ScoredSplit, Scores]] = {rung: {} for rung in sorted({rung for rung, _ in by_place})}
        for (rung, split), scores_list in by_place.items():
            rungs[rung][split] = mean_scores(scores_list)
        merged.append(Configuration(values[key], rungs))
    return tuple(merged)


def join_runs(models: Iterable[ModelScores]) -> list[ModelScores]:
    """Merge scores with the same setting and disjoint configurations: parts of a grid from several runs."""
    joined: list[ModelScores] = []
    for model in models:
        values = [configuration.values for configuration in model.configurations]
        for index, other in enumerate(joined):
            is_shared = any(configuration.values in values for configuration in other.configurations)
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
    """Return the model's name for each column, extended until names are unique.

    Raises:
        InputError: If the same scores are passed twice.
    """
    names = [model.model for model in models]
    for attribute in _DISTINCTIONS:
        values = [getattr(model, attribute) for model in models]
        is_shared = [names.count(name) > 1 for name in names]
        if len(set(values)) > 1:
            extended = [f"{name}, {value}" if value else name for name, value in zip(names, values, strict=True)]
            choices = zip(extended, names, is_shared, strict=True)
            names = [longer if shared else name for longer, name, shared in choices]
    for name, model in zip(names, models, strict=True):
        if names.count(name) > 1:
            raise InputError(f"{model.place} is passed twice; allowed: each run or file once")
    return names


def select(models: Iterable[ModelScores], where: Mapping[str, str]) -> list[ModelScores]:
    """Filter scores by values of ``model``, ``dataset`` and parameters.

    Raises:
        InputError: If nothing is left.
    """
    selected = list(models)
    for name, wanted in where.items():
        values: set[str] = set()
        parts = []
        for model in selected:
            configurations = []
            for configuration in model.configurations:
                value = getattr(model, name) if name in ("model", "dataset") else configuration.values.get(name)
                values |= set() if value is None else {str(value)}
                if _equals(value, wanted):
                    configurations.append(configuration)
            if configurations:
                parts.append(dataclasses.replace(model, configurations=tuple(configurations)))
        if not parts:
            allowed = ", ".join(sorted(values, key=_rank)[:20]) or "names of parameters, model, dataset"
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


def _rank(text: str) -> tuple[bool, float, str]:
    """Return the sort key of a value in messages: numbers first."""
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text


@dataclass(frozen=True)
class Name:
    """Name of a configuration.

    ``margin`` is that of its loss, with ``scale 20`` if scales differ; ``others`` may be empty.
    """

    loss: str
    margin: str
    others: str = ""
    order: tuple[Any, ...] = ()  # sort key after the loss

    @property
    def text(self) -> str:
        """Return the name without the loss, in words."""
        margin = f"margin {self.margin}" if self.margin[0].isdigit() else self.margin
        return ", ".join(part for part in (margin, self.others) if part not in ("", ABSENT)) or ABSENT


class Naming:
    """Names for the configurations of these models.

    Different configurations have different names, though their texts may be equal. ``others`` are the parameters
    outside the loss that vary, or that only some configurations of a loss have.
    """

    def __init__(self, models: Sequence[ModelScores]) -> None:
        configurations = all_configurations(models)
        by_loss: dict[str, list[Configuration]] = defaultdict(list)
        for configuration in configurations:
            by_loss[_loss(configuration.values)].append(configuration)
        self._losses_with_scales = {loss for loss, members in by_loss.items() if _varies("scale", members)}
        parameters = dict.fromkeys(name for configuration in configurations for name in configuration.values)
        self.others: list[str] = []
        for name in parameters:
            is_partial = any(_is_partial(name, model.configurations) for model in models)
            if name not in _LOSS_PARAMETERS and (is_partial or _varies(name, configurations)):
                self.others.append(name)

    def name(self, values: Mapping[str, Any]) -> Name:
        loss, margin = _loss(values), values.get("margin")
        scale = values.get("scale") if loss in self._losses_with_scales else None
        parts = [] if margin is None else [_format(margin)]
        if scale is not None:
            parts.append(f"scale {_format(scale)}")
        present = {name: values[name] for name in self.others if name in values}
        others = describe(present, present) if present else ""
        ranks = [_rank_value(value) for value in (margin, scale, *map(values.get, self.others))]
        return Name(loss, ", ".join(parts) or ABSENT, others, tuple(ranks))


def _loss(values: Mapping[str, Any]) -> str:
    return str(values.get("loss", ABSENT))


def _is_partial(name: str, configurations: Iterable[Configuration]) -> bool:
    """Return whether only some configurations of one loss have the parameter."""
    presence: dict[str, set[bool]] = defaultdict(set)
    for configuration in configurations:
        presence[_loss(configuration.values)].add(name in configuration.values)
    return any(len(states) > 1 for states in presence.values())


def _varies(name: str, configurations: Iterable[Configuration]) -> bool:
    values = {repr(configuration.values[name]) for configuration in configurations if name in configuration.values}
    return len(values) > 1


def _format(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _rank_value(value: Any) -> tuple[int, float, str]:
    """Return the sort key of a value: missing values, then numbers, then words."""
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, int | float) else (2, 0.0, str(value))
