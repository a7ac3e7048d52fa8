"""What trials changed on data that they were not tuned for, and the learning rates at which nothing got worse.

The **adiabatic range** is the set of learning rates at which the target improves significantly and no watched set worsens
significantly, by the paired bootstrap (Vasilyev et al., arXiv 2407.00923).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from raysweep.config.sides import Tower
from raysweep.config.sweep import EncoderConfig
from raysweep.data.relations import Relations
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.encoders.traits import EncoderTraits
from raysweep.evaluation import measure_tables
from raysweep.evaluation.measure_tables import Row
from raysweep.evaluation.measures import (
    DataMeasures,
    Embedded,
    Measured,
    embed_documents,
    measure_embedded,
    remove_normalization,
    warn_of_skipped,
)
from raysweep.metrics.closeness import Geometry
from raysweep.output import ABSENT, TextTable
from raysweep.terminal import Display
from raysweep.uncertainty.changes import Verdict

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

VERDICTS: tuple[Verdict, ...] = ("improved", "unchanged", "worsened")


@dataclass(frozen=True)
class TunedTrial:
    """A rung of a trial. ``load`` returns its model as exported, which expects the prompts of ``config``.

    With the tower ``query``, the model embeds documents like the base encoder.
    """

    trial: int
    step: int
    learning_rate: float
    tower: Tower
    config: EncoderConfig
    load: Callable[[], "SentenceTransformer"]


@dataclass(frozen=True)
class WatchedSet:
    """A source's measures before and after a trial."""

    measures: DataMeasures
    seed: int

    @property
    def name(self) -> str:
        return self.measures.relations.name

    @cached_property
    def rows(self) -> list[Row]:
        """Return every measure and its change, of each group of a pair file."""
        return measure_tables.rows_of(self.measures, self.seed)

    def whole(self, geometry: Geometry) -> Row:
        """Return the PND of the source as a whole and its change."""
        return measure_tables.whole_row(self.measures, self.rows, geometry, self.seed)


@dataclass(frozen=True)
class WatchedTrial:
    """A trial's changes on the target and on the watched sets."""

    trial: TunedTrial
    target: WatchedSet
    watched: list[WatchedSet]

    def worsened(self, geometry: Geometry) -> list[str]:
        """Return the names of the watched sets that worsen significantly as a whole."""
        return [each.name for each in self.watched if each.whole(geometry).verdict == "worsened"]

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
    """Return the learning rates at which every trial is adiabatic, or the reason why there is no such rate.

    Watched sets that are too small to be tested are ignored.
    """
    by_rate: dict[float, list[WatchedTrial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.trial.learning_rate):
        by_rate.setdefault(trial.trial.learning_rate, []).append(trial)
    tried = list(by_rate)
    rates = [rate for rate, at_rate in by_rate.items() if all(trial.is_adiabatic(geometry) for trial in at_rate)]
    if rates:
        return AdiabaticRange(rates, tried)
    if trials[0].target.whole(geometry).verdict is None:
        return AdiabaticRange([], tried, "the target is too small to be tested")
    for rate, at_rate in by_rate.items():
        worsened = list(dict.fromkeys(name for trial in at_rate for name in trial.worsened(geometry)))
        if worsened:
            reason = f"at the learning rate {rate:.3g}, PND rises first: {', '.join(worsened)}"
            if not any(trial.target.whole(geometry).verdict == "improved" for trial in at_rate):
                reason += "; the target does not improve significantly there"
            return AdiabaticRange([], tried, reason)
    return AdiabaticRange([], tried, "the target improves significantly at no learning rate")


def watch(
    base: LoadedEncoder, trials: Sequence[TunedTrial], all_relations: Sequence[Relations], seed: int, display: Display
) -> list[WatchedTrial]:
    """Measure trials on all relations, of which the first are the target's, against the base encoder.

    The base encoder has each trial's prompts.
    """
    bases: dict[str, _Base] = {}
    remove_normalization(base.model)
    results: list[WatchedTrial] = []
    for trial in trials:
        prompts = str(trial.config.prompt)
        if prompts not in bases:
            config = base.config.model_copy(update={"prompt": trial.config.prompt})
            bases[prompts] = _Base.of(replace(base, config=config), all_relations, display)
        before = bases[prompts]
        model = trial.load().to(base.model.device)
        remove_normalization(model)
        loaded = LoadedEncoder(trial.config, base.source, model, EncoderTraits.of(model))
        documents = before.documents
        if trial.tower != "query":
            documents = embed_documents(loaded, all_relations, display)
        after = measure_embedded(loaded, documents, all_relations, display)
        measures = [DataMeasures(*values) for values in zip(all_relations, after, before.measured, strict=True)]
        if not results:
            warn_of_skipped(measures, display)
        target, *watched = [WatchedSet(values, seed) for values in measures]
        results.append(WatchedTrial(trial, target, watched))
    for watched_set in (results[0].target, *results[0].watched):
        if watched_set.whole("cosine").verdict is None:
            display.warn(f"{watched_set.name}: too small to be tested")
    return results


@dataclass(frozen=True)
class _Base:
    """The base encoder's documents and measures, with some prompts."""

    documents: Embedded
    measured: list[dict[Geometry, Measured]]

    @classmethod
    def of(cls, loaded: LoadedEncoder, all_relations: Sequence[Relations], display: Display) -> "_Base":
        documents = embed_documents(loaded, all_relations, display)
        return cls(documents, measure_embedded(loaded, documents, all_relations, display))


def table(trials: Sequence[WatchedTrial], geometry: Geometry) -> TextTable:
    """Return a row per trial: the target's improvement, and the watched sets' verdicts and smallest improvement."""
    columns = ("trial", "learning rate", "target", "verdict", *VERDICTS, "not tested", "lowest", "of")
    cells = [_cells(trial, geometry) for trial in trials]
    return TextTable(columns, tuple(cells), frozenset({"trial", "verdict", "of"}))


def _cells(trial: WatchedTrial, geometry: Geometry) -> tuple[str, ...]:
    target = trial.target.whole(geometry)
    rows = {watched_set.name: watched_set.whole(geometry) for watched_set in trial.watched}
    verdicts = [row.verdict for row in rows.values()]
    known = {name: row for name, row in rows.items() if row.shown_improvement != ABSENT}
    lowest = min(known, key=lambda name: known[name].improvement or 0.0, default=None)
    return (
        f"{trial.trial.trial}:{trial.trial.step}",
        f"{trial.trial.learning_rate:.3g}",
        target.shown_improvement,
        target.verdict or "not tested",
        *(str(verdicts.count(verdict)) for verdict in [*VERDICTS, None]),
        ABSENT if lowest is None else known[lowest].shown_improvement,
        lowest or ABSENT,
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
                "watched": [_set_as_json(each) for each in trial.watched],
            }
            for trial in trials
        ],
    }


def _set_as_json(watched_set: WatchedSet) -> dict[str, Any]:
    wholes = [measure_tables.row_as_json(watched_set.whole(geometry)) for geometry in watched_set.measures.tuned]
    return {**measure_tables.as_json(watched_set.measures, watched_set.rows), "whole": wholes}
