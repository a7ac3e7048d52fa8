"""What a person sees while a sweep works: raysweep's own lines, and a status line; all else goes to a log file."""

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

SECONDS_BETWEEN_LINES = 10.0  # how often a log file without a terminal gets a line of progress


class Display:
    """Lines for people on standard error; standard output stays free for results."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None
        self._last = 0.0

    def line(self, text: str) -> None:
        """One line that stays."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        self.line(f"warning: {text}")

    def status(self, text: str, fraction: float = 0.0) -> None:
        """The state of things now: a bar that changes on a terminal, a line now and then elsewhere."""
        if self._live is not None:
            row = Table.grid(padding=(0, 1))
            row.add_row(ProgressBar(1.0, fraction, width=20), Text(text, no_wrap=True, overflow="ellipsis"))
            self._live.update(row)
        elif time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            self.line(text)

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        """Within, :meth:`status` has a place of its own at the bottom of a terminal."""
        self._last = time.monotonic()
        if not self.console.is_terminal:
            yield
            return
        # What libraries print goes to the log; left to itself, Live would show it here.
        options: dict[str, Any] = {"redirect_stdout": False, "redirect_stderr": False}
        with Live(console=self.console, transient=True, refresh_per_second=4, **options) as self._live:
            try:
                yield
            finally:
                self._live = None

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[Callable[[int, int, str], None]]:
        """Progress of a counted task: call the result with rows done, rows in all (0 while unknown) and what a row is."""
        began = time.monotonic()
        first: tuple[float, int] | None = None  # when rows began to come, so that start-up does not count into the rate

        def advance(done: int, total: int, unit: str) -> None:
            nonlocal first
            now = time.monotonic()
            text = f"{name}: {now - began:.0f} s"
            if done and first is None:
                first = now, done
            if total and done and first and done > first[1]:
                rate = (done - first[1]) / (now - first[0])
                left = duration((total - done) / rate)
                pace = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
                text = f"{name}: {done:,} of {total:,} {unit} ({done / total:.0%}), {pace}/s, {left} left"
            self.status(text, done / total if total else 0.0)

        with self.live():
            yield advance


def duration(seconds: float) -> str:
    """``75`` as ``1:15``; hours where there are any."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


class Log:
    """The file that takes what libraries print, from this process and its children."""

    def __init__(self, path: Path, stdout: int, stderr: int) -> None:
        self.path = path
        self._saved = {1: stdout, 2: stderr}
        self._point_at(path)

    def _point_at(self, path: Path) -> None:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor in self._saved:
            os.dup2(file, descriptor)
        os.close(file)

    def move(self, path: Path) -> None:
        """Go on in another file, taking along what was written so far."""
        sys.stdout.flush()
        sys.stderr.flush()
        shutil.copyfile(self.path, path)
        self._point_at(path)
        self.path.unlink()
        self.path = path

    def close(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, saved in self._saved.items():
            os.dup2(saved, descriptor)


@contextlib.contextmanager
def quiet() -> Iterator[tuple[Display, Log]]:
    """Within, libraries' chatter goes to a log file (temporary unless moved) and the Display to the real standard error.

    The file descriptors are redirected, not only ``sys.stderr``: Ray and tokenizers also print from C++ and Rust.
    """
    stdout, stderr = os.dup(1), os.dup(2)
    handle, name = tempfile.mkstemp(prefix="raysweep-", suffix=".log")
    os.close(handle)
    temporary = Path(name)
    stream = os.fdopen(os.dup(stderr), "w", encoding="utf-8", errors="replace", buffering=1)
    options: dict[str, Any] = {} if os.isatty(stderr) else {"width": 200, "force_terminal": False}
    log = Log(temporary, stdout, stderr)
    try:
        yield Display(Console(file=stream, **options)), log
    finally:
        log.close()
        stream.close()
        os.close(stdout)
        os.close(stderr)
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def undisturbed(when: bool = True) -> Iterator[None]:
    """What is short, and must not be left half done, goes on through further Ctrl-C and SIGTERM."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    is_main = threading.current_thread() is threading.main_thread()
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers] if when and is_main else []
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=False):
            signal.signal(number, handler)


@contextlib.contextmanager
def working() -> Iterator[tuple[Display, Log]]:
    """Libraries' chatter out of the way; Ctrl-C ends with the exit code a shell expects."""
    # Before anything is imported that would read them: nothing phones home.
    for name, value in (
        ("RAY_USAGE_STATS_ENABLED", "0"),
        ("HF_HUB_DISABLE_TELEMETRY", "1"),
        ("HF_UPDATE_DOWNLOAD_COUNTS", "0"),
    ):
        os.environ.setdefault(name, value)
    try:
        with quiet() as opened:
            yield opened
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
