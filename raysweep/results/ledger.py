"""The ledger, an append-only file of a sweep's events (:mod:`raysweep.results.events`).

Events are numbered from 1, so that missing or moved lines are detected.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raysweep.errors import InputError
from raysweep.results.commands import format_resume
from raysweep.results.events import Event, read_event
from raysweep.storage import location
from raysweep.storage.bucket import LEASE
from raysweep.storage.folder import BucketFolder, Folder, as_folder
from raysweep.storage.line_log import LineLog, line_log, read_log, read_log_after, read_noted
from raysweep.terminal import uninterrupted

NAME = "ledger"


def ledger_line(event: Event, number: int) -> bytes:
    """Return an event as a ledger line. Raise ``ValueError`` if it contains a non-finite number."""
    return json.dumps({**event.to_json(), "number": number}, allow_nan=False).encode() + b"\n"


@dataclass
class Ledger:
    """A run's ledger, locked by one process at a time.

    ``place`` is the run folder. ``say`` receives messages while the ledger waits for storage or
    another process.
    """

    place: Path | Folder
    say: Callable[[str], None] = field(default=print, repr=False)
    take_over: bool = False
    # called if another process takes over the run
    on_lost: Callable[[], None] = field(default=lambda: None, repr=False)
    # called before the run is unlocked
    on_close: Callable[[], None] = field(default=lambda: None, repr=False)
    # called with each event after it is written
    listeners: list[Callable[[Event], None]] = field(default_factory=list, repr=False)
    unfinished: bytes = b""  # a last line truncated by a crash
    failure: str | None = None  # error message of the first failed write
    _log: LineLog | None = field(default=None, repr=False)
    # Byte and event counts of the complete lines; a tuple, so that Ctrl-C cannot make them inconsistent.
    _end: tuple[int, int] = field(default=(0, 0), repr=False)

    def __post_init__(self) -> None:
        self.run: Folder = as_folder(self.place)

    @property
    def folder(self) -> Path:
        """Return the local path of the run's files."""
        return self.run.path

    @property
    def path(self) -> Path:
        return self.folder / f"{NAME}.jsonl"

    def open(self) -> list[Event]:
        """Lock the ledger and return its events.

        Raises:
            InputError: If another process holds the ledger, if lines are missing or invalid, or if the
                ledger cannot be opened.
        """
        place = ledger_location(self.run)
        log = line_log(
            self.run, NAME, self.say, take_over=self.take_over, on_lost=lambda: self.on_lost()
        )
        try:
            content = log.open()
            events = list(_parse(content, place))
            _check_lease(self.run, len(events), log.noted)
        except OSError as error:
            log.close()
            raise InputError(f"{place}: cannot be opened: {error.strerror}") from None
        except BaseException:
            log.close()
            raise
        num_bytes = content.rfind(b"\n") + 1
        self._end = num_bytes, len(events)
        self.unfinished = content[num_bytes:]
        self._log = log
        return events

    @property
    def lost(self) -> str | None:
        """Return an error message if another process took over the ledger, or else None."""
        lost = None if self._log is None else self._log.lost
        return None if lost is None else f"{ledger_location(self.run)}: {lost}; stopping the sweep"

    def append(self, event: Event) -> None:
        """Append an event and make it durable.

        Raises:
            ValueError: If the event contains a non-finite number.
            InputError: If this event or an earlier one could not be written.
        """
        if self.failure is not None:
            raise InputError(self.failure)
        if self._log is None:
            self.open()
        assert self._log is not None
        num_bytes, num_events = self._end
        number = num_events + 1
        line = ledger_line(event, number)
        try:
            with uninterrupted():
                if self.unfinished:
                    self._log.set_aside(self.unfinished, number)
                    self.unfinished = b""
                self._log.append(line, num_bytes, number)
                self._end = num_bytes + len(line), number
                self._log.note({"number": number})
        except OSError as error:
            self.failure = self.lost or (
                f"{ledger_location(self.run)}: an event cannot be written: {error.strerror}; stopping the sweep. "
                f"To resume it: {format_resume(self.run.location)}"
            )
            raise InputError(self.failure) from None
        for listener in self.listeners:
            listener(event)

    def close(self) -> None:
        if self._log is None:
            return
        try:
            self.on_close()
        finally:
            self._log.close()
            self._log = None


def ledger_location(run: Folder) -> str:
    """Return the path or URI of a run's ledger for messages."""
    return location.join(run.location, NAME if isinstance(run, BucketFolder) else f"{NAME}.jsonl")


def load_events(place: Path | Folder) -> list[Event]:
    """Return the events of the run at ``place``, which may still be running.

    Raises:
        FileNotFoundError: If the ledger is missing.
        InputError: If the ledger is invalid, cannot be read or has lost events.
    """
    run = as_folder(place)
    try:
        # Read the lease's note first, because a running sweep writes an event before it updates the note.
        noted = read_noted(run)
        content = read_log(run, NAME)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{ledger_location(run)}: cannot be read: {error.strerror}") from None
    events = list(_parse(content, ledger_location(run)))
    _check_lease(run, len(events), noted)
    return events


def read_events(path: Path) -> Iterator[Event]:
    """Yield a ledger's events, ignoring an incomplete last line.

    Raises:
        InputError: If a line is out of order or is not a valid event.
    """
    return _parse(path.read_bytes(), path)


class GrowingLedger:
    """An incremental reader of a ledger that may still grow."""

    def __init__(self, run: Folder) -> None:
        self.run = run
        self.events: list[Event] = []  # all events read so far
        self._content = b""

    def read(self) -> bool:
        """Read the new events and return whether there are any.

        Raises:
            FileNotFoundError: If the ledger is missing.
            InputError: If a line is out of order or is not a valid event, or if the ledger cannot be read.
        """
        place = ledger_location(self.run)
        try:
            content = read_log_after(self.run, NAME, self._content)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise InputError(f"{place}: cannot be read: {error.strerror}") from None
        if not content.startswith(self._content):
            self.events, self._content = [], b""
        new_lines = content[len(self._content) :]
        first_number = len(self.events) + 1
        new_events = list(_parse(new_lines, place, first_number))
        self.events += new_events
        self._content = content
        return bool(new_events)


def _parse(content: bytes, path: Path | str, first_number: int = 1) -> Iterator[Event]:
    """Yield the events in complete lines, which are numbered from ``first_number``."""
    *lines, _ = content.split(b"\n")
    for number, line in enumerate(lines, first_number):
        try:
            values = json.loads(line)
            values["event"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise InputError(
                f"{path}: line {number} is not an event; was the ledger edited by hand?"
            ) from None
        try:
            event = read_event(values)
            own_number = values.get("number")
            if own_number is None:
                raise ValueError("number is missing")
            if own_number != number:
                raise ValueError(
                    f"number is {own_number!r}, expected {number}; lines were removed or moved"
                )
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        except ValueError as error:
            raise InputError(
                f"{path}: line {number}: {error}; was the ledger edited by hand?"
            ) from None
        yield event


def _check_lease(run: Folder, num_events: int, noted: dict[str, Any] | None) -> None:
    """Check that the ledger contains the last event recorded in the lease."""
    if noted == {}:
        return
    lease = location.join(run.location, LEASE)
    number = noted.get("number") if isinstance(noted, dict) else None
    if not isinstance(number, int) or number < 1:
        raise InputError(
            f"{lease}: is damaged and does not record the ledger's last event; remove it to skip this check"
        )
    if number > num_events:
        raise InputError(
            f"{ledger_location(run)}: ends after event {num_events}, but {lease} was last renewed after event {number}; "
            "restore the missing events, or remove the lease to continue without them"
        )


def point_name(trial: int, step: int) -> str:
    """Return the name of a rung's folder under ``RUN/points``."""
    return f"trial-{trial:04d}-step-{step:03d}"


def point_folder(trial: int, step: int) -> str:
    """Return the folder of a rung's weights, relative to the run folder."""
    return f"points/{point_name(trial, step)}"


def checkpoint_folder(trial: int) -> str:
    """Return the folder of a trial's checkpoint, relative to the run folder."""
    return f"checkpoints/trial-{trial:04d}"
