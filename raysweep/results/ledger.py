"""The append-only file of what happened in a sweep; :mod:`raysweep.results.events` says what its events are.

Each line has a number and a digest of all lines above it, so that a line that is missing, moved or changed is noticed.
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
    """Appends events to a run's ledger, each durable before :meth:`append` returns. One process at a time.

    ``place`` is the run's folder; ``say`` is told of waiting for its storage, or for another process that has it.
    """

    place: Path | Folder
    say: Callable[[str], None] = field(default=print, repr=False)
    take_over: bool = False
    on_lost: Callable[[], None] = field(default=lambda: None, repr=False)  # called when another process takes the run
    on_close: Callable[[], None] = field(default=lambda: None, repr=False)  # called before the run is let go
    on_append: Callable[[Event], None] = field(default=lambda event: None, repr=False)  # called with what is durable
    unfinished: bytes = b""  # a last line that a crash cut short; the first event that is appended sets it aside
    failure: str | None = None  # why an event could not be written; no other is written after it
    _log: LineLog | None = field(default=None, repr=False)
    # The bytes of whole lines, and the position after them: one value, since Ctrl-C may come between any two steps.
    _end: tuple[int, Position] = field(default=(0, Position()), repr=False)

    def __post_init__(self) -> None:
        self.run: Folder = as_folder(self.place)

    @property
    def folder(self) -> Path:
        """Where the run's files are on this machine."""
        return self.run.path

    @property
    def path(self) -> Path:
        return self.folder / f"{NAME}.jsonl"

    @property
    def position(self) -> Position:
        """How far the ledger has come."""
        return self._end[1]

    def open(self) -> list[tuple[Event, Position]]:
        """Take the ledger for this process, and return its events, each with the position after it. Nothing changes yet.

        InputError where another process has it, where its lines do not follow from each other or end before its last holder
        had come, and where it cannot be opened.
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
        """Why this process has the ledger no more, where another one took it."""
        lost = None if self._log is None else self._log.lost
        return None if lost is None else f"{name_of(self.run)}: {lost}; the sweep stops here"

    def append(self, event: Event) -> None:
        """Have an event durable.

        ValueError where it holds a number that is not finite. InputError where it cannot be written; whether it is stored
        is then unknown until the ledger is opened again, so it is not written again, and no event after it.
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
        """Let other processes have the ledger."""
        if self._log is None:
            return
        try:
            self.on_close()
        finally:
            self._log.close()
            self._log = None


def name_of(run: Folder) -> str:
    """The ledger of a run, for people."""
    return location.join(run.location, NAME if isinstance(run, BucketFolder) else f"{NAME}.jsonl")


def events_of(place: Path | Folder) -> Iterator[Event]:
    """The events of the run at a place, also while it runs.

    FileNotFoundError where there is no ledger; InputError as of :func:`read_events`, where it ends before something of the
    run that depends on it, and where it cannot be read.
    """
    run = as_folder(place)
    try:
        # Before the ledger: what depends on an event is written after it, also while this is read.
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
    """The events of a ledger, one for each line. InputError names the line that is no event or out of place, and says why.

    A last line without its end was being written when the driver was killed. It never counted.
    """
    for event, _ in _read(path.read_bytes(), path):
        yield event


def read_positions(path: Path) -> list[Position]:
    """The ledger's position after each of its events. InputError as of :func:`read_events`."""
    return [position for _, position in _read(path.read_bytes(), path)]


class GrowingLedger:
    """The events of a run's ledger while somebody may write them: each line is read and checked once."""

    def __init__(self, run: Folder) -> None:
        self.run = run
        self.events: list[Event] = []  # as of the last time
        self._content = b""
        self._position = Position()

    def read(self) -> bool:
        """Read what has come since; whether that is anything.

        FileNotFoundError where there is no ledger; InputError names the line that is no event or out of place.
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
    """Each event of a ledger's whole lines, and the position with it. They follow ``after``, if that is given."""
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
    """ValueError where a line is not the one that was written after those above it."""
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
    """Note in a folder of a run which event it depends on, where there is such a folder."""
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
    """InputError where checkpoints or scores of a run depend on events that its ledger, with these positions, does not hold.

    So a ledger that lost whole lines at its end is refused, and not taken for a sweep that had come less far. Of the lines
    after the last one that something depends on nothing can tell that there were any.
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
    """InputError where the last holder of the ledger had come further than these."""
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
    """The position that each folder of checkpoints or of scores depends on, by the folder's name within the run."""
    folders = [
        f"{kind}/{name.removesuffix(f'/{AFTER}')}"
        for kind in ("checkpoints", "points")
        for name in sorted(run.sizes(kind))
        if name.endswith(f"/{AFTER}")
    ]
    try:
        notes = run.read([f"{folder}/{AFTER}" for folder in folders])
    except FileNotFoundError:  # a run that goes on has removed one meanwhile
        return _read_dependences(run)
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read: {error.strerror}") from None
    return {
        folder: _read_dependence(note, location.join(run.location, folder, AFTER))
        for folder, note in zip(folders, notes, strict=True)
    }


def _read_dependence(note: bytes, place: str) -> Position:
    """The position in a note. InputError where it is damaged: that may not switch the check off."""
    try:
        position = _position(json.loads(note))
    except (ValueError, RecursionError):
        position = None
    if position is None:
        raise InputError(f"{place}: is damaged, which says how far the ledger had come; remove it to do without that")
    return position


def _position(values: Any) -> Position | None:
    """The position that these values make, None where they make none."""
    try:
        position = Position(**values)
    except TypeError:
        return None
    is_one = isinstance(position.number, int) and position.number > 0
    return position if is_one else None


def point_name(trial: int, step: int) -> str:
    """The name of the folder under ``RUN/points`` that keeps a rung's weights and per-query scores."""
    return f"trial-{trial:04d}-step-{step:03d}"


def point_folder(trial: int, step: int) -> str:
    """Where a run keeps a rung's weights and per-query scores, by its name within the run."""
    return f"points/{point_name(trial, step)}"


def checkpoint_folder(trial: int) -> str:
    """Where a trial keeps its state while it runs, by its name within the run."""
    return f"checkpoints/trial-{trial:04d}"
