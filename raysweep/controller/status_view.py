"""Terminal view of a running sweep's status."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from raysweep.controller.status import Activity, RunningRung, SweepStatus
from raysweep.terminal import duration

MAX_ROWS = 12
# terminal lines reserved for everything except the rows of trials
OTHER_LINES = 8
BAR_WIDTH = 20
MIN_BAR_WIDTH = 6
WIDTH_WITHOUT_BARS = 58  # maximum width of a row without its bar, in terminal columns

COLUMNS = ("trial", "rung", "", "examples", "", "rung ends in")
NUMBERS = ("trial", "examples", "rung ends in")


@dataclass(frozen=True)
class StatusView:
    """A Rich renderable that shows a status, extrapolated to the time of rendering."""

    status: SweepStatus
    taken_at: float = field(default_factory=time.monotonic)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        status = self.status.after(time.monotonic() - self.taken_at)
        times = status.time_text
        if not times.endswith("so far"):
            times = f"{duration(status.seconds)} so far, {times}"
        bar = Table.grid(padding=(0, 1))
        share = ProgressBar(1.0, status.fraction, width=BAR_WIDTH)
        bar.add_row("search", share, f"{status.fraction:.0%}", times)
        yield bar
        for text in (status.counts_text, status.front_text, f"cost {status.cost_text}"):
            if text:
                yield Text(text)
        rungs = sorted(status.running, key=lambda rung: rung.trial)
        num_rows = min(MAX_ROWS, max(1, console.height - OTHER_LINES))
        if rungs:
            yield _table(rungs[:num_rows], min(BAR_WIDTH, options.max_width - WIDTH_WITHOUT_BARS))
        if others := rungs[num_rows:]:
            counts = Counter(rung.activity for rung in others)
            shown = [activity for activity in Activity if counts[activity]]
            texts = [f"{counts[activity]} {activity}" for activity in shown]
            yield Text(f"and {len(others)} more: {', '.join(texts)}")


def _table(rungs: Iterable[RunningRung], bar_width: int) -> Table:
    has_bars = bar_width >= MIN_BAR_WIDTH
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in NUMBERS else "left", no_wrap=has_bars)
    for rung in rungs:
        num_seen = None if rung.progress is None else rung.progress.num_seen
        if rung.activity == Activity.EVALUATING:
            num_seen = rung.num_examples
        count = f"{rung.num_examples:,}"
        bar: ProgressBar | str = ""
        if num_seen is not None:
            count = f"{num_seen:,} of {count}"
            if has_bars:
                bar = ProgressBar(rung.num_examples, num_seen, width=bar_width)
        left = rung.seconds_left
        time_left = "" if left is None or left < 1 else duration(left)
        table.add_row(
            str(rung.trial),
            f"{rung.step}/{rung.num_rungs}",
            bar,
            count,
            str(rung.activity),
            time_left,
        )
    return table
