"""Measurements of one model, a column of a table. Runs and recorded tables are both converted to it."""

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raysweep.config.losses import LOSSES
from raysweep.errors import InputError
from raysweep.results.types import ScoredSplit

NUM_EXAMPLES = "examples_per_rung"
"""The parameter called N in papers."""

_LOSS_NAMES = {loss.library_class: name for name, loss in LOSSES.items() if loss.library_class}


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


def mean_scores(several: Sequence[Scores]) -> Scores:
    """Return the mean over runs of one configuration; a deviation is the root of the mean variance over queries."""
    counts = {scores.counts for scores in several}
    return Scores(
        statistics.fmean(scores.polarity for scores in several),
        statistics.fmean(scores.similarity for scores in several),
        _mean_deviation([scores.polarity_std for scores in several]),
        _mean_deviation([scores.similarity_std for scores in several]),
        counts.pop() if len(counts) == 1 else None,
    )


def _mean_deviation(deviations: Iterable[float | None]) -> float | None:
    known = [deviation for deviation in deviations if deviation is not None]
    return math.sqrt(statistics.fmean(deviation**2 for deviation in known)) if known else None


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
class Recording:
    """Measurements of one model under one measurement setup.

    ``origin`` is the name of the run or file, and ``place`` its location. ``retrieval`` describes the retrieval
    settings, empty if unknown. ``names_split`` is False for a recorded table without a column ``split``. ``setting``
    contains everything besides the configuration that scores depend on, empty if unknown: recordings with different
    settings never share a column. ``baselines`` maps names to the encoders without a trial, the reference first.
    ``why_no_test`` is the reason for leaving out the run's test scores.
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


def configurations_of(recordings: Iterable[Recording]) -> list[Configuration]:
    """Return the configurations of all recordings."""
    found: list[Configuration] = []
    for recording in recordings:
        found += recording.configurations
    return found


def loss_name(name: Any) -> str:
    """Return raysweep's name of a loss, given that name or the library's class."""
    return _LOSS_NAMES.get(str(name), str(name))


def last_part(place: str) -> str:
    """Return the last part of a path, a URI or a name with slashes, such as an encoder's name without its owner."""
    return place.rstrip("/").rpartition("/")[2] or place


def without_repeats(configurations: Iterable[Configuration]) -> tuple[Configuration, ...]:
    """Merge configurations that were trained more than once, with the means of their scores rung by rung."""
    alike: dict[str, list[Configuration]] = defaultdict(list)
    for configuration in configurations:
        alike[repr(sorted(configuration.values.items()))].append(configuration)
    return tuple(_mean_configuration(several) for several in alike.values())


def _mean_configuration(several: Sequence[Configuration]) -> Configuration:
    if len(several) == 1:
        return several[0]
    found: dict[int, dict[ScoredSplit, list[Scores]]] = defaultdict(lambda: defaultdict(list))
    for configuration in several:
        for rung, by_split in configuration.rungs.items():
            for split, scores in by_split.items():
                found[rung][split].append(scores)
    rungs = {
        rung: {split: mean_scores(scores) for split, scores in by_split.items()}
        for rung, by_split in sorted(found.items())
    }
    return Configuration(several[0].values, rungs)


def joined(recordings: Iterable[Recording]) -> list[Recording]:
    """Merge recordings with the same setting and disjoint configurations: parts of a grid from several runs."""
    found: list[Recording] = []
    for recording in recordings:
        for index, other in enumerate(found):
            if recording.setting and recording.setting == other.setting and not _share(recording, other):
                found[index] = _joined_pair(other, recording)
                break
        else:
            found.append(recording)
    return found


def _share(one: Recording, other: Recording) -> bool:
    """Return whether a configuration is in both recordings."""
    values = [configuration.values for configuration in one.configurations]
    return any(configuration.values in values for configuration in other.configurations)


def _joined_pair(one: Recording, other: Recording) -> Recording:
    return dataclasses.replace(
        one,
        origin=f"{one.origin} + {other.origin}",
        place=f"{one.place} + {other.place}",
        configurations=one.configurations + other.configurations,
        baselines={**other.baselines, **one.baselines},
    )


_NAMING = (
    "dataset",
    "reference",
    "retrieval",
    "origin",
    "place",
)  # attributes that distinguish recordings of one model, in this order


def column_names(recordings: Sequence[Recording]) -> list[str]:
    """Return the model's name for each recording, extended until names are unique.

    Raises:
        InputError: If a recording is given twice.
    """
    names = [recording.model for recording in recordings]
    for attribute in _NAMING:
        values = [getattr(recording, attribute) for recording in recordings]
        is_shared = [names.count(name) > 1 for name in names]
        if len(set(values)) > 1:
            names = [
                f"{name}, {value}" if shared and value else name
                for name, value, shared in zip(names, values, is_shared, strict=True)
            ]
    for name, recording in zip(names, recordings, strict=True):
        if names.count(name) > 1:
            raise InputError(f"{recording.place} is given twice; allowed: each run or table once")
    return names


_OF_RECORDINGS = ("model", "dataset")  # attributes to filter by, in addition to parameters


def selected(recordings: Iterable[Recording], where: Mapping[str, str]) -> list[Recording]:
    """Filter the recordings by values of ``model``, ``dataset`` and parameters.

    Raises:
        InputError: If nothing is left.
    """
    kept = list(recordings)
    for name, wanted in where.items():
        present = _values_of(kept, name)
        if not present:
            raise InputError(f"--where: no configuration has a parameter {name!r}")
        kept = [part for recording in kept if (part := _part(recording, name, wanted)).configurations]
        if not kept:
            listed = ", ".join(sorted(present, key=_by_number)[:20])
            raise InputError(f"--where: no configuration has {name} {wanted!r}; there are {listed}")
    return kept


def _values_of(recordings: Iterable[Recording], name: str) -> set[str]:
    if name in _OF_RECORDINGS:
        return {getattr(recording, name) for recording in recordings}
    configurations = configurations_of(recordings)
    return {str(configuration.values[name]) for configuration in configurations if name in configuration.values}


def _by_number(text: str) -> tuple[bool, float, str]:
    """Return the sort key of a value in messages: numbers first."""
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text


def _part(recording: Recording, name: str, wanted: str) -> Recording:
    if name in _OF_RECORDINGS:
        is_wanted = getattr(recording, name) == wanted
        return recording if is_wanted else dataclasses.replace(recording, configurations=())
    chosen = [each for each in recording.configurations if _is_value(each.values.get(name), wanted)]
    return dataclasses.replace(recording, configurations=tuple(chosen))


def _is_value(value: Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return str(value).lower() == wanted.lower()
    if isinstance(value, int | float):
        try:
            return float(wanted) == value
        except ValueError:
            return False
    return value is not None and str(value) == wanted
