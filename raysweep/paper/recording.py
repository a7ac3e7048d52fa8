"""What was measured of one model: what a column of a table shows. Runs and recorded tables are both read as this."""

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
"""The parameter that papers call N."""

_LOSS_NAMES = {loss.library_class: name for name, loss in LOSSES.items() if loss.library_class}


@dataclass(frozen=True)
class Counts:
    """Over how many queries P is a mean, and of how many retrieved sentences of each it is the share."""

    num_queries: int
    k: int


@dataclass(frozen=True)
class Scores:
    """Of one encoder on one split: means over queries in [0, 1], and standard deviations over queries where known.

    ``counts`` are None where they are not known, or where P is no plain share since ranks weigh differently.
    """

    polarity: float
    similarity: float
    polarity_std: float | None = None
    similarity_std: float | None = None
    counts: Counts | None = None


SplitScores = Mapping[ScoredSplit, Scores]


def mean_scores(several: Sequence[Scores]) -> Scores:
    """The mean over runs of one configuration; a deviation is the root of the mean variance over queries."""
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
    """A configuration that was trained. ``values`` has no parameter that is None, and whole numbers as integers.

    ``rungs`` by rising number, each with the scores of the tuned encoder as it is; there is at least one.
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
    """What was measured of one model, under one way of measuring.

    ``origin`` is the name of the run or file, and ``place`` where it lies. ``retrieval`` says how it was measured, and is
    empty where that is not known. ``names_split`` is false of a recorded table without a column of it. ``setting`` is
    everything beside the configuration that scores depend on, empty where that is not known: recordings that differ in it
    are never put into one column. ``baselines``, by name: the encoders that no trial made, the reference first.
    ``why_no_test`` says why test scores that the run has are left out.
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
    """Of all recordings."""
    found: list[Configuration] = []
    for recording in recordings:
        found += recording.configurations
    return found


def loss_name(name: Any) -> str:
    """A loss's name in raysweep, also where the library's class is named."""
    return _LOSS_NAMES.get(str(name), str(name))


def last_part(place: str) -> str:
    """Of a path, a URI or a name with slashes: an encoder's name without the folder or the owner that it stands under."""
    return place.rstrip("/").rpartition("/")[2] or place


def without_repeats(configurations: Iterable[Configuration]) -> tuple[Configuration, ...]:
    """Configurations that were trained more than once are one, with the means of their scores rung by rung."""
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
    """Recordings of one setting whose configurations all differ are one: parts of a grid that was run in several runs."""
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
    """Whether some configuration is in both."""
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
)  # what tells recordings of one model apart, in this order


def column_names(recordings: Sequence[Recording]) -> list[str]:
    """By the model, and by what else is needed to tell the recordings apart. InputError where nothing does."""
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


_OF_RECORDINGS = ("model", "dataset")  # what a part may be chosen by, beside parameters


def selected(recordings: Iterable[Recording], where: Mapping[str, str]) -> list[Recording]:
    """What is left of the recordings by values of ``model``, ``dataset`` and parameters. InputError where nothing is."""
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
    """By which values are listed: numbers first."""
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
