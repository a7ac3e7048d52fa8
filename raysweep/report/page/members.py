"""The table and the chart data of the front's members."""

import dataclasses
from collections.abc import Iterator, Mapping

from raysweep.metrics.scores import Goals
from raysweep.output import escape_controls
from raysweep.report.choice import export_command
from raysweep.report.front import Member
from raysweep.report.page.markup import table
from raysweep.report.page.points import Json, scaled, score_keys, scores_of
from raysweep.report.summary import Summary
from raysweep.report.tables import front_table, show
from raysweep.report.texts import constraint_heading
from raysweep.results.query_scores import name_of_point
from raysweep.uncertainty.front import FrontUncertainty

TITLE = "Front members"


def member_table(summary: Summary) -> str:
    """Return the table of members: the knee first, then the others by decreasing S on dev.

    The column headings of guards include their limits.
    """
    content = front_table(summary)
    knee_rows: list[tuple[str, ...]] = []
    other_rows: list[tuple[str, ...]] = []
    minima: dict[str, float | None] = {}
    for member, row in zip(summary.members, content.rows, strict=True):
        rows = knee_rows if member.is_knee else other_rows
        rows.append(row)
        for name, score in member.guards.items():
            minima[name] = score.at_least
    columns = []
    for column in content.columns:
        minimum = minima.get(column)
        limit = "" if minimum is None else f" ≥\N{NO-BREAK SPACE}{show(minimum)}"
        columns.append(column + limit)
    with_limits = dataclasses.replace(
        content, columns=tuple(columns), rows=(*knee_rows, *other_rows)
    )
    return table(with_limits, TITLE, "members")


def member_values(member: Member, index: int, summary: Summary) -> Json:
    """Return a member's chart data; ``index`` is the index of its point among the points shown."""
    point = member.dev
    command = export_command(summary, point.name)
    guards = []
    for name, measured in sorted(member.guards.items()):
        guard = {
            "name": escape_controls(name),
            "metric": escape_controls(measured.metric),
            "score": scaled(measured.score),
            "minimum": scaled(measured.at_least),  # None if the sweep sets no limit
            "isMet": measured.is_met,
        }
        guards.append(guard)
    keys = score_keys(summary)
    intervals = {}
    for split in summary.splits:
        intervals[split] = _intervals(member, summary.uncertainty.get(split), keys, summary.goals)
    return {
        "point": index,
        "name": point.name,
        "knee": member.is_knee,
        "best": member.is_best,
        "width": point.width,
        "test": None if member.test is None else scores_of(member.test, keys),
        "misses": list(_missed_limits(member, summary)),
        "guards": guards,
        "command": escape_controls(command),
        "intervals": intervals,
    }


def _missed_limits(member: Member, summary: Summary) -> Iterator[str]:
    """Yield the constraints and guards that a member violates, such as ``P ≥ 70.0 (66.5)``."""
    point = member.dev
    reference = summary.references.get("dev")
    if reference is not None:
        p, s = point.pair(summary.goals)
        for name, minimum in summary.results.info.constraints.items():
            score = p if name == "polarity" else s
            unit = reference[summary.goals.s] if name == "retention" else 1.0
            if score < minimum * unit:  # same comparison as in the sweep's objective
                heading = constraint_heading(name, summary.goals)
                yield _missed(heading, score / unit, minimum)
    for guard, measured in sorted(member.guards.items()):
        if measured.at_least is not None and not measured.is_met:
            name = f"guard {escape_controls(guard)}"
            yield _missed(name, measured.score, measured.at_least)


def _missed(name: str, score: float, minimum: float) -> str:
    """Format a violated limit, with more digits if one decimal would hide the difference."""
    limit_text, score_text = show(minimum), show(score)
    if limit_text == score_text:
        limit_text, score_text = f"{100 * minimum:.6g}", f"{100 * score:.6g}"
    return f"{name} ≥ {limit_text} ({score_text})"


def _intervals(
    member: Member, front: FrontUncertainty | None, keys: Mapping[str, str], goals: Goals
) -> Json:
    """Return a member's stability and score intervals; empty if per-query scores are not stored."""
    uncertainty = None if front is None else front.members.get(name_of_point(member.dev))
    if front is None or uncertainty is None:
        return {}
    named = uncertainty.named(goals)
    bounds: dict[str, list[float | None] | None] = {}
    for key, name in keys.items():
        if key in ("p", "s", "r"):
            interval = named.get(name)
            bounds[key] = None
            if interval is not None:
                bounds[key] = [scaled(interval.low), scaled(interval.high)]
    return {
        "level": front.level,
        **bounds,
        "stability": round(uncertainty.stability, 3),
        "inKneeRegion": uncertainty.in_knee_region,
    }
