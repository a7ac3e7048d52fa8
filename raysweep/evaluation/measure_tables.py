"""Measures as tables for people, and as JSON for programs. Measures are x100."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from raysweep.evaluation.measures import DataMeasures, Measured
from raysweep.metrics.closeness import GEOMETRIES, Geometry
from raysweep.output import ABSENT, TextTable
from raysweep.uncertainty import changes
from raysweep.uncertainty.changes import Change, Verdict, ZTest

MIN_TESTED = 20
"""Minimum number of positives, and of negatives, for a test of a pair file or of one of its groups."""

MIN_GROUPS = 8
"""Minimum number of groups for a test of a pair file with several groups as a whole."""


@dataclass(frozen=True)
class Row:
    """A measure by one geometry, in [0, 1], and its change from the base encoder's value if there is one."""

    measure: str
    geometry: Geometry
    value: float
    lower_is_better: bool
    base: float | None = None
    z_test: ZTest | None = None
    change: Change | None = None

    @property
    def improvement(self) -> float | None:
        if self.base is None:
            return None
        return changes.relative_improvement(self.base, self.value, lower_is_better=self.lower_is_better)

    @property
    def shown_improvement(self) -> str:
        """Return the relative improvement in percent, or a sign that it is unknown."""
        improvement = self.improvement
        return f"{improvement:+.2%}" if improvement is not None and math.isfinite(improvement) else ABSENT

    @property
    def z_verdict(self) -> Verdict | None:
        return self._verdict(None if self.z_test is None else self.z_test.is_significant)

    @property
    def verdict(self) -> Verdict | None:
        """Return the verdict of the bootstrap; None if the change is not tested."""
        return self._verdict(None if self.change is None else self.change.is_significant)

    def _verdict(self, is_significant: bool | None) -> Verdict | None:
        if is_significant is None or self.base is None:
            return None
        difference = self.value - self.base
        return changes.verdict(difference, is_significant=is_significant, lower_is_better=self.lower_is_better)


def rows_of(measures: DataMeasures, seed: int) -> list[Row]:
    """Return all measures: those of retrieval data, or the PND of each group of a pair file."""
    rows: list[Row] = []
    for geometry in GEOMETRIES:
        tuned, base = measures.tuned[geometry], measures.base.get(geometry)
        make_rows = _retrieval_rows if measures.is_retrieval else _pair_rows
        rows += make_rows(geometry, tuned, base, seed)
    return rows


def _retrieval_rows(geometry: Geometry, tuned: Measured, base: Measured | None, seed: int) -> Iterator[Row]:
    errors = tuned.errors
    if base is None:
        yield Row("PND, by query", geometry, errors.mean_over_groups, True)
        yield Row("PND, by pair", geometry, errors.over_pairs, True)
        for name, values in tuned.by_query.items():
            yield Row(name, geometry, float(values.mean()), False)
        return
    before = base.errors
    change = changes.bootstrap_means(before.by_group, errors.by_group, seed)
    yield Row("PND, by query", geometry, errors.mean_over_groups, True, before.mean_over_groups, None, change)
    change = changes.bootstrap_over_pairs(before, errors, seed)
    z_test = changes.z_test(before.over_pairs, errors.over_pairs, errors.num_pairs)
    yield Row("PND, by pair", geometry, errors.over_pairs, True, before.over_pairs, z_test, change)
    for name, values in tuned.by_query.items():
        base_values = base.by_query[name]
        change = changes.bootstrap_means(base_values, values, seed)
        yield Row(name, geometry, float(values.mean()), False, float(base_values.mean()), None, change)


def _pair_rows(geometry: Geometry, tuned: Measured, base: Measured | None, seed: int) -> Iterator[Row]:
    relations, ranking = tuned.relations, tuned.ranking
    shares = tuned.errors.by_group.tolist()
    for position, (number, share) in enumerate(zip(ranking.groups.tolist(), shares, strict=True)):
        name = relations.group_names[number]
        measure = f"PND, {name}" if name else "PND"
        if base is None:
            yield Row(measure, geometry, share, True)
            continue
        base_share = float(base.errors.by_group[position])
        num_rarest = min(ranking.num_positives[position], ranking.num_negatives[position])
        if num_rarest < MIN_TESTED:
            yield Row(measure, geometry, share, True, base_share)
            continue
        z_test = changes.z_test(base_share, share, int(tuned.errors.pairs[position]))
        in_group = relations.group == number
        change = changes.bootstrap_pair_file(
            base.closeness[in_group], tuned.closeness[in_group], relations.is_positive[in_group], seed
        )
        yield Row(measure, geometry, share, True, base_share, z_test, change)


def whole_row(measures: DataMeasures, rows: Sequence[Row], geometry: Geometry, seed: int) -> Row:
    """Return the PND of a source as a whole and its change; ``rows`` are those of :func:`rows_of`.

    It is the mean over queries, or the PND of a pair file. The groups of a pair file are resampled as units, if there
    are at least MIN_GROUPS.
    """
    before = measures.base[geometry].errors
    after = measures.tuned[geometry].errors
    num_groups = len(after.pairs)
    if measures.is_retrieval or num_groups == 1:
        return next(row for row in rows if row.geometry == geometry)
    change = None
    if num_groups >= MIN_GROUPS:
        change = changes.bootstrap_over_pairs(before, after, seed)
    base_share, share = before.over_pairs, after.over_pairs
    z_test = changes.z_test(base_share, share, after.num_pairs)
    return Row("PND, all groups", geometry, share, True, base_share, z_test, change)


def title(measures: DataMeasures) -> str:
    """Return a line that describes the data, such as ``dev.jsonl: retrieval, 65 queries, 4,394 pairs compared``."""
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
        parts.append(f"{relations.num_left_out:,} rows left out")
    listed = ", ".join(parts)
    return f"{relations.name}: {listed}; {num_pairs:,} (positive, negative) pairs"


def table(rows: Sequence[Row]) -> TextTable:
    """Return a row per measure with a column per geometry; with a base encoder, a row per measure and geometry."""
    if rows[0].base is None:
        values: dict[str, list[str]] = {}
        for row in rows:
            shown = f"{100 * row.value:.2f}"
            values.setdefault(row.measure, []).append(shown)
        cells = [(measure, *shown_values) for measure, shown_values in values.items()]
        return TextTable(("measure", *GEOMETRIES), tuple(cells), frozenset({"measure"}))
    columns = ("measure", "by", "base", "model", "I", "difference", "95% interval", "verdict", "Z", "by Z")
    text_columns = frozenset({"measure", "by", "95% interval", "verdict", "by Z"})
    compared_cells = map(_compared_cells, rows)
    return TextTable(columns, tuple(compared_cells), text_columns)


def _compared_cells(row: Row) -> tuple[str, ...]:
    assert row.base is not None
    interval = ABSENT
    if row.change is not None:
        interval = f"{100 * row.change.interval.low:+.2f} to {100 * row.change.interval.high:+.2f}"
    return (
        row.measure,
        row.geometry,
        f"{100 * row.base:.2f}",
        f"{100 * row.value:.2f}",
        row.shown_improvement,
        f"{100 * (row.value - row.base):+.2f}",
        interval,
        row.verdict or "not tested",
        f"{row.z_test.z:+.2f}" if row.z_test else ABSENT,
        row.z_verdict or ABSENT,
    )


def as_json(measures: DataMeasures, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the measures of one set of relations for :func:`json.dumps`."""
    errors = measures.tuned["cosine"].errors
    return {
        "data": measures.relations.name,
        "kind": measures.relations.kind,
        "groups": len(errors.pairs),
        "skipped": len(measures.skipped_groups),
        "left_out": measures.relations.num_left_out,
        "pairs": errors.num_pairs,
        "measures": [row_as_json(row) for row in rows],
    }


def row_as_json(row: Row) -> dict[str, Any]:
    """Return a measure and its change for :func:`json.dumps`."""
    values: dict[str, Any] = {"measure": row.measure, "closeness": row.geometry, "value": 100 * row.value}
    if row.base is None:
        return values
    improvement = row.improvement
    assert improvement is not None
    interval = row.change.interval if row.change else None
    return {
        **values,
        "base": 100 * row.base,
        "improvement": 100 * improvement if math.isfinite(improvement) else None,
        "low": 100 * interval.low if interval else None,
        "high": 100 * interval.high if interval else None,
        "verdict": row.verdict,
        "z": row.z_test.z if row.z_test else None,
        "z_verdict": row.z_verdict,
    }
