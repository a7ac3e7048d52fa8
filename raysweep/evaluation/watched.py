"""What trials changed on data that they were not tuned for, and the learning rates at which nothing got worse.

The **adiabatic range** is the set of learning rates at which the target improves significantly and no watched set worsens
significantly, by the paired bootstrap (Vasilyev et al., arXiv 2407.00923).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from raysweep.config.sweep import EncoderConfig
from raysweep.data.relations import Relations
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.encoders.traits import EncoderTraits
from raysweep.evaluation import measure_tables
from raysweep.evaluation.measure_tables import Row
from raysweep.evaluation.measures import DataMeasures, measure_loaded, warn_of_skipped
from raysweep.metrics.closeness import Geometry
from raysweep.output import ABSENT, TextTable
from raysweep.terminal import Display

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class TunedTrial:
    """The last rung of a trial. ``load`` returns its model as exported, which expects the prompts of ``config``."""

    trial: int
    step: int
    learning_rate: float
    config: EncoderConfig
    load: Callable[[], "SentenceTransformer"]


@dataclass(frozen=True)
class WatchedSet:
    """A source's measures before and after a trial; the target is the first source of its trial."""

    measures: DataMeasures
    seed: int

    @property
    def name(self) -> str:
        return self.measures.relations.name

    @cached_property
    def rows(self) -> list[Row]:
        """Return every measure and its change, of each group of a pair file."""
        return measure_tables.rows_of(self.measures, self.seed)

    @cached_property
    def _whole(self) -> dict[Geometry, Row]:
        return {
            geometry: measure_tables.whole_row(self.measures, geometry, self.seed) for geometry in self.measures.tuned
        }

    def whole(self, geometry: Geometry) -> Row:
        """Return the PND of the source as a whole."""
        return self._whole[geometry]


@dataclass(frozen=True)
class WatchedTrial:
    """A trial's changes on the target and on the watched sets."""

    trial: TunedTrial
    target: WatchedSet
    watched: list[WatchedSet]

    def worsened(self, geometry: Geometry) -> list[str]:
        """Return the names of the watched sets that worsen significantly as a whole."""
        return [one.name for one in self.watched if one.whole(geometry).verdict == "worsened"]

    def is_adiabatic(self, geometry: Geometry) -> bool:
        """Return whether the target improves significantly and no watched set worsens significantly."""
        return self.target.whole(geometry).verdict == "improved" and not self.worsened(geometry)


@dataclass(frozen=True)
class AdiabaticRange:
    """The learning rates in the range, ascending, of those that were tried. ``reason`` explains an empty range."""

    rates: list[float]
    tried: list[float]
    reason: str = ""

    def __str__(self) -> str:
        if not self.rates:
            return f"adiabatic range: empty: {self.reason}"
        listed = ", ".join(f"{rate:.3g}" for rate in self.rates)
        return f"adiabatic range: learning rates {listed} ({len(self.rates)} of the {len(self.tried)} tried)"


def adiabatic_range(trials: Sequence[WatchedTrial], geometry: Geometry) -> AdiabaticRange:
    """Return the learning rates at which every trial is adiabatic, or the reason why there is no such rate."""
    by_rate: dict[float, list[WatchedTrial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.trial.learning_rate):
        by_rate.setdefault(trial.trial.learning_rate, []).append(trial)
    rates = [rate for rate, at_rate in by_rate.items() if all(trial.is_adiabatic(geometry) for trial in at_rate)]
    if rates:
        return AdiabaticRange(rates, list(by_rate))
    for rate, at_rate in by_rate.items():
        broken = list(dict.fromkeys(name for trial in at_rate for name in trial.worsened(geometry)))
        if broken:
            reason = f"at the learning rate {rate:.3g}, {', '.join(broken)} worsens first"
            if not any(trial.target.whole(geometry).verdict == "improved" for trial in at_rate):
                reason += ", before the target improves significantly"
            return AdiabaticRange([], list(by_rate), reason)
    return AdiabaticRange([], list(by_rate), "the target improves significantly at no learning rate")


def watch(
    base: LoadedEncoder, trials: Sequence[TunedTrial], all_relations: Sequence[Relations], seed: int, display: Display
) -> list[WatchedTrial]:
    """Measure trials on all relations, of which the first are the target's, against the base encoder."""
    before = measure_loaded(base, base, all_relations, display)
    results = []
    for number, trial in enumerate(trials):
        model = trial.load().to(base.model.device)
        loaded = LoadedEncoder(trial.config, base.source, model, EncoderTraits.of(model))
        after = measure_loaded(loaded, loaded, all_relations, display)
        measures = [DataMeasures(*values) for values in zip(all_relations, after, before, strict=True)]
        if number == 0:
            warn_of_skipped(measures, display)
        target, *watched = [WatchedSet(values, seed) for values in measures]
        results.append(WatchedTrial(trial, target, watched))
    return results


def table(trials: Sequence[WatchedTrial], geometry: Geometry) -> TextTable:
    """Return a row per trial: the target's improvement, and the watched sets' verdicts and smallest improvement."""
    columns = ("trial", "learning rate", "target", "verdict", "improved", "unchanged", "worsened", "lowest", "of")
    return TextTable(columns, tuple(_cells(trial, geometry) for trial in trials), frozenset({"trial", "verdict", "of"}))


def _cells(trial: WatchedTrial, geometry: Geometry) -> tuple[str, ...]:
    target = trial.target.whole(geometry)
    wholes = [(one.name, one.whole(geometry)) for one in trial.watched]
    verdicts = [row.verdict for _, row in wholes]
    known = [(row.improvement, name) for name, row in wholes if row.improvement is not None]
    lowest, of_set = min(known) if known else (None, ABSENT)
    counts = [str(verdicts.count(verdict)) for verdict in ("improved", "unchanged", "worsened")]
    return (
        f"{trial.trial.trial}:{trial.trial.step}",
        f"{trial.trial.learning_rate:.3g}",
        ABSENT if target.improvement is None else f"{target.improvement:+.2%}",
        target.verdict or "not tested",
        *counts,
        ABSENT if lowest is None else f"{lowest:+.2%}",
        of_set,
    )


def as_json(trials: Sequence[WatchedTrial]) -> dict[str, Any]:
    """Return all changes x100 for ``watch.json``."""
    ranges = {geometry: adiabatic_range(trials, geometry) for geometry in trials[0].target.measures.tuned}
    return {
        "adiabatic_range": {
            geometry: {"learning_rates": found.rates, "tried": found.tried, "reason": found.reason}
            for geometry, found in ranges.items()
        },
        "trials": [
            {
                "trial": trial.trial.trial,
                "step": trial.trial.step,
                "learning_rate": trial.trial.learning_rate,
                "target": _set_as_json(trial.target),
                "watched": [_set_as_json(one) for one in trial.watched],
            }
            for trial in trials
        ],
    }


def _set_as_json(one: WatchedSet) -> dict[str, Any]:
    wholes = [measure_tables.row_as_json(one.whole(geometry)) for geometry in one.measures.tuned]
    return {**measure_tables.as_json(one.measures, one.rows), "whole": wholes}
