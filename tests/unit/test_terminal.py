"""Displays, consoles, the log of libraries, and interruptions."""

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from raysweep.terminal import (
    ConsoleDisplay,
    Verbosity,
    in_main_thread,
    interrupt,
    undisturbed,
    uninterrupted,
    working,
)
from support.displays import ListDisplay


def in_a_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_display_implements_line_and_status() -> None:
    display = ListDisplay()
    display.warn("beware")
    with display.live():
        display.status("half way", 0.5)
    assert display.lines == ["warning: beware"]
    assert display.statuses == [("half way", 0.5)]


def test_a_stage_reports_pace_and_remaining_time() -> None:
    display = ListDisplay()
    with display.stage("prepare: encoded") as advance:
        advance(0, 0, "sentences")
        advance(10, 100, "sentences")
        advance(20, 100, "sentences")
    texts, fractions = zip(*display.statuses, strict=True)
    assert texts[:2] == ("prepare: encoded: 0 s", "prepare: encoded: 0 s")
    assert texts[2].startswith("prepare: encoded: 20 of 100 sentences (20%), ")
    assert texts[2].endswith(" left")
    assert fractions == (0.0, 0.1, 0.2)


def test_outside_a_terminal_the_status_is_an_occasional_line() -> None:
    out = io.StringIO()
    display = ConsoleDisplay(Console(file=out, width=80), seconds_between_lines=0.0)
    display.status("first")
    display.seconds_between_lines = 3600.0
    display.status("second")
    display.line("a line of [brackets] stays as it is")
    assert out.getvalue().splitlines() == ["first", "a line of [brackets] stays as it is"]


def test_a_terminal_shows_the_view_in_place_of_the_text() -> None:
    out = io.StringIO()
    display = ConsoleDisplay(Console(file=out, width=80, force_terminal=True))
    with display.live():
        display.status("the text", view=Text("the view"))
        display.line("a line")
    assert "the view" in out.getvalue() and "the text" not in out.getvalue()
    assert "a line" in out.getvalue()


def test_a_long_status_wraps_on_a_terminal() -> None:
    out = io.StringIO()
    display = ConsoleDisplay(Console(file=out, width=100, force_terminal=True))
    text = " ".join(f"word-{number}" for number in range(30))
    with display.live():
        display.status(text)
    assert all(word in out.getvalue() for word in text.split())


def test_output_of_libraries_goes_to_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with working() as (display, log):
        os.write(1, b"chatter from C++\n")
        temporary = log.path
        log.move(tmp_path / "run.log")
        os.write(2, b"and from Rust\n")
        display.line("a line for people")
    assert (tmp_path / "run.log").read_text() == "chatter from C++\nand from Rust\n"
    assert not temporary.exists()
    assert capfd.readouterr() == ("", "a line for people\n")


def test_a_quiet_display_shows_only_warnings(capfd: pytest.CaptureFixture[str]) -> None:
    with working(Verbosity(is_quiet=True)) as (display, _):
        display.line("a line")
        with display.stage("a stage") as advance:
            advance(1, 2, "rows")
        display.warn("beware")
    assert capfd.readouterr() == ("", "warning: beware\n")


def test_a_verbose_display_also_shows_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.log"
    with working(Verbosity(is_verbose=True)) as (display, log):
        os.write(1, b"before the move\n\x1b[36m(worker)\x1b[0m [in color]\n")
        log.move(path)
        os.write(2, b"after the move\nincomplete")
        display.line("a line for people")
    out, err = capfd.readouterr()
    assert out == ""
    shown = err.splitlines()
    assert "a line for people" in shown
    shown.remove("a line for people")
    assert shown == ["before the move", "(worker) [in color]", "after the move"]
    assert path.read_text().endswith("after the move\nincomplete")


@pytest.mark.parametrize(
    ("level", "logged"),
    [(None, ["warning"]), ("info", ["info", "warning"]), ("error", [])],
    ids=str,
)
def test_log_level_selects_records(level: str | None, logged: list[str], tmp_path: Path) -> None:
    code = (
        "import logging, sys; from pathlib import Path; from raysweep.terminal import Verbosity, working\n"
        f"with working(Verbosity(log_level={level!r})) as (_, log):\n"
        "    log.move(Path(sys.argv[1]))\n"
        "    for level in ('debug', 'info', 'warning'): logging.getLogger('library').log(\n"
        "        getattr(logging, level.upper()), 'a %s', level)\n"
        "logging.getLogger('library').info('after the work')\n"
    )
    path = tmp_path / "run.log"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], timeout=120, check=True, capture_output=True
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    assert [line.rpartition(" ")[2] for line in path.read_text().splitlines()] == logged


def test_emoji_codes_are_printed_verbatim() -> None:
    """Names of points and paths may contain them."""
    out = io.StringIO()
    ConsoleDisplay(Console(file=out, width=80)).line("3:100:concat=0.3 in /data/exp:x:/runs")
    assert out.getvalue() == "3:100:concat=0.3 in /data/exp:x:/runs\n"


def test_closed_streams_are_ignored(tmp_path: Path) -> None:
    code = "from raysweep.terminal import quiet\nwith quiet() as (display, log): display.line('a line')\nprint('done')"
    command = ["bash", "-c", 'exec "$0" -c "$1" >&- 2>&-', sys.executable, code]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_signal_handlers_are_unchanged_outside_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGINT)
    observed = []

    def work() -> None:
        with undisturbed():
            observed.append((in_main_thread(), signal.getsignal(signal.SIGINT)))

    in_a_thread(work)
    assert observed == [(False, before)]
    with undisturbed():
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) == before


def test_an_interruption_waits_for_atomic_work() -> None:
    done = []

    @uninterrupted()
    def work() -> None:
        interrupt()
        done.append("the rest")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["the rest"]
    with uninterrupted():  # the interruption is not repeated
        done.append("another")
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_an_error_takes_precedence_over_an_interruption() -> None:
    @uninterrupted()
    def fail() -> None:
        interrupt()
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        fail()
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is missing")
def test_a_full_disk_does_not_end_the_work(capfd: pytest.CaptureFixture[str]) -> None:
    saved = os.dup(2)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        os.dup2(full, 2)
        with working() as (display, _):
            display.line("this finds no room")
            os.dup2(full, 2)
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(full)


def test_a_closed_pipe_does_not_end_the_work(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    before = os.dup(2)
    os.dup2(writer, 2)
    try:
        with working() as (display, _):
            for _ in range(3):
                display.line("nobody reads this")
            display.status("nor this")
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(writer)
