"""Run comparisons as tables (scores x100) and as JSON (scores in [0, 1])."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from raysweep.output import ABSENT, TextTable, escape_markdown, markdown_lines
from raysweep.report.side_by_side import SettingDifference, SideBySide
from raysweep.report.tables import short, show, show_area
from raysweep.report.texts import CORRECTED
from raysweep.uncertainty.interval import LEVEL

FIGURE = "compare.png"

MAX_NAMES = 5  # maximum number of point names per table cell


def run_table(comparison: SideBySide) -> TextTable:
    """Return a table of each run's trials, front members and hypervolumes."""
    columns = ["run", "status", "trials", "front"]
    for split, reference_point in comparison.reference_points.items():
        scores = ", ".join(map(show, reference_point))
        columns.append(f"{split} hypervolume above ({scores})")
    rows = []
    for number, side in enumerate(comparison.sides):
        results = side.summary.results
        num_members = len(side.front.members)
        row = [side.label, results.status, str(len(results.trials)), str(num_members)]
        for areas in comparison.areas.values():
            area = areas[number]
            row.append(show_area(area) if num_members else ABSENT)
        rows.append(tuple(row))
    return TextTable(tuple(columns), tuple(rows), frozenset({"run", "status"}))


def difference_table(comparison: SideBySide) -> TextTable:
    """Return a table that compares each run's hypervolume with the first run's."""
    rows = []
    for difference in comparison.differences:
        interval = difference.interval
        bounds = noise = ABSENT
        if interval is not None:
            low = show_area(interval.low)
            high = show_area(interval.high)
            bounds = f"{low} to {high}"
            noise = difference.noise
        labels = f"{difference.label} - {difference.other}"
        estimate = show_area(difference.estimate)
        row = (difference.split, labels, estimate, bounds, noise)
        rows.append(row)
    heading = f"{LEVEL:.0%} interval, {CORRECTED}"
    if len(comparison.differences) > 1:
        heading = f"simultaneous {heading}"
    columns = ("split", "hypervolumes", "difference", heading, "over")
    text_columns = frozenset({"split", "hypervolumes", "over"})
    return TextTable(columns, tuple(rows), text_columns)


def domination_table(comparison: SideBySide) -> TextTable:
    """Return a table of each front's points that another front dominates."""
    rows = []
    for domination in comparison.dominations:
        names = list(domination.names[:MAX_NAMES])
        num_others = len(domination.names) - len(names)
        if num_others:
            names.append(f"{num_others} more")
        labels = f"{domination.label} over {domination.other}"
        count = f"{len(domination.names)} of {domination.num_points}"
        listed = ", ".join(names) or ABSENT
        rows.append((domination.split, labels, count, listed))
    columns = ("split", "domination", "dominated", "points")
    return TextTable(columns, tuple(rows), frozenset({"split", "domination", "points"}))


def point_table(comparison: SideBySide) -> TextTable:
    """Return a table of the points on each front, with P and S on each split."""
    columns = ["run", "point"]
    for split in comparison.splits:
        columns += [f"{split} {heading}" for heading in comparison.goals.headings]
    rows = []
    for side in comparison.sides:
        fronts = [side.front.on(split) for split in comparison.splits]
        for point_on_splits in zip(*fronts, strict=True):
            row = [side.label, point_on_splits[0].name]
            for point in point_on_splits:
                row += map(show, point.pair(comparison.goals))
            rows.append(tuple(row))
    return TextTable(tuple(columns), tuple(rows), frozenset({"run", "point"}))


def _by_run(
    comparison: SideBySide, heading: str, differences: tuple[SettingDifference, ...]
) -> TextTable:
    columns = (heading, *(side.label for side in comparison.sides))
    rows = []
    for difference in differences:
        values = [ABSENT if value is None else short(value) for value in difference.values]
        rows.append((difference.name, *values))
    return TextTable(columns, tuple(rows), frozenset(columns))


def sections(comparison: SideBySide) -> Iterator[tuple[str, TextTable]]:
    """Yield the title and the table of each nonempty section."""
    tables = {
        "Runs": run_table(comparison),
        "Difference in hypervolume": difference_table(comparison),
        "Dominated points": domination_table(comparison),
        "Settings that differ": _by_run(comparison, "setting", comparison.settings),
        "Best configurations": _by_run(comparison, "best of", comparison.best_configs),
    }
    yield from ((title, table) for title, table in tables.items() if table.rows)


def notes(comparison: SideBySide) -> Iterator[str]:
    """Yield notes on the runs and on the intervals."""
    yield from comparison.notes
    reasons = {
        difference.why_none for difference in comparison.differences if difference.interval is None
    }
    for reason in sorted(reasons):
        yield f"A difference in hypervolume has no interval: {reason}."
    if any(difference.interval for difference in comparison.differences):
        text = "Intervals come from a paired bootstrap over queries"
        if any(difference.has_seeds for difference in comparison.differences):
            text += (
                ". Intervals that also account for seeds use each configuration's mean scores. Their seed noise is pooled "
                "over the configurations that ran more than once"
            )
        else:
            text += " and do not include training seeds"
        if len(comparison.differences) > 1:
            text += f". All intervals hold jointly at {LEVEL:.0%} (Bonferroni)"
        yield f"{text}."


def markdown(comparison: SideBySide) -> str:
    """Return the content of ``compare.md``."""
    names = ", ".join(side.label for side in comparison.sides)
    lines = [f"# {escape_markdown(names)}", "", f"![Fronts of the runs]({FIGURE})"]
    for note in notes(comparison):
        lines += ["", f"> {escape_markdown(note)}"]
    for title, table in sections(comparison):
        lines += ["", f"## {title}", "", *markdown_lines(table)]
    return "\n".join(lines) + "\n"


def as_json(comparison: SideBySide) -> dict[str, Any]:
    """Return the content of ``compare.json``."""
    differences = []
    for difference in comparison.differences:
        interval = difference.interval
        values = {
            "split": difference.split,
            "label": difference.label,
            "other": difference.other,
            "estimate": difference.estimate,
            "interval": None if interval is None else [interval.low, interval.high],
            "level": LEVEL,
            "over": None if interval is None else difference.noise,
            "why_no_interval": difference.why_none or None,
        }
        differences.append(values)
    return {
        "runs": [_run_as_json(comparison, number) for number in range(len(comparison.sides))],
        "reference_points": {
            split: list(point) for split, point in comparison.reference_points.items()
        },
        "differences": differences,
        "dominations": [dataclasses.asdict(domination) for domination in comparison.dominations],
        "settings": _values_by_name(comparison.settings),
        "best_configurations": _values_by_name(comparison.best_configs),
        "notes": list(notes(comparison)),
    }


def _values_by_name(differences: Iterable[SettingDifference]) -> dict[str, list[Any]]:
    return {difference.name: list(difference.values) for difference in differences}


def _run_as_json(comparison: SideBySide, number: int) -> dict[str, Any]:
    side = comparison.sides[number]
    results = side.summary.results
    areas = {
        split: areas[number] if side.front.members else None
        for split, areas in comparison.areas.items()
    }
    fronts = {}
    for split in comparison.splits:
        points = []
        for point in side.front.on(split):
            scores = {name: point.get(name) for name in comparison.goals.written_scores}
            points.append({"point": point.name, **scores})
        fronts[split] = points
    return {
        "label": side.label,
        "run": results.folder,
        "status": results.status,
        "num_trials": len(results.trials),
        "hypervolume": areas,
        "front": fronts,
    }
