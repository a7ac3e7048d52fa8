"""The live view of a running sweep, on terminals of several sizes."""

import io
import re

import pytest
from rich.console import Console

from raysweep.controller.status import Activity, RunningRung, SweepStatus, Workload
from raysweep.controller.status_view import MAX_ROWS, StatusView
from raysweep.results.types import Cost, RungProgress, TrialStatus

NUM_EXAMPLES = 409_600


def make_rung(trial: int) -> RunningRung:
    """Return a rung with long numbers; every third one is in evaluation."""
    activity = Activity.EVALUATING if trial % 3 == 2 else Activity.TRAINING
    progress = RungProgress(11, 100_000 + trial, NUM_EXAMPLES, 30.0)
    return RunningRung(trial, 11, 12, NUM_EXAMPLES, activity, 10.0, 20_000.0, progress)


def make_status(num_running: int) -> SweepStatus:
    return SweepStatus(
        num_begun=num_running + 8,
        num_trials=1200,
        num_replicates=0,
        max_replicates=0,
        counts={TrialStatus.RUNNING: num_running, TrialStatus.PAUSED: 3, TrialStatus.COMPLETED: 5},
        best=(0.7123, 0.4512),
        front_size=12,
        seconds=1390.0,
        limit_seconds_left=36_000.0,
        workload=Workload(1000.0, 12, {12: 5, 3: 3}),
        cost=Cost(7200.0, 36_000.0, 7200.0, 12.34),
        running=[make_rung(trial) for trial in reversed(range(num_running))],
    )


def render(status: SweepStatus, width: int, height: int = 50) -> list[str]:
    console = Console(
        file=io.StringIO(), record=True, width=width, height=height, force_terminal=True
    )
    console.print(StatusView(status))
    return [line.rstrip() for line in console.export_text().splitlines()]


def rows_of(lines: list[str]) -> dict[int, str]:
    """Return the rows of running trials, keyed by trial."""
    matches = (re.match(r" *(\d+) +11/12 +(.*)", line) for line in lines)
    return {int(match[1]): match[2] for match in matches if match}


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("num_running", [1, 8, 40])
def test_nothing_is_cut(num_running: int, width: int) -> None:
    status = make_status(num_running)
    lines = render(status, width)
    text = " ".join(" ".join(lines).split())
    assert "…" not in text
    assert max(map(len, lines)) <= width
    for part in (
        status.counts_text,
        status.front_text,
        status.cost_text,
        "23:10 so far",
        "about 10:00:00 left",
    ):
        assert part in text
    rows = rows_of(lines)
    assert list(rows) == list(range(min(num_running, MAX_ROWS)))
    for trial, row in rows.items():
        assert f"{NUM_EXAMPLES:,}" in row
        assert (f"{100_000 + trial:,}" in row) == (trial % 3 != 2)
        assert ("evaluating" in row) == (trial % 3 == 2)
        assert re.search(r"\d:\d\d:\d\d$", row)


def test_trials_beyond_the_maximum_are_counted() -> None:
    assert "and 28 more: 19 training, 9 evaluating" in render(make_status(40), 100)
    assert not any("more" in line for line in render(make_status(MAX_ROWS), 100))


def test_a_low_terminal_has_fewer_rows() -> None:
    lines = render(make_status(40), 100, height=16)
    assert len(lines) < 16
    assert 0 < len(rows_of(lines)) < MAX_ROWS


def test_bars_show_the_share_of_examples() -> None:
    """Without colors, only the filled part of a bar of 20 characters is drawn, in half characters."""
    console = Console(
        file=io.StringIO(), record=True, width=120, force_terminal=True, color_system=None
    )
    console.print(StatusView(make_status(3)))
    lines = [line for line in console.export_text().splitlines() if "11/12" in line]
    lengths = [line.count("━") + line.count("╸") / 2 for line in lines]
    share = 100_000 / NUM_EXAMPLES
    assert lengths == [pytest.approx(20 * share, abs=0.5), pytest.approx(20 * share, abs=0.5), 20]


def test_a_rung_without_reports_has_no_bar() -> None:
    status = make_status(0)
    rung = RunningRung(4, 11, 12, NUM_EXAMPLES, Activity.LOADING)
    rows = rows_of(render(SweepStatus(**{**vars(status), "running": [rung]}), 100))
    assert re.fullmatch(rf"{NUM_EXAMPLES:,} +loading", rows[4])
