"""Chosen points for a terminal and as JSON: scores on dev and test, configurations, and export commands."""

import math
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from raysweep.report.choice import BY, Candidate
from raysweep.report.notes import why_no_intervals
from raysweep.report.summary import Summary
from raysweep.report.tables import MISSES, describe, guard_cell, score_cells, show
from raysweep.results.types import Point, ScoredSplit
from raysweep.results.views import varied_parameters
from raysweep.uncertainty.interval import LEVEL, Interval

if TYPE_CHECKING:
    import rich.table

MAX_COMMANDS = 3  # for more points, one command with a placeholder is printed

_SCORES = tuple(name for name in BY if name != "objective")
_WITH_INTERVALS = ("polarity", "similarity", "retention")


def rows_as_json(summary: Summary, chosen: Sequence[Candidate], splits: Sequence[ScoredSplit]) -> list[dict[str, Any]]:
    """Return an object per point, with scores in [0, 1]. ``export`` is None if the point cannot be exported.

    ``intervals`` of a point's scores may be None; ``why_no_intervals`` gives the reason.
    """
    return [_row_as_json(summary, each, splits) for each in chosen]


def _row_as_json(summary: Summary, each: Candidate, splits: Sequence[ScoredSplit]) -> dict[str, Any]:
    point = each.dev
    encoder = {name: getattr(point, name) for name in ("trial", "step", "kind", "value", "width")}
    return {
        "point": point.name,
        **encoder,
        "objective": each.objective,
        "is_feasible": each.is_feasible,
        "marks": list(each.marks),
        **{split: _scores_as_json(summary, each.on(split)) for split in splits},
        "guards": {name: measured.score for name, measured in each.guards.items()},
        "config": dict(each.config),
        "export": export_command(summary, point.name) if each.is_member else None,
    }


def _scores_as_json(summary: Summary, point: Point | None) -> dict[str, Any] | None:
    if point is None:
        return None
    scores: dict[str, Any] = {name: getattr(point, name) for name in _SCORES}
    known = summary.intervals_of(point)
    if known is None:
        return {**scores, "intervals": None, "why_no_intervals": _why_none(summary, point)}
    bounds = {name: _bounds(getattr(known, name)) for name in _WITH_INTERVALS}
    return {**scores, "intervals": {"level": LEVEL, **bounds}}


def _bounds(interval: Interval | None) -> list[float] | None:
    if interval is None or not math.isfinite(interval.low + interval.high):
        return None
    return [interval.low, interval.high]


def _why_none(summary: Summary, point: Point) -> str:
    """Return why a point has no intervals."""
    if why := why_no_intervals(summary, point.split):
        return why
    return "scores of each query are stored of points within three standard errors of the front alone"


def choice_tables(
    summary: Summary, chosen: Sequence[Candidate], splits: Sequence[ScoredSplit]
) -> Iterator["rich.table.Table"]:
    """Yield the points as tables, each narrower than the one before.

    They differ in whether they have intervals, and whether they have accuracy, guards and width.
    """
    yield _table(summary, chosen, splits, intervals=True, details=True)
    yield _table(summary, chosen, splits, intervals=True, details=False)
    yield _table(summary, chosen, splits, intervals=False, details=True)
    yield _table(summary, chosen, splits, intervals=False, details=False)


def _table(
    summary: Summary,
    chosen: Sequence[Candidate],
    splits: Sequence[ScoredSplit],
    *,
    intervals: bool,
    details: bool,
) -> "rich.table.Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("point", no_wrap=True)
    table.add_column("mark", no_wrap=True)
    names = ["P", "S", "retention", *(["accuracy"] if details else [])]
    headings = [f"{split}\n{name}" for split in splits for name in names]
    guards = sorted({name for each in chosen for name in each.guards}) if details else []
    for heading in ("objective", *headings, *guards, *(["width"] if details else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in chosen:
        cells = [each.dev.name, _marks(each), show(each.objective)]
        for split in splits:
            point = each.on(split)
            known = summary.intervals_of(point) if point and intervals else None
            cells += score_cells(point, known)[: len(names)]
        cells += [guard_cell(each.guards.get(name)) for name in guards]
        if details:
            cells.append(str(each.dev.width))
        table.add_row(*map(Text, cells))
    return table


def _marks(each: Candidate) -> str:
    signs = {"knee": "★", "best": "◆"}
    marks = [f"{signs[mark]} {mark}" for mark in each.marks]
    return " ".join(marks if each.is_feasible else [*marks, MISSES])


def lines_below(summary: Summary, chosen: Sequence[Candidate], splits: Sequence[ScoredSplit]) -> Iterator[str]:
    """Yield the configuration of each trial, a description of the scores, and the export commands."""
    varied = varied_parameters(summary.results.trials)
    configs = {each.dev.trial: each.config for each in chosen}
    for trial, config in configs.items():
        yield f"trial {trial}: {describe(config, varied)}"
    yield _what_scores_are(summary, chosen, splits)
    yield from _missing_intervals(summary, chosen, splits)
    yield from _missing_guards(summary)
    members = [each.dev.name for each in chosen if each.is_member]
    blank = ["POINT"]
    for name in members if len(members) <= MAX_COMMANDS else blank:
        yield f"export: {export_command(summary, name)}"
    if len(members) < len(chosen):
        yield "Points that are not on the front cannot be exported: their weights are not kept."


def _what_scores_are(summary: Summary, chosen: Sequence[Candidate], splits: Sequence[ScoredSplit]) -> str:
    text = "Scores x100, chosen on dev"
    if any(split in summary.uncertainty for split in splits):
        text += f"; {LEVEL:.0%} intervals over queries stand in brackets where there is room for them"
    if "dev" in splits and "dev" in summary.uncertainty:
        text += ", those on dev less what choosing the front there adds"
    if "test" in splits and not any(each.test for each in chosen):
        text += "; none of these points was scored on test"
    return f"{text}."


def _missing_intervals(summary: Summary, chosen: Sequence[Candidate], splits: Sequence[ScoredSplit]) -> Iterator[str]:
    """Yield a line per split on which points have no intervals."""
    for split in splits:
        points = [point for each in chosen if (point := each.on(split))]
        without = [point for point in points if summary.intervals_of(point) is None]
        if without:
            whose = "no intervals" if len(without) == len(points) else f"no intervals of {len(without)} points"
            yield f"There are {whose} on {split}: {_why_none(summary, without[0])}."


def _missing_guards(summary: Summary) -> Iterator[str]:
    """Yield a line per guard that some members have no score of. Guards are only measured after the search."""
    for guard in summary.results.info.guards:
        num_missing = sum(guard not in member.guards for member in summary.members)
        if num_missing:
            yield f"{num_missing} of the {len(summary.members)} front members have no score of {guard} yet."


def export_command(summary: Summary, name: str, to: str = "FOLDER") -> str:
    """Return the command that exports a point of the run's front to a folder, by default a placeholder."""
    return shlex.join(["raysweep", "export", summary.results.folder, to, "--point", name])
