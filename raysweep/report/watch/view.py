"""A run's moment for display: a line, and below it the trials, the front and a plot."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from raysweep.control.request import plain
from raysweep.report.statuses import STATUS_STYLES
from raysweep.report.summary import Area, Member, Summary, summarize
from raysweep.report.tables import described, kind_name, show, show_area, show_share
from raysweep.report.watch.moment import Moment
from raysweep.report.watch.scatter import Layer, Pair, scatter
from raysweep.results.types import Point, Results
from raysweep.terminal import duration

COLUMNS = ("", "trial", "rung", "kind", "P", "S", "retention", "configuration")
TEXT_COLUMNS = ("", "kind", "configuration")

GAP = 2  # characters between two columns
LEAST_CONFIGURATION = 10  # minimum characters for a configuration

PLOT_HEIGHT = 16
LEAST_PLOT_HEIGHT = 8
MOST_PLOT_WIDTH = 72
FEWEST_MEMBERS = 4  # the ends, the knee and the best
LINES_AROUND = 8  # above, between and below the table and the plot


class View:
    """The display of a moment; an unchanged summary is reused from the view ``before``."""

    def __init__(self, moment: Moment, before: "View | None" = None) -> None:
        self.moment = moment
        self._summary: Summary | None = None
        if before is not None and before.moment.results == moment.results:
            self._summary = before._summary
        elif moment.results is not None:
            self._summary = summarize(moment.results)

    @property
    def line(self) -> str:
        """The moment in one line: its state, its trials, its front."""
        if self._summary is None:
            return "beginning: the sweep has no trial yet"
        state, *others = self.news
        parts = [f"{state}, {duration(self.moment.seconds)}", *others]
        return plain(f"{self._summary.results.info.name}: {' | '.join(parts)}")

    @property
    def news(self) -> tuple[str, ...]:
        """The parts of the line except the time."""
        if self._summary is None:
            return (self.moment.state,)
        stage = [self.moment.stage] if self.moment.stage else []
        return (self.moment.state, *stage, *_trials_and_front(self._summary))

    def whole(self, width: int, height: int | None = None) -> RenderableType:
        """Return the complete view, limited to ``height`` lines if that is given and leaves enough room."""
        return Group(*self._parts(width, height))

    def _parts(self, width: int, height: int | None) -> Iterator[RenderableType]:
        yield Text(self.line)
        if self._summary is None:
            return
        yield Text("")
        if self._summary.members:
            yield from _front(self._summary, width, height)
        if self.moment.ending:
            yield Text("")
            yield Text(plain(self.moment.ending))


def _front(summary: Summary, width: int, height: int | None) -> Iterator[RenderableType]:
    """Yield the table of the front, and the plot's lines."""
    plot_height, num_members = _heights(height, len(summary.members))
    yield _table(summary, num_members, width)
    for line in _plot(summary, width, plot_height):
        yield Text(line, no_wrap=True)


def _heights(height: int | None, num_members: int) -> tuple[int, int]:
    """Return the number of lines in the plot, and the number of front members in the table."""
    if height is None:
        return PLOT_HEIGHT, num_members
    plot_height = min(PLOT_HEIGHT, max(LEAST_PLOT_HEIGHT, height - LINES_AROUND - num_members))
    return plot_height, max(FEWEST_MEMBERS, height - LINES_AROUND - plot_height)


def _trials_and_front(summary: Summary) -> Iterator[str]:
    results = summary.results
    num_trials = results.info.num_trials
    yield f"{_num_begun(results)} of {num_trials} trials begun: {_counted(results)}"
    if results.workers is not None:
        yield f"at most {results.workers} at a time"
    for member in summary.members:
        if member.is_best:
            yield f"front {len(summary.members)}, best by the objective at {_scores(member.dev)}"
    area = summary.areas.get("dev")
    if area is not None:
        yield f"hypervolume {_hypervolume(area)}"


def _scores(point: Point) -> str:
    return f"P {show(point.polarity)} S {show(point.similarity)}"


def _hypervolume(area: Area) -> str:
    shown = show_area(area.front)
    if area.share is None:
        return shown
    return f"{shown}, {show_share(area.share)} of the oracle's"


def _num_begun(results: Results) -> int:
    """Return the number of started trials of the search, without replicates."""
    return sum(trial.replicate_of is None for trial in results.trials)


def _counted(results: Results) -> str:
    counts = Counter(str(trial.status) for trial in results.trials)
    found = [f"{counts[status]} {status}" for status in reversed(list(STATUS_STYLES)) if counts[status]]
    return ", ".join(found) or "none"


def _table(summary: Summary, num_members: int, width: int) -> Table:
    """Return a table of the front by decreasing similarity.

    If members are left out, it shows the ends, the knee, the best, and then those nearest to the ends. Configurations
    are cut if the table would be wider than ``width``.
    """
    table = _empty_table()
    rows = _rows(summary, num_members)
    room = width - _width_of_others(rows)
    table.columns[-1].max_width = max(LEAST_CONFIGURATION, room)
    for row in rows:
        table.add_row(*map(Text, row))
    num_left = len(summary.members) - num_members
    if num_left > 0:
        empty = [""] * (len(COLUMNS) - 1)
        table.add_row(*empty, f"and {num_left} more")
    return table


def _empty_table() -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False)
    for column in COLUMNS:
        is_text = column in TEXT_COLUMNS
        table.add_column(column, justify="left" if is_text else "right", no_wrap=True)
    return table


def _rows(summary: Summary, num_members: int) -> list[list[str]]:
    configurations = described(summary.results)
    shown = _shown_members(summary.members, num_members)
    return [_cells(member, configurations) for member in shown]


def _width_of_others(rows: Sequence[Sequence[str]]) -> int:
    """Return the width of all columns but the last, the configuration, including gaps."""
    columns = list(zip(COLUMNS, *rows, strict=True))
    return sum(max(map(len, column)) + GAP for column in columns[:-1])


def _cells(member: Member, configurations: Mapping[int, str]) -> list[str]:
    """Return the row of a front member."""
    point = member.dev
    scores = (point.polarity, point.similarity, point.retention)
    configuration = configurations.get(point.trial or 0, "")
    names = (_mark(member), str(point.trial), str(point.step), kind_name(point))
    return [plain(cell) for cell in (*names, *map(show, scores), configuration)]


def _shown_members(members: Sequence[Member], num_members: int) -> list[Member]:
    """Return the ``num_members`` most important members in their original order."""
    last = len(members) - 1

    def worth(place: int) -> tuple[bool, int]:
        member = members[place]
        from_end = min(place, last - place)
        return bool(from_end) and not (member.is_knee or member.is_best), from_end

    chosen = sorted(range(len(members)), key=worth)[:num_members]
    return [members[place] for place in sorted(chosen)]


def _mark(member: Member) -> str:
    marks = {"★": member.is_knee, "◆": member.is_best}
    return "".join(mark for mark, applies in marks.items() if applies)


def _plot(summary: Summary, width: int, height: int) -> list[str]:
    """Plot P against S on dev: all rungs of all trials, the front, its knee and the reference encoder."""
    layers = _layers(summary)
    lines = scatter(layers, min(width, MOST_PLOT_WIDTH), height)
    legends = [f"{layer.sign} {layer.legend}" for layer in layers if layer.points]
    return [*lines, "  ".join(legends)]


def _layers(summary: Summary) -> list[Layer]:
    on_dev = [point for point in summary.results.points if point.split == "dev"]
    reference = [point for point in on_dev if point.kind == "reference"]
    rungs = [point for point in on_dev if point.trial is not None]
    knees = [member for member in summary.members if member.is_knee]
    return [
        Layer("·", "rungs", _pairs(rungs)),
        Layer("R", "reference encoder", _pairs(reference)),
        Layer("●", "front", _pairs_of(summary.members)),
        Layer("★", "knee", _pairs_of(knees)),
    ]


def _pairs(points: Iterable[Point]) -> list[Pair]:
    return [(point.polarity, point.similarity) for point in points]


def _pairs_of(members: Iterable[Member]) -> list[Pair]:
    return _pairs(member.dev for member in members)
