"""Terminal output of commands, and the log file for library output."""

import abc
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

SECONDS_BETWEEN_LINES = 10.0  # interval between status lines if the output is not a terminal
FOLLOW_SECONDS = 0.5  # interval between checks of the log for new lines

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True)
class Verbosity:
    """Output options: ``is_quiet`` shows only warnings, and ``is_verbose`` also shows the log.

    ``log_level`` is one of LOG_LEVELS and applies to library loggers; None keeps their own levels.
    """

    is_quiet: bool = False
    is_verbose: bool = False
    log_level: str | None = None


Advance = Callable[[int, int, str], None]
"""Progress callback. Its arguments are the completed count, the total (0 if unknown) and the unit, such as "rows"."""


class Display(abc.ABC):
    """Interface for user-facing output: permanent lines, and a status that changes."""

    @abc.abstractmethod
    def line(self, text: str) -> None:
        """Show a permanent line."""

    @abc.abstractmethod
    def status(self, text: str, fraction: float = 0.0, view: RenderableType | None = None) -> None:
        """Show the current state until the next call.

        Args:
            text: The state in one line.
            fraction: The completed fraction, in [0, 1].
            view: A multi-line view of the state for terminals. The default is a progress bar with ``text``.
        """

    def warn(self, text: str) -> None:
        self.line(f"warning: {text}")

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        """Reserve screen space for :meth:`status` within the context, if the display needs it."""
        yield

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[Advance]:
        """Yield a callback that shows the progress of a stage."""
        clock = _StageClock(name)

        def advance(done: int, total: int, unit: str) -> None:
            self.status(clock.text(done, total, unit), done / total if total else 0.0)

        with self.live():
            yield advance


class SilentDisplay(Display):
    """A display that shows nothing, for workers."""

    def line(self, text: str) -> None:
        """Do nothing."""

    def status(self, text: str, fraction: float = 0.0, view: RenderableType | None = None) -> None:
        """Do nothing."""


class QuietDisplay(SilentDisplay):
    """A display that forwards only warnings to another display."""

    def __init__(self, display: Display) -> None:
        self._display = display

    def warn(self, text: str) -> None:
        self._display.warn(text)


class _StageClock:
    """Formatter for the progress, rate and remaining time of a stage."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.began = time.monotonic()
        self.first_done = 0
        # time of the first completed rows; the rate excludes start-up
        self.first_at: float | None = None

    def text(self, done: int, total: int, unit: str) -> str:
        """Return the progress text, or only the elapsed time if the total or the rate is unknown."""
        now = time.monotonic()
        if done and self.first_at is None:
            self.first_done, self.first_at = done, now
        rows_per_second = None
        if self.first_at is not None and done > self.first_done:
            rows_per_second = (done - self.first_done) / (now - self.first_at)
        if not total or rows_per_second is None:
            seconds = time.monotonic() - self.began
            return f"{self.name}: {seconds:.0f} s"
        counted = f"{done:,} of {total:,} {unit} ({done / total:.0%})"
        digits = 0 if rows_per_second >= 10 else 1
        pace = f"{rows_per_second:,.{digits}f}/s"
        left = duration((total - done) / rows_per_second)
        return f"{self.name}: {counted}, {pace}, {left} left"


class _LastingConsole(Console):
    """A console that stops printing when its pipe is closed. By default, rich exits the process."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


class ConsoleDisplay(Display):
    """A display on a rich console.

    On a terminal, the status is updated in place at the bottom. Elsewhere, such as in a log file, it is printed as a
    line at most every ``seconds_between_lines`` seconds.
    """

    def __init__(
        self, console: Console, seconds_between_lines: float = SECONDS_BETWEEN_LINES
    ) -> None:
        self.console = console
        self.seconds_between_lines = seconds_between_lines
        self._live: Live | None = None
        self._last_line_at = 0.0  # monotonic clock

    def line(self, text: str) -> None:
        # Redirected output fails on a full disk. The ledger still has the essential data.
        with contextlib.suppress(OSError):
            self.console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def status(self, text: str, fraction: float = 0.0, view: RenderableType | None = None) -> None:
        if self._live is not None:
            if view is None:
                view = Table.grid(padding=(0, 1))
                view.add_row(ProgressBar(1.0, fraction, width=20), Text(text))
            self._live.update(view)
        elif time.monotonic() - self._last_line_at >= self.seconds_between_lines:
            self._last_line_at = time.monotonic()
            self.line(text)

    def log_line(self, text: str) -> None:
        """Show a line of the log with its ANSI colors."""
        with contextlib.suppress(OSError):
            self.console.print(Text.from_ansi(text, style="dim"), soft_wrap=True)

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        """Reserve the bottom of the terminal for :meth:`status` within the context."""
        self._last_line_at = time.monotonic()
        if not self.console.is_terminal:
            yield
            return
        # By default, Live would show library output, which belongs in the log.
        options: dict[str, Any] = {"redirect_stdout": False, "redirect_stderr": False}
        with Live(
            console=self.console, transient=True, refresh_per_second=2, **options
        ) as self._live:
            try:
                yield
            finally:
                self._live = None


def duration(seconds: float) -> str:
    """Return a duration as ``MINUTES:SECONDS``, or as ``HOURS:MINUTES:SECONDS`` if it is at least an hour."""
    total_minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(total_minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds_left:02d}" if hours else f"{minutes}:{seconds_left:02d}"


class Log:
    """The log file for library output from this process and its children. ``level`` is one of LOG_LEVELS, or None."""

    def __init__(self, path: Path, stdout: int, stderr: int, level: str | None = None) -> None:
        self.path = path
        self.level = level
        self._saved = {1: stdout, 2: stderr}
        self._point_at(path)

    @property
    def saved_stderr(self) -> int:
        """Return the descriptor of the original standard error."""
        return self._saved[2]

    def _point_at(self, path: Path) -> None:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        _flush()
        for descriptor in self._saved:
            os.dup2(file, descriptor)
        os.close(file)

    def move(self, path: Path) -> None:
        """Move the log to the file ``path`` and continue logging there."""
        _flush()
        shutil.copyfile(self.path, path)
        self._point_at(path)
        before, self.path = self.path, path
        before.unlink()

    def close(self) -> None:
        """Restore standard output and standard error."""
        _flush()
        for descriptor, saved in self._saved.items():
            os.dup2(saved, descriptor)


@contextlib.contextmanager
def _followed(log: Log, display: ConsoleDisplay) -> Iterator[None]:
    """Show new lines of the log within the context."""
    num_bytes = 0

    def show_new_lines() -> None:
        nonlocal num_bytes
        try:
            with log.path.open("rb") as file:
                file.seek(num_bytes)
                complete, end, _ = file.read().rpartition(b"\n")
        except OSError:  # the log has just moved
            return
        num_bytes += len(complete + end)
        for line in complete.decode(errors="replace").splitlines():
            display.log_line(line)

    try:
        with repeating(show_new_lines, FOLLOW_SECONDS):
            yield
    finally:
        show_new_lines()


@contextlib.contextmanager
def _logging_at(level: str | None) -> Iterator[None]:
    """Apply :func:`set_log_level` within the context, unless ``level`` is None."""
    if level is None:
        yield
        return
    root = logging.getLogger()
    level_before, handlers_before = root.level, list(root.handlers)
    set_log_level(level)
    try:
        yield
    finally:
        root.setLevel(level_before)
        root.handlers[:] = handlers_before


def set_log_level(level: str) -> None:
    """Log all records at or above this level to standard error, replacing other handlers."""
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )


def _flush() -> None:
    """Flush the standard streams, ignoring errors such as a full disk."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            if stream is not None:  # None if it was closed when the process started
                stream.flush()


def _open_closed_streams() -> None:
    """Redirect standard output and standard error to the null device if they are closed, as in some daemons."""
    for descriptor in (1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != descriptor:
                os.dup2(nowhere, descriptor)
                os.close(nowhere)


@contextlib.contextmanager
def quiet(verbosity: Verbosity = Verbosity()) -> Iterator[tuple[Display, Log]]:
    """Redirect library output to a log file. Yield a display on the original standard error, and the log.

    The log file is deleted on exit unless :meth:`Log.move` was called. File descriptors are redirected, not just
    ``sys.stderr``, because Ray and tokenizers also print from C++ and Rust.
    """
    _open_closed_streams()
    stdout, stderr = os.dup(1), os.dup(2)
    handle, name = tempfile.mkstemp(prefix="raysweep-", suffix=".log")
    os.close(handle)
    temporary = Path(name)
    stream = os.fdopen(os.dup(stderr), "w", encoding="utf-8", errors="replace", buffering=1)
    options: dict[str, Any] = {} if os.isatty(stderr) else {"width": 200, "force_terminal": False}
    log = Log(temporary, stdout, stderr, verbosity.log_level)
    display = ConsoleDisplay(_LastingConsole(file=stream, emoji=False, **options))
    try:
        with (
            _followed(log, display) if verbosity.is_verbose else contextlib.nullcontext(),
            _logging_at(verbosity.log_level),
        ):
            yield QuietDisplay(display) if verbosity.is_quiet else display, log
    finally:
        log.close()
        with contextlib.suppress(OSError):  # a full disk can leave lines unwritten
            stream.close()
        os.close(stdout)
        os.close(stderr)
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def repeating(action: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call ``action`` in another thread every ``seconds`` seconds within the context."""
    has_ended = threading.Event()

    def run() -> None:
        while not has_ended.wait(seconds):
            action()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


def in_main_thread() -> bool:
    """Return whether this is the main thread, which is the only one that can set signal handlers."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def undisturbed(when: bool = True) -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM within the context.

    This has no effect outside the main thread or if ``when`` is false.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = (
        [signal.signal(number, signal.SIG_IGN) for number in numbers]
        if when and in_main_thread()
        else []
    )
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=False):
            signal.signal(number, handler)


class _Interruption:
    is_deferred = False
    is_pending = False


def interrupt() -> None:
    """Raise KeyboardInterrupt; within :func:`uninterrupted`, it is raised when the context ends."""
    if not _Interruption.is_deferred:
        raise KeyboardInterrupt
    _Interruption.is_pending = True


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer :func:`interrupt` until the context ends, to keep short operations atomic."""
    is_nested = _Interruption.is_deferred
    _Interruption.is_deferred = True
    try:
        yield
    finally:
        _Interruption.is_deferred = is_nested
    if _Interruption.is_pending and not is_nested:
        _Interruption.is_pending = False
        raise KeyboardInterrupt


@contextlib.contextmanager
def termination_kept() -> Iterator[None]:
    """Restore the SIGTERM handler on exit, because ``ray.init`` replaces it."""
    if not in_main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def disable_telemetry() -> None:
    """Disable library telemetry unless the environment enables it.

    Call this before importing the libraries, because they read the environment on import.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_UPDATE_DOWNLOAD_COUNTS", "0")


@contextlib.contextmanager
def working(verbosity: Verbosity = Verbosity()) -> Iterator[tuple[Display, Log]]:
    """Run a command within :func:`quiet`. On Ctrl-C, exit with status 130."""
    disable_telemetry()
    try:
        with quiet(verbosity) as opened:
            yield opened
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
