"""The append-only file of what happened in a sweep; :mod:`raysweep.results.events` says what its events are.

Each line has a number and a digest of all lines above it, so that a line that is missing, moved or changed is noticed.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

from raysweep.errors import InputError
from raysweep.results.events import Event, read_event

AFTER = "after.json"  # in a folder of checkpoints or of scores: the ledger's position after the last event about it


@dataclass(frozen=True)
class Position:
    """How far a ledger has come: the number of its events, and a digest of all its lines, "" where there is none."""

    number: int = 0
    digest: str = ""

    def after(self, line: bytes) -> "Position":
        """The position once the ledger has this line too, which ends in a line feed."""
        digest = hashlib.sha256(self.digest.encode() + line).hexdigest()
        return Position(self.number + 1, digest[:32])

    def line(self, event: Event) -> bytes:
        """The line that the ledger gets for an event. ValueError where it holds a number that is not finite."""
        values = {**event.to_json(), "number": self.number + 1, "after": self.digest}
        return json.dumps(values, allow_nan=False).encode() + b"\n"


@dataclass
class Ledger:
    """Appends events to ``folder/ledger.jsonl``, each on disk before :meth:`append` returns. One process at a time."""

    folder: Path
    unfinished: bytes = b""  # a last line that a crash cut short; the first event that is appended sets it aside
    failure: str | None = None  # why an event could not be written; no other is written after it
    _file: FileIO | None = field(default=None, repr=False)
    # The bytes of whole lines, and the position after them: one value, since Ctrl-C may come between any two steps.
    _end: tuple[int, Position] = field(default=(0, Position()), repr=False)

    @property
    def path(self) -> Path:
        return self.folder / "ledger.jsonl"

    @property
    def set_aside_path(self) -> Path:
        """Where a last line goes that a crash cut short. It never counted."""
        return self.folder / "ledger.unfinished"

    @property
    def position(self) -> Position:
        """How far the ledger has come."""
        return self._end[1]

    def open(self) -> None:
        """Take the ledger for this process. Nothing of it changes yet.

        InputError where another process has it, where its lines do not follow from each other, and where it cannot be
        opened.
        """
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            file = FileIO(descriptor, "r+")
            _lock(file, self.path)
            content = self.path.read_bytes()
            num_bytes = content.rfind(b"\n") + 1
            self._end = num_bytes, _position_of(content, self.path)
            self.unfinished = content[num_bytes:]
        except OSError as error:
            raise InputError(f"{self.path}: cannot be opened: {error.strerror}") from None
        self._file = file

    def append(self, event: Event) -> None:
        """Write an event to disk.

        ValueError where it holds a number that is not finite. InputError where it cannot be written; whether it is on disk
        is then unknown until the ledger is opened again, so it is not written again, and no event after it.
        """
        if self.failure is not None:
            raise InputError(self.failure)
        if self._file is None:
            self.open()
        assert self._file is not None
        num_bytes, position = self._end
        line = position.line(event)
        try:
            self._set_aside()
            _write(self._file.fileno(), line, num_bytes)
        except OSError as error:
            self.failure = (
                f"{self.path}: an event cannot be written: {error.strerror}; the sweep stops here. Once it can be: raysweep "
                f"run --resume {self.folder}"
            )
            raise InputError(self.failure) from None
        self._end = num_bytes + len(line), position.after(line)

    def _set_aside(self) -> None:
        if self.unfinished:
            with self.set_aside_path.open("ab") as file:
                file.write(self.unfinished + b"\n")
            self.unfinished = b""

    def close(self) -> None:
        """Let other processes have the ledger."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _lock(file: FileIO, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"{path}: another process is running this sweep") from None
    except OSError:  # a file system without locks
        pass


def _write(descriptor: int, line: bytes, offset: int) -> None:
    """Write a line to disk at ``offset``, and let the file end with it. Where that fails it ends before it.

    Beyond the offset may stand an event whose writing was interrupted, and which its writer does not know of.
    """
    try:
        os.ftruncate(descriptor, offset)
        written = 0
        while written < len(line):
            written += os.pwrite(descriptor, line[written:], offset + written)
        os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, offset)
        raise


def read_events(path: Path) -> Iterator[Event]:
    """The events of a ledger, one for each line. InputError names the line that is no event or out of place, and says why.

    A last line without its end was being written when the driver was killed. It never counted.
    """
    for event, _ in _read(path.read_bytes(), path):
        yield event


def read_positions(path: Path) -> list[Position]:
    """The ledger's position after each of its events. InputError as of :func:`read_events`."""
    return [position for _, position in _read(path.read_bytes(), path)]


def _position_of(content: bytes, path: Path) -> Position:
    positions = [position for _, position in _read(content, path)]
    return positions[-1] if positions else Position()


def _read(content: bytes, path: Path) -> Iterator[tuple[Event, Position]]:
    """Each event of a ledger's whole lines, and the position with it."""
    position = Position()
    numbered = False  # lines of older versions have no numbers; a resumed run's newer lines go on from there
    *lines, _ = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            values["event"]
        except (ValueError, TypeError, KeyError):
            raise InputError(f"{path}: line {number} is no event; the ledger was changed by hand?") from None
        try:
            event = read_event(values)
            if numbered or "number" in values:
                _check_place(values, position, numbered)
                numbered = True
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        except ValueError as error:
            raise InputError(f"{path}: line {number}: {error}; the ledger was changed by hand?") from None
        position = position.after(line + b"\n")
        yield event, position


def _check_place(values: dict[str, Any], position: Position, numbered: bool) -> None:
    """ValueError where a line is not the one that was written after those above it."""
    number = values.get("number")
    if number is None:
        raise ValueError("it has no number, and the lines above it have")
    if number != position.number + 1:
        raise ValueError(
            f"it is event {number}, where event {position.number + 1} belongs; lines were removed or moved"
        )
    if values.get("after") != position.digest:
        changed = f"line {position.number}" if numbered else "a line above it"
        raise ValueError(f"{changed} was changed after it was written")


def write_dependence(folder: Path, position: Position) -> None:
    """Note in a folder of a run which event it depends on, where there is such a folder."""
    if not folder.is_dir():
        return
    temporary = folder / f".{uuid.uuid4().hex[:8]}.json"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(dataclasses.asdict(position), file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / AFTER)


def check_dependences(folder: Path) -> None:
    """InputError where checkpoints or scores of the run in ``folder`` depend on events that its ledger does not hold.

    So a ledger that lost whole lines at its end is refused, and not taken for a sweep that had come less far.
    """
    path = folder / "ledger.jsonl"
    positions = read_positions(path)
    for note in sorted(folder.glob(f"*/*/{AFTER}")):
        needed = _read_dependence(note)
        if needed is None:
            continue
        if needed.number > len(positions):
            raise InputError(
                f"{path}: ends after event {len(positions)}, but {note.parent} was written after event {needed.number}; put "
                "the missing lines back, or remove that folder to do without what it holds"
            )
        if positions[needed.number - 1] != needed:
            raise InputError(
                f"{path}: is not the ledger that {note.parent} was written with, from event {needed.number} on; put the "
                "right one back, or remove that folder to do without what it holds"
            )


def _read_dependence(note: Path) -> Position | None:
    """The position in a note, or None where it cannot be read: a crash may leave an empty one."""
    try:
        position = Position(**json.loads(note.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    is_one = isinstance(position.number, int) and position.number > 0
    return position if is_one else None


def point_name(trial: int, step: int) -> str:
    """The name of the folder under ``RUN/points`` that keeps a rung's weights and per-query scores."""
    return f"trial-{trial:04d}-step-{step:03d}"


def checkpoints_of(folder: Path, trial: int) -> Path:
    """Where a trial of the run in ``folder`` keeps its state while it runs."""
    return folder / "checkpoints" / f"trial-{trial:04d}"
