"""What a person is told while raysweep works, and for commands a log file that takes all else that libraries print."""

import abc
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

SECONDS_BETWEEN_LINES = 10.0  # of the status, where it cannot change in place


Advance = Callable[[int, int, str], None]
"""Takes the progress of a counted task: rows done, rows in all (0 while unknown), and what a row is."""


class Display(abc.ABC):
    """What the person who started the work is told: lines that stay, and a status that changes.

    Subclasses say where these go; a script or a notebook may hand them to a function of its own.
    """

    @abc.abstractmethod
    def line(self, text: str) -> None:
        """Show one line that stays."""

    @abc.abstractmethod
    def status(self, text: str, fraction: float = 0.0) -> None:
        """Show the state of things now, which the next call replaces; ``fraction``, in [0, 1], is how much is done."""

    def warn(self, text: str) -> None:
        self.line(f"warning: {text}")

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        """Within, :meth:`status` is called often; a display may set a place aside for it."""
        yield

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[Advance]:
        """Show the progress of a counted task, which is told to the function that this gives."""
        clock = _StageClock(name)

        def advance(done: int, total: int, unit: str) -> None:
            self.status(clock.text(done, total, unit), done / total if total else 0.0)

        with self.live():
            yield advance


class _StageClock:
    """Words for how far a counted task has come, its pace, and how long it will take."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.began = time.monotonic()
        self.first_done = 0
        self.first_at: float | None = None  # when rows began to come: start-up does not count into the pace

    def text(self, done: int, total: int, unit: str) -> str:
        """As :data:`Advance` is told; the time left once the pace is known."""
        rows_per_second = self._rate(done)
        if not total or rows_per_second is None:
            seconds = time.monotonic() - self.began
            return f"{self.name}: {seconds:.0f} s"
        counted = f"{done:,} of {total:,} {unit} ({done / total:.0%})"
        digits = 0 if rows_per_second >= 10 else 1
        pace = f"{rows_per_second:,.{digits}f}/s"
        left = duration((total - done) / rows_per_second)
        return f"{self.name}: {counted}, {pace}, {left} left"

    def _rate(self, done: int) -> float | None:
        """Rows a second since the first ones came; None until there are more."""
        now = time.monotonic()
        if done and self.first_at is None:
            self.first_done, self.first_at = done, now
        if self.first_at is None or done <= self.first_done:
            return None
        return (done - self.first_done) / (now - self.first_at)


class _LastingConsole(Console):
    """A console whose reader may go away, such as a `head` that has its lines: rich would end the process then."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


class ConsoleDisplay(Display):
    """Lines on a rich console, which for commands is standard error: standard output stays free for results.

    The status is a bar at the bottom of a terminal; elsewhere, as in a log file, it is a line every
    ``seconds_between_lines``.
    """

    def __init__(self, console: Console, seconds_between_lines: float = SECONDS_BETWEEN_LINES) -> None:
        self.console = console
        self.seconds_between_lines = seconds_between_lines
        self._live: Live | None = None
        self._last_line_at = 0.0  # by the monotonic clock

    def line(self, text: str) -> None:
        # What it is redirected to may be full. The work goes on without the line, and the ledger has what matters.
        with contextlib.suppress(OSError):
            self.console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def status(self, text: str, fraction: float = 0.0) -> None:
        if self._live is not None:
            row = Table.grid(padding=(0, 1))
            row.add_row(ProgressBar(1.0, fraction, width=20), Text(text, no_wrap=True, overflow="ellipsis"))
            self._live.update(row)
        elif time.monotonic() - self._last_line_at >= self.seconds_between_lines:
            self._last_line_at = time.monotonic()
            self.line(text)

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        """Within, :meth:`status` has a place of its own at the bottom of a terminal."""
        self._last_line_at = time.monotonic()
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
        _flush()
        for descriptor in self._saved:
            os.dup2(file, descriptor)
        os.close(file)

    def move(self, path: Path) -> None:
        """Go on in the file ``path``, which first gets what was written so far."""
        _flush()
        shutil.copyfile(self.path, path)
        self._point_at(path)
        self.path.unlink()
        self.path = path

    def close(self) -> None:
        """Let standard output and standard error go where they went before."""
        _flush()
        for descriptor, saved in self._saved.items():
            os.dup2(saved, descriptor)


def _flush() -> None:
    """What the standard streams hold goes where they lead, as far as there is room."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            if stream is not None:  # as it is where it was closed when the process began
                stream.flush()


def _open_closed_streams() -> None:
    """Standard output and standard error lead nowhere where the process began without them, as daemons may."""
    for descriptor in (1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != descriptor:
                os.dup2(nowhere, descriptor)
                os.close(nowhere)


@contextlib.contextmanager
def quiet() -> Iterator[tuple[Display, Log]]:
    """Within, libraries' chatter goes to a log file (temporary unless moved) and the Display to the real standard error.

    The file descriptors are redirected, not only ``sys.stderr``: Ray and tokenizers also print from C++ and Rust.
    """
    _open_closed_streams()
    stdout, stderr = os.dup(1), os.dup(2)
    handle, name = tempfile.mkstemp(prefix="raysweep-", suffix=".log")
    os.close(handle)
    temporary = Path(name)
    stream = os.fdopen(os.dup(stderr), "w", encoding="utf-8", errors="replace", buffering=1)
    options: dict[str, Any] = {} if os.isatty(stderr) else {"width": 200, "force_terminal": False}
    log = Log(temporary, stdout, stderr)
    try:
        yield ConsoleDisplay(_LastingConsole(file=stream, emoji=False, **options)), log
    finally:
        log.close()
        with contextlib.suppress(OSError):  # of lines that found no room
            stream.close()
        os.close(stdout)
        os.close(stderr)
        temporary.unlink(missing_ok=True)


def in_main_thread() -> bool:
    """Whether this is the thread that signals come to, the only one that may set their handlers."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def undisturbed(when: bool = True) -> Iterator[None]:
    """Within, Ctrl-C and SIGTERM are ignored: for what is short and must not be left half done.

    Does nothing unless ``when``, and outside the main thread, which alone may set signal handlers.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers] if when and in_main_thread() else []
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=False):
            signal.signal(number, handler)


class _Interruption:
    """Whether an interruption has to wait, and whether one does."""

    is_held_back = False
    has_come = False


def interrupt() -> None:
    """KeyboardInterrupt; within :func:`uninterrupted` at its end. For handlers of signals."""
    if not _Interruption.is_held_back:
        raise KeyboardInterrupt
    _Interruption.has_come = True


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Within, an :func:`interrupt` waits: for what is short and to be done as a whole, such as to log and count a rung."""
    within_another = _Interruption.is_held_back
    _Interruption.is_held_back = True
    try:
        yield
    finally:
        _Interruption.is_held_back = within_another
    if _Interruption.has_come and not within_another:
        _Interruption.has_come = False
        raise KeyboardInterrupt


@contextlib.contextmanager
def termination_kept() -> Iterator[None]:
    """What SIGTERM does afterwards is what it did before: for ``ray.init``, which has it exit the process at once."""
    if not in_main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def disable_telemetry() -> None:
    """Let no library phone home, unless the environment says otherwise; before they are imported, when they read this."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_UPDATE_DOWNLOAD_COUNTS", "0")


@contextlib.contextmanager
def working() -> Iterator[tuple[Display, Log]]:
    """Within, a command does its work: as in :func:`quiet`; and Ctrl-C ends with the exit code that a shell expects."""
    disable_telemetry()
    try:
        with quiet() as opened:
            yield opened
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
