"""The view of a run: a status line, and the front as a table and a plot."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from raysweep.metrics.scores import Goals, Pair
from raysweep.output import escape_line
from raysweep.report.front import Member
from raysweep.report.statuses import STATUS_STYLES
from raysweep.report.summary import Summary, summarize
from raysweep.report.tables import (
    described,
    identity_cells,
    score_cells,
    score_headings,
    show,
    show_area,
    show_share,
)
from raysweep.report.watch.moment import Moment
from raysweep.results.types import Point
from raysweep.terminal import duration

TEXT_COLUMNS = ("", "kind", "configuration")

GAP = 2  # characters between two columns
MIN_CONFIGURATION = 10  # minimum width of a configuration, in characters

PLOT_HEIGHT = 16
MIN_PLOT_HEIGHT = 8
MAX_PLOT_WIDTH = 72
MIN_MEMBERS = 4  # both ends, the knee and the best member
LINES_AROUND = 8  # lines above, between and below the table and the plot

LABEL_WIDTH = 6  # width of the numbers next to the P axis
NUM_LABEL_LINES = 3  # lines above and below the plotted points
MIN_RANGE = 0.002  # minimum range of an axis
MARGIN = 0.04  # share of the range added at each end of an axis


class View:
    """The view of a run at one moment. It reuses the summary of the view ``before`` if the results are unchanged."""

    def __init__(self, moment: Moment, before: "View | None" = None) -> None:
        self.moment = moment
        self._summary: Summary | None = None
        if before is not None and before.moment.results == moment.results:
            self._summary = before._summary
        elif moment.results is not None:
            self._summary = summarize(moment.results)

    @property
    def line(self) -> str:
        """The status line: the run's state, time, trials and front."""
        if self._summary is None:
            return "starting: no trials yet"
        state, *others = self.news
        parts = [f"{state}, {duration(self.moment.seconds)}", *others]
        return escape_line(f"{self._summary.results.info.name}: {' | '.join(parts)}")

    @property
    def news(self) -> tuple[str, ...]:
        """All parts of the status line except the name and the time."""
        if self._summary is None:
            return (self.moment.state,)
        stage = [self.moment.stage] if self.moment.stage else []
        return (self.moment.state, *stage, *_trials_and_front(self._summary))

    def render(self, width: int, height: int | None = None) -> RenderableType:
        """Return the view, shortened to ``height`` lines if possible."""
        summary = self._summary
        parts: list[RenderableType] = [Text(self.line)]
        if summary is None:
            return Group(*parts)
        parts.append(Text(""))
        if summary.members:
            plot_height, num_members = PLOT_HEIGHT, len(summary.members)
            if height is not None:
                num_free = height - LINES_AROUND
                plot_height = min(PLOT_HEIGHT, max(MIN_PLOT_HEIGHT, num_free - num_members))
                num_members = max(MIN_MEMBERS, num_free - plot_height)
            parts.append(_table(summary, num_members, width))
            lines = _plot(summary, width, plot_height)
            parts += [Text(line, no_wrap=True) for line in lines]
        if self.moment.ending:
            ending = escape_line(self.moment.ending)
            parts += [Text(""), Text(ending)]
        return Group(*parts)


def _trials_and_front(summary: Summary) -> Iterator[str]:
    results = summary.results
    num_trials = results.info.num_trials
    num_begun = sum(trial.replicate_of is None for trial in results.trials)
    counts = Counter(str(trial.status) for trial in results.trials)
    texts = [
        f"{counts[status]} {status}" for status in reversed(list(STATUS_STYLES)) if counts[status]
    ]
    listed = ", ".join(texts) or "none"
    yield f"{num_begun} of {num_trials} trials started: {listed}"
    if results.workers is not None:
        yield f"at most {results.workers} at a time"
    best = summary.front.best
    if best is not None:
        headings, pair = summary.goals.headings, best.dev.pair(summary.goals)
        scores = " ".join(
            f"{heading} {show(score)}" for heading, score in zip(headings, pair, strict=True)
        )
        yield f"front of {len(summary.members)}, best objective at {scores}"
    area = summary.areas.get("dev")
    if area is not None:
        text = f"hypervolume {show_area(area.front)}"
        if area.share is not None:
            text += f", {show_share(area.share)} of the oracle's"
        yield text


def _table(summary: Summary, num_members: int, width: int) -> Table:
    """Return a table of at most ``num_members`` members, sorted by decreasing S.

    Configurations are truncated if the table would be wider than ``width``.
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False)
    names = summary.goals.main_scores
    columns = ("", "trial", "rung", "kind", *score_headings(names), "configuration")
    for column in columns:
        is_text = column in TEXT_COLUMNS
        table.add_column(column, justify="left" if is_text else "right", no_wrap=True)
    configurations = described(summary.results)
    members = _select_members(summary.members, num_members)
    rows = []
    for member in members:
        point = member.dev
        configuration = configurations.get(point.trial or 0, "")
        marks = {"★": member.is_knee, "◆": member.is_best}
        mark = "".join(sign for sign, applies in marks.items() if applies)
        cells = [mark, *identity_cells(point), *score_cells(point, names), configuration]
        rows.append([escape_line(cell) for cell in cells])
    *other_columns, _ = zip(columns, *rows, strict=True)
    other_width = sum(max(map(len, column)) + GAP for column in other_columns)
    table.columns[-1].max_width = max(MIN_CONFIGURATION, width - other_width)
    for row in rows:
        table.add_row(*map(Text, row))
    num_omitted = len(summary.members) - len(members)
    if num_omitted > 0:
        empty = [""] * (len(columns) - 1)
        table.add_row(*empty, f"and {num_omitted} more")
    return table


def _select_members(members: Sequence[Member], num_members: int) -> list[Member]:
    """Select the ends, the knee and the best member, and then the members nearest to the ends."""
    last = len(members) - 1

    def sort_key(index: int) -> tuple[bool, int]:
        member = members[index]
        from_end = min(index, last - index)
        return bool(from_end) and not (member.is_knee or member.is_best), from_end

    indices = sorted(range(len(members)), key=sort_key)[:num_members]
    return [members[index] for index in sorted(indices)]


def _plot(summary: Summary, width: int, height: int) -> list[str]:
    """Plot P against S on dev."""
    on_dev = [point for point in summary.results.points if point.split == "dev"]
    rungs = [point for point in on_dev if point.trial is not None]
    references = [point for point in on_dev if point.kind == "reference"]
    front = [member.dev for member in summary.members]
    knees = [member.dev for member in summary.members if member.is_knee]
    goals = summary.goals
    layers = [
        Layer("·", "rungs", _pairs(rungs, goals)),
        Layer("R", "reference encoder", _pairs(references, goals)),
        Layer("●", "front", _pairs(front, goals)),
        Layer("★", "knee", _pairs(knees, goals)),
    ]
    lines = scatter(layers, min(width, MAX_PLOT_WIDTH), height, goals.headings)
    legends = [f"{layer.sign} {layer.legend}" for layer in layers if layer.points]
    return [*lines, "  ".join(legends)]


def _pairs(points: Iterable[Point], goals: Goals) -> list[Pair]:
    return [point.pair(goals) for point in points]


@dataclass(frozen=True)
class Layer:
    """Points drawn with the same character."""

    sign: str
    legend: str
    points: Sequence[Pair]


@dataclass(frozen=True)
class Axis:
    """An axis of scores from ``low`` to ``high``, divided into ``num_cells`` cells."""

    low: float
    high: float
    num_cells: int

    @classmethod
    def of(cls, scores: Iterable[float], num_cells: int) -> "Axis":
        """Return an axis that includes all scores. There must be at least one score."""
        values = list(scores)
        low, high = min(values), max(values)
        margin = max(MIN_RANGE, high - low) * MARGIN
        padding = max(0.0, MIN_RANGE - (high - low)) / 2  # extends a short axis
        return cls(low - margin - padding, high + margin + padding, num_cells)

    def cell(self, score: float) -> int:
        """Return the index of the cell that contains a score."""
        share = (score - self.low) / (self.high - self.low)
        return min(self.num_cells - 1, max(0, int(share * self.num_cells)))


def scatter(
    layers: Sequence[Layer], width: int, height: int, headings: tuple[str, str] = ("P", "S")
) -> list[str]:
    """Return the lines of a plot, ``width`` characters wide and ``height`` lines high.

    P is on the vertical axis and S on the horizontal axis, both x100. Later layers are drawn on top. The result is empty
    if there are no points.
    """
    points = [point for layer in layers for point in layer.points]
    if not points:
        return []
    polarities, similarities = zip(*points, strict=True)
    num_rows = max(2, height - NUM_LABEL_LINES)
    num_columns = max(8, width - LABEL_WIDTH - 2)
    rows = Axis.of(polarities, num_rows)
    columns = Axis.of(similarities, num_columns)
    low = show(columns.low)
    high = f"{show(columns.high)} {headings[1]}"
    gap_width = max(1, num_columns - len(low) - len(high))
    gap = " " * gap_width
    margin = " " * LABEL_WIDTH
    heading = headings[0].rjust(LABEL_WIDTH)
    lines = _lines(layers, rows, columns)
    axis = "-" * num_columns
    return [
        heading,
        *lines,
        f"{margin} +{axis}",
        f"{margin}  {low}{gap}{high}",
    ]


def _lines(layers: Sequence[Layer], rows: Axis, columns: Axis) -> list[str]:
    """Return the plot's rows from top to bottom, with labels at both ends of the P axis."""
    labels = [""] * rows.num_cells
    labels[0] = show(rows.low)
    labels[-1] = show(rows.high)
    cells = [[" "] * columns.num_cells for _ in range(rows.num_cells)]
    for layer in layers:
        for polarity, similarity in layer.points:
            row = rows.cell(polarity)
            column = columns.cell(similarity)
            cells[row][column] = layer.sign
    lines = []
    for label, characters in zip(labels, cells, strict=True):
        line = f"{label:>{LABEL_WIDTH}} |{''.join(characters)}"
        lines.append(line.rstrip())
    return lines[::-1]
