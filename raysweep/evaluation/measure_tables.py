"""Text tables and JSON of measures, which are multiplied by 100."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from raysweep.evaluation.measures import DataMeasures, Measured
from raysweep.metrics.closeness import GEOMETRIES, Geometry
from raysweep.metrics.measured_value import MeasuredValue
from raysweep.output import ABSENT, TextTable, counted
from raysweep.uncertainty import changes
from raysweep.uncertainty.changes import Change

MIN_TESTED = 20
"""Minimum number of positives and of negatives required to test a pair file or one of its groups."""

MIN_GROUPS = 8
"""Minimum number of groups required to test all groups of a pair file together."""


def rows_of(measures: DataMeasures, seed: int) -> list[MeasuredValue]:
    """Return all measures of retrieval data, or the PND of each group in a pair file, under each geometry."""
    rows: list[MeasuredValue] = []
    for geometry in GEOMETRIES:
        tuned, base = measures.tuned[geometry], measures.base.get(geometry)
        make_rows = _retrieval_rows if measures.is_retrieval else _pair_rows
        rows += make_rows(geometry, tuned, base, seed)
    return rows


def _retrieval_rows(
    geometry: Geometry, tuned: Measured, base: Measured | None, seed: int
) -> Iterator[MeasuredValue]:
    errors = tuned.errors
    num_pairs = errors.num_pairs
    if base is None:
        yield MeasuredValue("PND, by query", geometry, errors.mean_over_groups)
        yield MeasuredValue("PND, by pair", geometry, errors.over_pairs, pairs=num_pairs)
        for name, values in tuned.by_query.items():
            yield MeasuredValue(name, geometry, float(values.mean()))
        return
    before = base.errors
    change = changes.bootstrap_means(before.by_group, errors.by_group, seed)
    share, base_share = errors.mean_over_groups, before.mean_over_groups
    yield MeasuredValue("PND, by query", geometry, share, base_share, *_interval(change))
    change = changes.bootstrap_over_pairs(before, errors, seed)
    yield _tested("PND, by pair", geometry, errors.over_pairs, before.over_pairs, num_pairs, change)
    for name, values in tuned.by_query.items():
        base_values = base.by_query[name]
        change = changes.bootstrap_means(base_values, values, seed)
        yield MeasuredValue(
            name, geometry, float(values.mean()), float(base_values.mean()), *_interval(change)
        )


def _interval(change: Change | None) -> tuple[float, float] | tuple[None, None]:
    """Return the bounds of a change's interval, or (None, None) if the change is None or the interval is infinite."""
    if change is None or not math.isfinite(change.interval.low):
        return None, None
    return change.interval.low, change.interval.high


def _tested(
    measure: str, geometry: Geometry, share: float, base: float, pairs: int, change: Change | None
) -> MeasuredValue:
    """Return a share of errors with the bootstrap interval and z-statistic of its change."""
    z = changes.z_statistic(base, share, pairs)
    low, high = _interval(change)
    return MeasuredValue(measure, geometry, share, base, low, high, pairs, z)


def _pair_rows(
    geometry: Geometry, tuned: Measured, base: Measured | None, seed: int
) -> Iterator[MeasuredValue]:
    relations, ranking = tuned.relations, tuned.ranking
    errors = tuned.errors
    for position, number in enumerate(ranking.groups.tolist()):
        name = relations.group_names[number]
        measure = f"PND, {name}" if name else "PND"
        share, pairs = float(errors.by_group[position]), int(errors.pairs[position])
        if base is None:
            yield MeasuredValue(measure, geometry, share, pairs=pairs)
            continue
        base_share = float(base.errors.by_group[position])
        num_rarest = min(ranking.num_positives[position], ranking.num_negatives[position])
        if num_rarest < MIN_TESTED:
            yield MeasuredValue(measure, geometry, share, base_share, pairs=pairs)
            continue
        in_group = relations.group == number
        change = changes.bootstrap_pair_file(
            base.closeness[in_group],
            tuned.closeness[in_group],
            relations.is_positive[in_group],
            seed,
        )
        yield _tested(measure, geometry, share, base_share, pairs, change)


def is_tested(measures: DataMeasures) -> bool:
    """Return whether the change in the overall PND of the source is tested."""
    ranking = measures.ranking
    num_groups = len(ranking.groups)
    if measures.is_retrieval:
        return num_groups > 1
    if num_groups > 1:
        return num_groups >= MIN_GROUPS
    num_rarest = int(min(ranking.num_positives[0], ranking.num_negatives[0]))
    return num_rarest >= MIN_TESTED


def whole_row(
    measures: DataMeasures, rows: Sequence[MeasuredValue], geometry: Geometry, seed: int
) -> MeasuredValue:
    """Return the overall PND of a source and its change; ``rows`` is the result of :func:`rows_of`.

    For retrieval data, the overall PND is the mean over queries. For a pair file with at least MIN_GROUPS groups, the
    bootstrap resamples entire groups.
    """
    before = measures.base[geometry].errors
    after = measures.tuned[geometry].errors
    num_groups = len(after.pairs)
    if measures.is_retrieval or num_groups == 1:
        return next(row for row in rows if row.geometry == geometry)
    change = None
    if num_groups >= MIN_GROUPS:
        change = changes.bootstrap_over_pairs(before, after, seed)
    return _tested(
        "PND, all groups", geometry, after.over_pairs, before.over_pairs, after.num_pairs, change
    )


def title(measures: DataMeasures) -> str:
    """Return a description such as ``dev.jsonl: retrieval, 65 queries; 4,394 (positive, negative) pairs``."""
    ranking, relations = measures.ranking, measures.relations
    num_groups = len(ranking.groups)
    num_skipped = len(measures.skipped_groups)
    num_pairs = measures.tuned["cosine"].errors.num_pairs
    parts: list[str] = [relations.kind]
    if measures.is_retrieval:
        parts.append(f"{num_groups:,} queries")
    else:
        if num_groups > 1:
            parts.append(f"{num_groups:,} groups")
        parts.append(f"{ranking.num_positives.sum():,} positives")
        parts.append(f"{ranking.num_negatives.sum():,} negatives")
    if num_skipped:
        parts.append(f"{num_skipped:,} skipped")
    if relations.num_left_out:
        parts.append(f"{counted(relations.num_left_out, 'row')} left out")
    listed = ", ".join(parts)
    return f"{relations.name}: {listed}; {num_pairs:,} (positive, negative) pairs"


def table(rows: Sequence[MeasuredValue]) -> TextTable:
    """Return a table with one row per measure and one column per geometry.

    With a base encoder, the table has one row per combination of measure and geometry.
    """
    if rows[0].base is None:
        values: dict[str, list[str]] = {}
        for row in rows:
            shown = f"{100 * row.value:.2f}"
            values.setdefault(row.measure, []).append(shown)
        cells = [(measure, *shown_values) for measure, shown_values in values.items()]
        return TextTable(("measure", *GEOMETRIES), tuple(cells), frozenset({"measure"}))
    columns = (
        "measure",
        "by",
        "base",
        "model",
        "I",
        "difference",
        "95% interval",
        "verdict",
        "Z",
        "by Z",
    )
    text_columns = frozenset({"measure", "by", "95% interval", "verdict", "by Z"})
    compared_cells = map(_compared_cells, rows)
    return TextTable(columns, tuple(compared_cells), text_columns)


def _compared_cells(row: MeasuredValue) -> tuple[str, ...]:
    assert row.base is not None
    interval = ABSENT
    if row.low is not None and row.high is not None:
        interval = f"{100 * row.low:+.2f} to {100 * row.high:+.2f}"
    return (
        row.measure,
        row.geometry,
        f"{100 * row.base:.2f}",
        f"{100 * row.value:.2f}",
        row.shown_improvement,
        f"{100 * (row.value - row.base):+.2f}",
        interval,
        row.verdict or "not tested",
        ABSENT if row.z is None else f"{row.z:+.2f}",
        row.z_verdict or ABSENT,
    )


def as_json(measures: DataMeasures, rows: Sequence[MeasuredValue]) -> dict[str, Any]:
    """Return the measures on one set of relations as JSON-serializable values."""
    errors = measures.tuned["cosine"].errors
    return {
        "data": measures.relations.name,
        "kind": measures.relations.kind,
        "groups": len(errors.pairs),
        "skipped": len(measures.skipped_groups),
        "left_out": measures.relations.num_left_out,
        "pairs": errors.num_pairs,
        "measures": [row.as_json() for row in rows],
    }
