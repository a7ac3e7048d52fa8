"""Chosen points for a terminal and as JSON: their scores on dev and test, their configurations, how each is exported."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raysweep.report.choice import BY, Candidate
from raysweep.report.summary import Summary, half_width
from raysweep.report.tables import ABSENT, MISSES, describe, show
from raysweep.results.types import Point, ScoredSplit
from raysweep.results.views import varied_parameters
from raysweep.uncertainty.interval import Interval

if TYPE_CHECKING:
    import rich.table

MAX_COMMANDS = 3  # with more points there is one command, with a blank for the point

_SCORES = tuple(name for name in BY if name != "objective")


def rows_as_json(summary: Summary, chosen: Sequence[Candidate], splits: Sequence[ScoredSplit]) -> list[dict[str, Any]]:
    """An object a point, scores in [0, 1]. ``export`` is None where a point cannot be exported."""
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
        "config": dict(each.config),
        "export": export_command(summary, point.name) if each.is_member else None,
    }


def _scores_as_json(summary: Summary, point: Point | None) -> dict[str, Any] | None:
    if point is None:
        return None
    scores: dict[str, Any] = {name: getattr(point, name) for name in _SCORES}
    intervals = intervals_of(summary, point)
    if intervals is None:
        return scores
    bounds = {name: [interval.low, interval.high] for name, interval in intervals.of.items()}
    return {**scores, "intervals": {"level": intervals.level, **bounds}}


@dataclass(frozen=True)
class Intervals:
    """Of a point's scores, by the scores' names, over the queries that might have been drawn."""

    level: float
    of: Mapping[str, Interval]


def intervals_of(summary: Summary, point: Point) -> Intervals | None:
    """The plain intervals of the means; None where only means are known."""
    num_queries = summary.results.info.num_queries.get(point.split)
    if not num_queries or not (point.polarity_std or point.similarity_std):
        return None
    deviations = {"polarity": point.polarity_std, "similarity": point.similarity_std}
    found = {}
    for name, deviation in deviations.items():
        width, score = half_width(deviation, num_queries), getattr(point, name)
        found[name] = Interval(score - width, score + width)
    return Intervals(0.95, found)


def choice_tables(
    summary: Summary, chosen: Sequence[Candidate], splits: Sequence[ScoredSplit]
) -> Iterator["rich.table.Table"]:
    """The points as tables, each narrower than the one before: with and without intervals, accuracy and width."""
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
    for heading in ("objective", *headings, *(["width"] if details else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in chosen:
        cells = [each.dev.name, _marks(each), show(each.objective)]
        for split in splits:
            cells += _score_cells(summary, each.on(split), intervals)[: len(names)]
        if details:
            cells.append(str(each.dev.width))
        table.add_row(*map(Text, cells))
    return table


def _marks(each: Candidate) -> str:
    signs = {"knee": "★", "best": "◆"}
    marks = [f"{signs[mark]} {mark}" for mark in each.marks]
    return " ".join(marks if each.is_feasible else [*marks, MISSES])


def _score_cells(summary: Summary, point: Point | None, with_intervals: bool) -> list[str]:
    """P, S, retention and accuracy."""
    if point is None:
        return [ABSENT] * 4
    intervals = intervals_of(summary, point) if with_intervals else None
    cells = []
    for name in _SCORES:
        score = getattr(point, name)
        interval = None if intervals is None else intervals.of.get(name)
        bounds = "" if interval is None else f" ({show(interval.low)} to {show(interval.high)})"
        cells.append(ABSENT if score is None else f"{show(score)}{bounds}")
    return cells


def lines_below(summary: Summary, chosen: Sequence[Candidate], splits: Sequence[ScoredSplit]) -> Iterator[str]:
    """Configurations, a line a trial; what the scores are; how to export the points."""
    varied = varied_parameters(summary.results.trials)
    configs = {each.dev.trial: each.config for each in chosen}
    for trial, config in configs.items():
        yield f"trial {trial}: {describe(config, varied)}"
    yield _what_scores_are(summary, chosen, splits)
    members = [each.dev.name for each in chosen if each.is_member]
    blank = ["POINT"]
    for name in members if len(members) <= MAX_COMMANDS else blank:
        yield f"export: {export_command(summary, name)}"
    if len(members) < len(chosen):
        yield "Points that are not on the front cannot be exported: their weights are not kept."


def _what_scores_are(summary: Summary, chosen: Sequence[Candidate], splits: Sequence[ScoredSplit]) -> str:
    text = "Scores x100, chosen on dev"
    points = [point for each in chosen for split in splits if (point := each.on(split))]
    levels = {intervals.level for point in points if (intervals := intervals_of(summary, point))}
    if levels:
        percents = " or ".join(f"{100 * level:.0f}%" for level in sorted(levels))
        text += f"; intervals, where there is room for them, are of {percents} over queries"
    if "test" in splits and not any(each.test for each in chosen):
        text += "; none of these points was scored on test"
    return f"{text}."


def export_command(summary: Summary, name: str, to: str = "FOLDER") -> str:
    """The command that exports a point of the run's front into a folder, for which there is a blank if it is not given."""
    return shlex.join(["raysweep", "export", summary.results.folder, to, "--point", name])
