"""Compared runs as tables, for a terminal and as Markdown (scores x100), and as JSON (scores in [0, 1])."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from raysweep.output import ABSENT, TextTable, escape_markdown, markdown_lines
from raysweep.report.area_difference import AreaDifference
from raysweep.report.side_by_side import Domination, SettingDifference, Side, SideBySide
from raysweep.report.tables import short, show, show_area
from raysweep.report.texts import CORRECTED

FIGURE = "compare.png"

MAX_NAMES = 5  # of points per table cell; JSON lists all


def run_table(found: SideBySide) -> TextTable:
    """Return a row per run: its trials, its front, and its hypervolume on each split."""
    columns = ["run", "status", "trials", "front"]
    for split, (polarity, similarity) in found.reference_points.items():
        begin = f"({show(polarity)}, {show(similarity)})"
        columns.append(f"{split} hypervolume above {begin}")
    rows = []
    for number, side in enumerate(found.sides):
        areas = [by_run[number] for by_run in found.areas.values()]
        rows.append(_run_row(side, areas))
    return TextTable(tuple(columns), tuple(rows), frozenset({"run", "status"}))


def _run_row(side: Side, areas: Iterable[float]) -> tuple[str, ...]:
    results, members = side.summary.results, side.summary.members
    shown = [show_area(area) if members else ABSENT for area in areas]
    return side.label, results.status, str(len(results.trials)), str(len(members)), *shown


def difference_table(found: SideBySide) -> TextTable:
    """Return by how much each hypervolume exceeds the first run's, with intervals."""
    rows = [
        (each.split, f"{each.label} - {each.other}", show_area(each.estimate), _interval(each), _noise(each))
        for each in found.differences
    ]
    level = f"{100 * found.level:.0f}%"
    interval = f"simultaneous {level} interval" if len(found.differences) > 1 else f"{level} interval"
    columns = ("split", "hypervolumes", "difference", f"{interval}, {CORRECTED}", "over")
    return TextTable(columns, tuple(rows), frozenset({"split", "hypervolumes", "over"}))


def _interval(each: AreaDifference) -> str:
    if each.interval is None:
        return ABSENT
    return f"{show_area(each.interval.low)} to {show_area(each.interval.high)}"


def _noise(each: AreaDifference) -> str:
    return ABSENT if each.interval is None else each.noise


def domination_table(found: SideBySide) -> TextTable:
    """Return the number and names of the points of each front that another front dominates."""
    rows = [
        (each.split, f"{each.label} over {each.other}", f"{len(each.names)} of {each.num_points}", _names(each))
        for each in found.dominations
    ]
    text = frozenset({"split", "domination", "points"})
    return TextTable(("split", "domination", "dominated", "points"), tuple(rows), text)


def _names(each: Domination) -> str:
    names = list(each.names[:MAX_NAMES])
    num_others = len(each.names) - len(names)
    if num_others:
        names.append(f"{num_others} more")
    return ", ".join(names) or ABSENT


def setting_table(found: SideBySide) -> TextTable:
    """Return the settings of the sweeps that differ between runs."""
    return _by_run(found, "setting", found.settings)


def best_table(found: SideBySide) -> TextTable:
    """Return the best point of each run under its own objective, and the parameters of its configuration that differ."""
    return _by_run(found, "best of", found.best_configs)


def _by_run(found: SideBySide, heading: str, differences: tuple[SettingDifference, ...]) -> TextTable:
    columns = (heading, *(side.label for side in found.sides))
    rows = [(each.name, *(ABSENT if value is None else short(value) for value in each.values)) for each in differences]
    return TextTable(columns, tuple(rows), frozenset(columns))


def sections(found: SideBySide) -> Iterator[tuple[str, TextTable]]:
    """Yield titles and tables, skipping tables without rows."""
    tables = {
        "Runs": run_table(found),
        "Difference of hypervolumes": difference_table(found),
        "Dominated points": domination_table(found),
        "Settings that differ": setting_table(found),
        "Best configurations": best_table(found),
    }
    yield from ((title, table) for title, table in tables.items() if table.rows)


def notes(found: SideBySide) -> Iterator[str]:
    """Yield notes on the runs, missing intervals, and the meaning of the intervals."""
    yield from found.notes
    absent = {each.why_none for each in found.differences if each.interval is None}
    for why in sorted(absent):
        yield f"A difference of hypervolumes has no interval: {why}."
    if any(each.interval for each in found.differences):
        yield _what_intervals_are(found)


def _what_intervals_are(found: SideBySide) -> str:
    text = "Intervals come from a paired bootstrap over queries"
    if any(each.has_seeds for each in found.differences):
        text += (
            "; those over seeds too are for the mean scores of the fronts' configurations, with the noise of training seeds "
            "pooled over the configurations that ran more than once"
        )
    else:
        text += " and do not include training seeds"
    if len(found.differences) > 1:
        text += f"; together they hold with {100 * found.level:.0f}% (Bonferroni)"
    return f"{text}."


def markdown(found: SideBySide) -> str:
    """Return the content of ``compare.md``: the figure, then the tables."""
    names = ", ".join(side.label for side in found.sides)
    lines = [f"# {escape_markdown(names)}", "", f"![Fronts of the runs]({FIGURE})"]
    for note in notes(found):
        lines += ["", f"> {escape_markdown(note)}"]
    for title, table in sections(found):
        lines += ["", f"## {title}", "", *markdown_lines(table)]
    return "\n".join(lines) + "\n"


def as_json(found: SideBySide) -> dict[str, Any]:
    """Return the content of all tables, and the fronts."""
    return {
        "runs": [_run_as_json(found, number) for number in range(len(found.sides))],
        "reference_points": {split: list(point) for split, point in found.reference_points.items()},
        "differences": [_difference_as_json(each, found.level) for each in found.differences],
        "dominations": [dataclasses.asdict(each) for each in found.dominations],
        "settings": _values_by_name(found.settings),
        "best_configurations": _values_by_name(found.best_configs),
        "notes": list(notes(found)),
    }


def _values_by_name(differences: Iterable[SettingDifference]) -> dict[str, list[Any]]:
    return {each.name: list(each.values) for each in differences}


def _run_as_json(found: SideBySide, number: int) -> dict[str, Any]:
    side = found.sides[number]
    results = side.summary.results
    areas = {split: areas[number] if side.summary.members else None for split, areas in found.areas.items()}
    fronts = {
        split: [
            {
                "point": point.name,
                "polarity": point.polarity,
                "similarity": point.similarity,
                "retention": point.retention,
            }
            for point in side.front.on(split)
        ]
        for split in found.splits
    }
    status = {"label": side.label, "run": results.folder, "status": results.status, "num_trials": len(results.trials)}
    return {**status, "hypervolume": areas, "front": fronts}


def _difference_as_json(each: AreaDifference, level: float) -> dict[str, Any]:
    interval = None if each.interval is None else [each.interval.low, each.interval.high]
    return {
        "split": each.split,
        "label": each.label,
        "other": each.other,
        "estimate": each.estimate,
        "interval": interval,
        "level": level,
        "over": None if each.interval is None else each.noise,
        "why_no_interval": each.why_none or None,
    }
