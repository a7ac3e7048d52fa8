"""The ledger: the append-only file of a sweep's events, which :mod:`raysweep.results.events` defines.

Each line has a number and a digest of all lines above it, so that missing, moved and changed lines are detected.
"""

import dataclasses
import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raysweep.errors import InputError
from raysweep.results.events import Event, read_event
from raysweep.storage import location
from raysweep.storage.folder import BucketFolder, Folder, as_folder, flush
from raysweep.storage.line_log import LineLog, line_log, read_log, read_log_after, read_noted
from raysweep.terminal import uninterrupted

NAME = "ledger"

AFTER = "after.json"  # stores the ledger's position after the last event about a folder of checkpoints or scores


@dataclass(frozen=True)
class Position:
    """A position in a ledger: the number of events and a digest of all lines so far, "" for an empty ledger."""

    number: int = 0
    digest: str = ""

    def after(self, line: bytes) -> "Position":
        """Return the position after appending ``line``, which ends in a line feed."""
        digest = hashlib.sha256(self.digest.encode() + line).hexdigest()
        return Position(self.number + 1, digest[:32])

    def line(self, event: Event) -> bytes:
        """Return the ledger line of an event. Raise ``ValueError`` if it contains a non-finite number."""
        values = {**event.to_json(), "number": self.number + 1, "after": self.digest}
        return json.dumps(values, allow_nan=False).encode() + b"\n"


@dataclass
class Ledger:
    """A run's ledger, locked by one process at a time. Events are durable once :meth:`append` returns.

    ``place`` is the run's folder. ``say`` is called with a message while waiting for storage or for another process.
    """

    place: Path | Folder
    say: Callable[[str], None] = field(default=print, repr=False)
    take_over: bool = False
    on_lost: Callable[[], None] = field(default=lambda: None, repr=False)  # called when another process takes the run
    on_close: Callable[[], None] = field(default=lambda: None, repr=False)  # called before the run is unlocked
    on_append: Callable[[Event], None] = field(default=lambda event: None, repr=False)  # called with each durable event
    unfinished: bytes = b""  # a last line cut short by a crash; set aside by the next append
    failure: str | None = None  # why an event could not be written; no event is written after it
    _log: LineLog | None = field(default=None, repr=False)
    # The number of bytes of complete lines and the position after them: one value, so that Ctrl-C cannot separate them.
    _end: tuple[int, Position] = field(default=(0, Position()), repr=False)

    def __post_init__(self) -> None:
        self.run: Folder = as_folder(self.place)

    @property
    def folder(self) -> Path:
        """Return the local path of the run's files."""
        return self.run.path

    @property
    def path(self) -> Path:
        return self.folder / f"{NAME}.jsonl"

    @property
    def position(self) -> Position:
        """Return the position after the last event."""
        return self._end[1]

    def open(self) -> list[tuple[Event, Position]]:
        """Lock the ledger and return its events, each with the position after it. Nothing is written.

        Raises:
            InputError: If another process holds the ledger, if lines are missing or changed, or if it cannot be opened.
        """
        log = line_log(self.run, NAME, self.say, take_over=self.take_over, on_lost=lambda: self.on_lost())
        try:
            content = log.open()
            entries = list(_read(content, name_of(self.run)))
            positions = [position for _, position in entries]
            _check_noted(self.run, positions, log.noted)
        except OSError as error:
            log.close()
            raise InputError(f"{name_of(self.run)}: cannot be opened: {error.strerror}") from None
        except BaseException:
            log.close()
            raise
        num_bytes = content.rfind(b"\n") + 1
        self._end = num_bytes, positions[-1] if positions else Position()
        self.unfinished = content[num_bytes:]
        self._log = log
        return entries

    @property
    def lost(self) -> str | None:
        """Return the reason why this process lost the ledger to another one, or None."""
        lost = None if self._log is None else self._log.lost
        return None if lost is None else f"{name_of(self.run)}: {lost}; the sweep stops here"

    def append(self, event: Event) -> None:
        """Append an event durably.

        Raises:
            ValueError: If the event contains a non-finite number.
            InputError: If the event cannot be written. Whether it was stored is unknown until the ledger is opened again,
                so neither this event nor any other is written after that.
        """
        if self.failure is not None:
            raise InputError(self.failure)
        if self._log is None:
            self.open()
        assert self._log is not None
        num_bytes, position = self._end
        line = position.line(event)
        try:
            with uninterrupted():
                self._set_aside(num_bytes, position)
                self._log.append(line, num_bytes, position.number + 1)
                after = position.after(line)
                self._end = num_bytes + len(line), after
                self._log.note(dataclasses.asdict(after))
        except OSError as error:
            self.failure = self.lost or (
                f"{name_of(self.run)}: an event cannot be written: {error.strerror}; the sweep stops here. Once it can be: "
                f"raysweep run --resume {self.run.location}"
            )
            raise InputError(self.failure) from None
        self.on_append(event)

    def _set_aside(self, num_bytes: int, position: Position) -> None:
        if self.unfinished:
            assert self._log is not None
            self._log.set_aside(self.unfinished, num_bytes, position.number + 1)
            self.unfinished = b""

    def close(self) -> None:
        """Unlock the ledger."""
        if self._log is None:
            return
        try:
            self.on_close()
        finally:
            self._log.close()
            self._log = None


def name_of(run: Folder) -> str:
    """Return the path or URI of a run's ledger, for messages."""
    return location.join(run.location, NAME if isinstance(run, BucketFolder) else f"{NAME}.jsonl")


def events_of(place: Path | Folder) -> Iterator[Event]:
    """Return the events of the run at a place, which may be running.

    Raises:
        FileNotFoundError: If the ledger is missing.
        InputError: If the ledger is invalid, cannot be read or lacks events that other files of the run depend on.
    """
    run = as_folder(place)
    try:
        # Read before the ledger: a running sweep writes dependent files only after their events.
        noted, dependences = read_noted(run), _read_dependences(run)
        content = read_log(run, NAME)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{name_of(run)}: cannot be read: {error.strerror}") from None
    entries = list(_read(content, name_of(run)))
    positions = [position for _, position in entries]
    _check_noted(run, positions, noted)
    _check_dependences(run, positions, dependences)
    return (event for event, _ in entries)


def read_events(path: Path) -> Iterator[Event]:
    """Yield the events of a ledger. An incomplete last line, left by a killed driver, is ignored.

    Raises:
        InputError: If a line is not an event or is out of place, with its number and the reason.
    """
    for event, _ in _read(path.read_bytes(), path):
        yield event


def read_positions(path: Path) -> list[Position]:
    """Return the ledger's position after each event. Raise ``InputError`` like :func:`read_events`."""
    return [position for _, position in _read(path.read_bytes(), path)]


class GrowingLedger:
    """A reader of a ledger that may still grow. Each line is read and checked only once."""

    def __init__(self, run: Folder) -> None:
        self.run = run
        self.events: list[Event] = []  # as of the last read
        self._content = b""
        self._position = Position()

    def read(self) -> bool:
        """Read the new events and return whether there are any.

        Raises:
            FileNotFoundError: If the ledger is missing.
            InputError: If a line is not an event or is out of place, or if the ledger cannot be read.
        """
        try:
            content = read_log_after(self.run, NAME, self._content)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise InputError(f"{name_of(self.run)}: cannot be read: {error.strerror}") from None
        if not content.startswith(self._content):
            self.events, self._content, self._position = [], b"", Position()
        fresh = content[len(self._content) :]
        entries = list(_read(fresh, name_of(self.run), self._position))
        self.events += [event for event, _ in entries]
        self._content = content
        if entries:
            self._position = entries[-1][1]
        return bool(entries)


def _read(content: bytes, path: Path | str, after: Position | None = None) -> Iterator[tuple[Event, Position]]:
    """Yield each event of the complete lines with the position after it. The lines follow the position ``after``."""
    position = after or Position()
    *lines, _ = content.split(b"\n")
    for number, line in enumerate(lines, position.number + 1):
        try:
            values = json.loads(line)
            values["event"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise InputError(f"{path}: line {number} is no event; the ledger was changed by hand?") from None
        try:
            event = read_event(values)
            _check_place(values, position)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        except ValueError as error:
            raise InputError(f"{path}: line {number}: {error}; the ledger was changed by hand?") from None
        position = position.after(line + b"\n")
        yield event, position


def _check_place(values: dict[str, Any], position: Position) -> None:
    """Raise ``ValueError`` if a line does not follow the lines above it."""
    number = values.get("number")
    if number is None:
        raise ValueError("it has no number")
    if number != position.number + 1:
        raise ValueError(
            f"it is event {number}, where event {position.number + 1} belongs; lines were removed or moved"
        )
    if values.get("after") != position.digest:
        raise ValueError(f"line {position.number} was changed after it was written")


def write_dependence(run: Folder, name: str, position: Position) -> None:
    """Store in a folder of a run, if it exists, the position of the event that the folder depends on."""
    if not run.exists(name):
        return
    folder = run.path / name
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{uuid.uuid4().hex[:8]}.json"
    temporary.write_text(json.dumps(dataclasses.asdict(position)), encoding="utf-8")
    flush(temporary)
    temporary.replace(folder / AFTER)
    run.store(f"{name}/{AFTER}")
    run.let_go(name)


def check_dependences(run: Folder, positions: Sequence[Position]) -> None:
    """Raise ``InputError`` if checkpoints or scores depend on events that are missing from the ledger.

    ``positions`` are those of the ledger's events. The check detects ledgers that lost complete lines at the end, unless no
    folder depends on the lost lines.
    """
    _check_dependences(run, positions, _read_dependences(run))


def _check_dependences(run: Folder, positions: Sequence[Position], dependences: Mapping[str, Position]) -> None:
    for name, needed in dependences.items():
        _check_dependence(run, positions, location.join(run.location, name), needed)


def _check_dependence(run: Folder, positions: Sequence[Position], place: str, needed: Position) -> None:
    path = name_of(run)
    if needed.number > len(positions):
        raise InputError(
            f"{path}: ends after event {len(positions)}, but {place} was written after event {needed.number}; put "
            "the missing lines back, or remove that folder to do without what it holds"
        )
    if positions[needed.number - 1] != needed:
        raise InputError(
            f"{path}: is not the ledger that {place} was written with, from event {needed.number} on; put the "
            "right one back, or remove that folder to do without what it holds"
        )


def _check_noted(run: Folder, positions: Sequence[Position], noted: dict[str, Any] | None) -> None:
    """Raise ``InputError`` if the lease names a position that the ledger does not contain."""
    if noted == {}:
        return
    path = name_of(run)
    last_noted = _position(noted)
    if last_noted is None:
        raise InputError(
            f"{path}: its lease is damaged, which says how far it had come; remove the lease to do without that"
        )
    if last_noted not in positions:
        raise InputError(
            f"{path}: ends after event {len(positions)} or is another one, but its lease was last renewed after event "
            f"{last_noted.number}; put the missing events back, or remove the lease to do without them"
        )


def _read_dependences(run: Folder) -> dict[str, Position]:
    """Return the position that each folder of checkpoints or scores depends on, by its path within the run."""
    folders = [
        f"{kind}/{name.removesuffix(f'/{AFTER}')}"
        for kind in ("checkpoints", "points")
        for name in sorted(run.sizes(kind))
        if name.endswith(f"/{AFTER}")
    ]
    try:
        notes = run.read([f"{folder}/{AFTER}" for folder in folders])
    except FileNotFoundError:  # removed by a running sweep in the meantime
        return _read_dependences(run)
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read: {error.strerror}") from None
    return {
        folder: _read_dependence(note, location.join(run.location, folder, AFTER))
        for folder, note in zip(folders, notes, strict=True)
    }


def _read_dependence(note: bytes, place: str) -> Position:
    """Parse a stored position. Raise ``InputError`` if it is damaged, since damage must not disable the check."""
    try:
        position = _position(json.loads(note))
    except (ValueError, RecursionError):
        position = None
    if position is None:
        raise InputError(f"{place}: is damaged, which says how far the ledger had come; remove it to do without that")
    return position


def _position(values: Any) -> Position | None:
    """Return the position with these values, or None if they are invalid."""
    try:
        position = Position(**values)
    except TypeError:
        return None
    is_one = isinstance(position.number, int) and position.number > 0
    return position if is_one else None


def point_name(trial: int, step: int) -> str:
    """Return the name of the folder under ``RUN/points`` with a rung's weights and per-query scores."""
    return f"trial-{trial:04d}-step-{step:03d}"


def point_folder(trial: int, step: int) -> str:
    """Return the folder with a rung's weights and per-query scores, relative to the run."""
    return f"points/{point_name(trial, step)}"


def checkpoint_folder(trial: int) -> str:
    """Return the folder with a trial's checkpoint, relative to the run."""
    return f"checkpoints/trial-{trial:04d}"
