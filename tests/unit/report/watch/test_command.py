"""The view of running, ended, killed, empty and damaged runs, in a terminal and in a pipe."""

import io
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console

from raysweep.report.watch.command import watch, watch_once
from raysweep.report.watch.moment import Clock, ledger_age, look
from raysweep.report.watch.view import View
from raysweep.results.events import (
    Event,
    GuardsMeasured,
    PointsScored,
    SessionFinished,
    StageBegan,
    SweepSteered,
    TrialEnded,
    TrialStarted,
)
from raysweep.results.ledger import GrowingLedger, Ledger
from raysweep.results.types import GuardScore, TrialStatus
from raysweep.storage.folder import LocalFolder
from support.command_line import raysweep_here
from support.ledgers import (
    StoredSweep,
    StoredTrial,
    dev_front,
    random_trials,
    trials_of_every_status,
    write_ledger,
    write_run_with_markup,
)


def console(
    *, terminal: bool = False, height: int = 40, width: int = 120
) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(
        file=out, width=width, height=height, force_terminal=terminal, color_system=None
    ), out


def once(folder: Path) -> str:
    where, out = console()
    watch_once(LocalFolder(folder), where)
    return out.getvalue()


def test_front_of_finished_run_is_complete(tmp_path: Path) -> None:
    trials = random_trials(30)
    write_ledger(tmp_path, trials)
    text = once(tmp_path)
    front = dev_front(trials)
    rows = [line.lstrip("★◆ ").split()[:6] for line in text.splitlines() if " plain " in line]
    assert rows == [
        [
            str(point.trial),
            str(point.step),
            "plain",
            f"{100 * point['polarity']:.1f}",
            f"{100 * point['similarity']:.1f}",
            row[5],
        ]
        for point, row in zip(front, rows, strict=True)
    ]
    assert f"front of {len(front)}, best objective at P " in text
    assert "30 of 8 trials started: 3 failed, 20 stopped, 7 completed" in text
    assert text.splitlines()[-1] == f"the sweep has completed; report: raysweep report {tmp_path}"
    assert "R reference encoder  ● front  ★ knee" in text


@pytest.mark.parametrize(
    ("finish", "last"),
    [
        (None, "no driver is running: the sweep was killed; to resume it: raysweep run --resume"),
        (
            ("interrupted", "Ctrl-C or a signal"),
            "the sweep ended: interrupted (Ctrl-C or a signal); to resume it: raysweep",
        ),
        (
            ("budget", "spent"),
            "the sweep ended: budget (spent); to resume it: raysweep run --resume RUN --budget.minutes 3",
        ),
        (
            ("plateau", "nothing better"),
            "the sweep ended: plateau (nothing better); to resume it: raysweep run --resume RUN --early_stopping.plateau null",
        ),
    ],
)
def test_run_without_driver_shows_how_to_resume(
    tmp_path: Path, finish: tuple[str, str] | None, last: str
) -> None:
    limit = {"budget.minutes": 1.5} if finish is not None and finish[0] == "budget" else {}
    write_ledger(tmp_path, trials_of_every_status(), StoredSweep(finish=finish, limit=limit))
    where, out = console()
    watch(
        LocalFolder(tmp_path),
        where,
        1.0,
        sleep=lambda _: pytest.fail("there is nothing to wait for"),
    )
    assert last in out.getvalue().splitlines()[-1].replace(f"--resume {tmp_path}", "--resume RUN")


def test_killed_run_resumes_within_its_limits(tmp_path: Path) -> None:
    """Even after all trials have ended, the driver may be killed before the front's test scores and report."""
    write_ledger(tmp_path, random_trials(30), StoredSweep(finish=None))
    where, out = console()
    watch_once(LocalFolder(tmp_path), where)
    assert out.getvalue().splitlines()[-1].endswith(f"raysweep run --resume {tmp_path}")


def folders(parent: Path, *names: str) -> None:
    for name in names:
        (parent / name).mkdir()


def test_runs_without_points_have_a_status_line(tmp_path: Path) -> None:
    folders(tmp_path, "a", "b")
    write_ledger(tmp_path / "a", [], StoredSweep(finish=None, reference=False, oracle=False))
    assert "killed, 0:00 | 0 of 8 trials started: none" in once(tmp_path / "a")
    failed = [StoredTrial({"loss": "a"}, "failed", "boom", [])] * 3
    write_ledger(tmp_path / "b", failed, StoredSweep(finish=("failed", "3 of 3 trials failed")))
    assert "3 of 8 trials started: 3 failed" in once(tmp_path / "b")


def test_missing_or_damaged_run_is_reported_on_one_line(tmp_path: Path) -> None:
    folders(tmp_path, "damaged", "empty", "zero")
    write_ledger(tmp_path / "damaged", random_trials(5))
    ledger = tmp_path / "damaged" / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join([*lines[:4], *lines[5:]]))
    (tmp_path / "zero" / "ledger.jsonl").touch()
    problems = {
        "damaged": "line 5: number is 6, expected 5",
        "empty": "not a run folder (no ledger in it)",
        "zero": "contains no settings, because the run ended before its sweep began",
        "nowhere": "no such folder",
    }
    for name, problem in problems.items():
        done = raysweep_here(tmp_path, "watch", str(tmp_path / name))
        assert (done.returncode, done.stdout) == (2, "")
        assert problem in done.stderr and len(done.stderr.splitlines()) == 1


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    folders(tmp_path, "markup", "escapes")
    write_run_with_markup(tmp_path / "markup")
    assert '<script>alert("x")</script>' in once(tmp_path / "markup")
    trials = [StoredTrial({"loss": "\x1b[2J\x07boo"}, "failed", "\x1b]0;x\x07", [(0.7, 0.4)])]
    write_ledger(tmp_path / "escapes", trials, StoredSweep(finish=("failed", "\x1b[31mred")))
    assert once(tmp_path / "escapes").replace("\n", "").isprintable()


class Growing:
    """A run whose driver is this process; it appends events between snapshots."""

    def __init__(self, folder: Path, steps: list[Callable[[Ledger], None]]) -> None:
        write_ledger(folder, random_trials(4), StoredSweep(finish=None))
        self.ledger = Ledger(folder)
        self.ledger.open()
        self.steps = steps

    def sleep(self, seconds: float) -> None:
        self.steps.pop(0)(self.ledger)


def finish(ledger: Ledger) -> None:
    ledger.append(SessionFinished(status="completed", reason="", seconds=9.0, at=9.0))
    ledger.close()


def begin_one(ledger: Ledger) -> None:
    ledger.append(TrialStarted(trial=4, config={"loss": "softmax"}, num_rungs=5, at=61.0))


def pause(ledger: Ledger) -> None:
    ledger.append(SweepSteered(request="1", action="pause", at=62.0))


def end_one(ledger: Ledger) -> None:
    ledger.append(TrialEnded(trial=4, status=TrialStatus.COMPLETED, at=63.0))


def test_pipe_gets_a_line_per_change_and_full_view_at_the_end(tmp_path: Path) -> None:
    growing = Growing(tmp_path, [begin_one, lambda ledger: None, pause, end_one, finish])
    where, out = console()
    watch(LocalFolder(tmp_path), where, 1.0, growing.sleep)
    lines = out.getvalue().splitlines()
    assert [line.partition("|")[0].strip() for line in lines[:4]] == [
        "night-run: running, 0:00",
        "night-run: running, 1:01",
        "night-run: paused, 1:02",
        "night-run: paused, 1:03",
    ]
    assert "1 running" in lines[1] and "1 running" not in lines[0]
    assert lines[4].startswith("night-run: completed, 1:03")
    assert growing.steps == []


def scored(ledger: Ledger) -> None:
    ledger.append(PointsScored(points=()))


def measured(ledger: Ledger) -> None:
    score = GuardScore(0, 1, "plain", None, "sts", "spearman_cosine", 0.8, None)
    ledger.append(GuardsMeasured(scores=(score,)))


def begin_stage(name: Literal["test", "guards"], count: int, at: float) -> Callable[[Ledger], None]:
    return lambda ledger: ledger.append(StageBegan(stage=name, count=count, at=at))


def test_progress_of_front_scores_is_shown(tmp_path: Path) -> None:
    steps = [
        begin_stage("test", 2, 60.0),
        scored,
        scored,
        begin_stage("guards", 3, 70.0),
        measured,
        lambda _: None,
        finish,
    ]
    growing = Growing(tmp_path, steps)
    times = itertools.count(0.0, 10.0)
    where, out = console()
    watch(LocalFolder(tmp_path), where, 1.0, growing.sleep, now=lambda: next(times))
    lines = [line.split(" | ")[:2] for line in out.getvalue().splitlines()[:7]]
    assert [line[0].removeprefix("night-run: ") for line in lines] == [
        "running, 0:00",
        "running, 1:00",
        "running, 1:10",
        "running, 1:20",
        "running, 1:10",  # by its own event
        "running, 1:10",  # guards do not count; and no line for a snapshot without news
        "completed, 1:10",
    ]
    assert [line[1] for line in lines[1:6]] == [
        "test: 0 of 2 rungs of the front scored",
        "test: 1 of 2 rungs of the front scored",
        "test: 2 of 2 rungs of the front scored",
        "guards: 0 of 3 scores of the front measured",
        "guards: 1 of 3 scores of the front measured",
    ]
    assert "4 of 8 trials started" in lines[0][1] and "4 of 8 trials started" in lines[6][1]


def test_clock_stops_while_sweep_is_paused() -> None:
    times = iter([5.0, 8.0, 20.0, 23.0])
    clock = Clock(now=lambda: next(times))
    events: list[Event] = [SweepSteered(request="1", action="pause", at=60.0)]
    assert [
        clock.seconds(events, is_running=is_running) for is_running in (True, True, False, True)
    ] == [
        60.0,
        63.0,
        60.0,
        63.0,
    ]


def test_running_time_includes_the_time_since_the_last_event(tmp_path: Path) -> None:
    write_ledger(tmp_path, random_trials(3))
    ledger = tmp_path / "ledger.jsonl"
    written_at = ledger.stat().st_mtime - 3600
    os.utime(ledger, (written_at, written_at))
    age = ledger_age(LocalFolder(tmp_path))
    assert 3600 <= age < 4200
    events: list[Event] = [SweepSteered(request="1", action="pause", at=60.0)]
    later: list[Event] = [*events, SweepSteered(request="2", action="pause", at=90.0)]
    clock = Clock(now=lambda: 5.0, first_age=40.0)
    assert clock.seconds(events, is_running=True) == 100.0
    assert clock.seconds(later, is_running=True) == 90.0
    assert Clock(now=lambda: 5.0, first_age=40.0).seconds(events, is_running=False) == 60.0


def test_short_terminal_shows_both_ends_of_front(tmp_path: Path) -> None:
    trials = random_trials(60)
    write_ledger(tmp_path, trials)
    front = dev_front(trials)
    assert len(front) > 8
    view = View(look(LocalFolder(tmp_path), GrowingLedger(LocalFolder(tmp_path)), Clock()))
    for height in (10, 24):
        where, out = console()
        where.print(view.render(120, height))
        rows = [line for line in out.getvalue().splitlines() if " plain " in line]
        shown = [tuple(row.lstrip("★◆ ").split()[:2]) for row in rows]
        assert shown[0] == (str(front[0].trial), str(front[0].step))
        assert shown[-1] == (str(front[-1].trial), str(front[-1].step))
        assert sum("★" in row for row in rows) == sum("◆" in row for row in rows) == 1
        assert f"and {len(front) - len(rows)} more" in out.getvalue()


def test_terminal_is_restored_at_the_end(tmp_path: Path) -> None:
    growing = Growing(tmp_path, [begin_one, finish])
    where, out = console(terminal=True, height=24, width=80)
    watch(LocalFolder(tmp_path), where, 1.0, growing.sleep)
    text = out.getvalue()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1, "the cursor comes back"
    last = text.rpartition("\x1b[?25h")[2]
    assert "night-run: completed" in last and "the sweep has completed; report" in last


@pytest.mark.parametrize("width", [72, 80, 100])
def test_narrow_terminal_shows_complete_scores(tmp_path: Path, width: int) -> None:
    trials = [
        trial._replace(config={**trial.config, "optimizer": 30 * "long"})
        for trial in random_trials(30)
    ]
    write_ledger(tmp_path, trials)
    where, out = console(width=width)
    watch_once(LocalFolder(tmp_path), where)
    rows = [
        line.lstrip("★◆ ").split()[3:6] for line in out.getvalue().splitlines() if " plain " in line
    ]
    assert len(rows) == len(dev_front(trials))
    for point, row in zip(dev_front(trials), rows, strict=True):
        scores = (point["polarity"], point["similarity"], point["retention"])
        assert row == [f"{100 * score:.1f}" for score in scores]
    assert all(len(line) <= width for line in out.getvalue().splitlines()[3:-1])


def test_ctrl_c_restores_terminal(tmp_path: Path) -> None:
    def interrupt(ledger: Ledger) -> None:
        raise KeyboardInterrupt

    growing = Growing(tmp_path, [interrupt])
    where, out = console(terminal=True)
    with pytest.raises(KeyboardInterrupt):
        watch(LocalFolder(tmp_path), where, 1.0, growing.sleep)
    assert out.getvalue().count("\x1b[?25h") == 1
    growing.ledger.close()


def test_waits_for_driver_to_start(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.open()
    seen = []

    def sleep(seconds: float) -> None:
        seen.append(seconds)
        if len(seen) > 1:
            raise KeyboardInterrupt

    where, out = console()
    with pytest.raises(KeyboardInterrupt):
        watch(LocalFolder(tmp_path), where, 1.0, sleep)
    assert out.getvalue() == "starting: no trials yet\n"
    ledger.close()
