"""A log in which each line is durable before the next is written.

On a file system, the log is the file ``NAME.jsonl``. An object store does not support appending, so line
N is the object ``NAME/N.jsonl``. If both exist, for example after a run was moved to an object store, the
objects follow the lines in the file.
"""

import contextlib
import dataclasses
import errno
import fcntl
import os
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any, Protocol

from raysweep.errors import InputError
from raysweep.storage import location
from raysweep.storage.bucket import LEASE, StorageError
from raysweep.storage.folder import BucketFolder, Folder, LocalFolder
from raysweep.storage.lease import Lease, is_live, read_note

LOCK_ATTEMPTS = 4
LOCK_PAUSE_SECONDS = 0.05


class LineLog(Protocol):
    """A log that one process at a time appends to. Methods raise OSError if the log cannot be read or written."""

    # the previous holder's note: {} if it is missing, None if it is damaged
    noted: dict[str, Any] | None

    @property
    def lost(self) -> str | None:
        """Return a message that names the process that took over the log, or None if there is none."""

    def open(self) -> bytes:
        """Acquire the log for this process and return its content.

        Raises:
            InputError: If another process holds the log.
        """

    def append(self, line: bytes, offset: int, number: int) -> None:
        """Durably write line ``number`` (counted from 1) after the first ``offset`` bytes.

        In a file, any later content is discarded, because it is from an interrupted write.
        """

    def set_aside(self, unfinished: bytes, number: int) -> None:
        """Move line ``number``, which is incomplete, to ``NAME.unfinished``."""

    def note(self, values: dict[str, Any]) -> None:
        """Record the progress for the next process that opens the log, which reads it as ``noted``."""

    def close(self) -> None:
        """Release the log so that other processes can acquire it."""


def line_log(
    folder: Folder,
    name: str,
    say: Callable[[str], None],
    *,
    take_over: bool,
    on_lost: Callable[[], None],
) -> LineLog:
    """Return the log ``name`` in a folder.

    ``say`` is called with a message while waiting for the store or another process. With ``take_over``,
    the log is taken from the process that holds it. ``on_lost`` is called from another thread if another
    process takes over the log.
    """
    if isinstance(folder, BucketFolder):
        return LineObjects(folder, name, say, take_over, on_lost)
    return LineFile(folder.path / f"{name}.jsonl")


def read_log(folder: Folder, name: str) -> bytes:
    """Return a log's content, even if another process is appending to the log.

    Raises:
        FileNotFoundError: If the log does not exist.
    """
    file = f"{name}.jsonl"
    has_file = folder.exists(file)
    content = b""
    if has_file:
        (content,) = folder.read([file])
    later_lines = _read_lines_after(folder, name, content)
    if later_lines:
        return b"".join([_complete_lines(content), *later_lines])
    if not has_file:
        raise FileNotFoundError(errno.ENOENT, "no such file", location.join(folder.location, file))
    return content


def read_log_after(folder: Folder, name: str, known: bytes) -> bytes:
    """Return a log's complete lines. From an object store, only the lines after ``known`` are downloaded."""
    if not known or not isinstance(folder, BucketFolder):
        return _complete_lines(read_log(folder, name))
    return b"".join([known, *_read_lines_after(folder, name, known)])


def read_noted(folder: Folder) -> dict[str, Any] | None:
    """Return the note of the folder's log without acquiring the log; see :attr:`LineLog.noted`."""
    return (
        read_note(folder.bucket, folder.object_name(LEASE))
        if isinstance(folder, BucketFolder)
        else {}
    )


def is_held(folder: Folder, name: str) -> bool | None:
    """Return whether a process has this log open, or None if that is unknown.

    In an object store, a killed process is considered to hold the log until its lease expires.
    """
    if isinstance(folder, BucketFolder):
        return is_live(folder.bucket, folder.object_name(LEASE))
    try:
        descriptor = os.open(folder.path / f"{name}.jsonl", os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        # released immediately; a process that is opening the log retries
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the file system does not support locks
        return None
    finally:
        os.close(descriptor)
    return False


def _complete_lines(content: bytes) -> bytes:
    """Return the content without an incomplete last line."""
    return content[: content.rfind(b"\n") + 1]


def _read_lines_after(folder: Folder, name: str, content: bytes) -> list[bytes]:
    """Return the lines stored as objects after those in ``content``, in order."""
    num_lines = content.count(b"\n")
    names = []
    for object_name in sorted(folder.names(name)):
        number = object_name.partition(".")[0]
        if number.isdecimal() and int(number) > num_lines:
            names.append(f"{name}/{object_name}")
    return folder.read(names)


class LineFile:
    """A log on a file system, locked while it is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.noted: dict[str, Any] | None = {}  # files have no note
        self._file: FileIO | None = None
        self._copied = b""  # lines stored as objects, to be written to the file with the next line

    @property
    def lost(self) -> str | None:
        return None

    def open(self) -> bytes:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        file = FileIO(descriptor, "r+")
        self._lock(file)
        self._file = file
        folder = LocalFolder(self.path.parent)
        content = read_log(folder, self.path.stem)
        lines_in_file = _complete_lines(self.path.read_bytes())
        self._copied = _complete_lines(content)[len(lines_in_file) :]
        return content

    def _lock(self, file: FileIO) -> None:
        for attempt in range(1, LOCK_ATTEMPTS + 1):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if attempt == LOCK_ATTEMPTS:
                    raise InputError(
                        f"{self.path}: another process is running this sweep; raysweep watch shows it"
                    ) from None
                # is_held in another process may briefly hold the lock
                time.sleep(LOCK_PAUSE_SECONDS)
            except OSError:  # the file system does not support locks
                return
            else:
                return

    def append(self, line: bytes, offset: int, number: int) -> None:
        assert self._file is not None
        descriptor = self._file.fileno()
        content = self._copied + line
        start = offset - len(self._copied)
        try:
            os.ftruncate(descriptor, start)
            written = 0
            while written < len(content):
                rest = content[written:]
                written += os.pwrite(descriptor, rest, start + written)
            os.fsync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, start)
            raise
        self._copied = b""

    def set_aside(self, unfinished: bytes, number: int) -> None:
        with self.path.with_suffix(".unfinished").open("ab") as file:
            file.write(unfinished + b"\n")

    def note(self, values: dict[str, Any]) -> None:
        """Do nothing."""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class LineObjects:
    """A log in an object store, protected by a lease."""

    def __init__(
        self,
        folder: BucketFolder,
        name: str,
        say: Callable[[str], None],
        take_over: bool,
        on_lost: Callable[[], None],
    ) -> None:
        self.noted: dict[str, Any] | None = {}
        self._folder = folder
        self._name = name
        self._say = say
        self._take_over = take_over
        # the lease itself is written without the guard
        unguarded = dataclasses.replace(folder.bucket, guard=lambda: None)
        self._lease = Lease(unguarded, folder.object_name(LEASE), on_lost=on_lost)
        self._is_open = False

    @property
    def lost(self) -> str | None:
        return self._lease.lost

    def open(self) -> bytes:
        self.noted = self._lease.acquire(self._say, take_over=self._take_over)
        self._is_open = True
        # check the lease before every write to this folder
        self._folder.bucket.guard = self._ensure_held
        try:
            return read_log(self._folder, self._name)
        except FileNotFoundError:
            return b""

    def append(self, line: bytes, offset: int, number: int) -> None:
        name = self._object(number)
        try:
            self._folder.bucket.create(name, line)
        except FileExistsError:
            # The existing line belongs to another process and is not replaced, because that process may have written
            # more lines.
            reason = "another process, which previously held this run, has already written a different line at this position"
            raise StorageError(
                errno.EEXIST, reason, location.join(self._folder.bucket.uri, name)
            ) from None
        self._ensure_held()  # raises if another process has taken over the log; this line then has no effect

    def set_aside(self, unfinished: bytes, number: int) -> None:
        bucket = self._folder.bucket
        bucket.write(self._folder.object_name(f"{self._name}.unfinished"), unfinished + b"\n")
        bucket.delete([self._object(number)])

    def note(self, values: dict[str, Any]) -> None:
        self._lease.note = values

    def close(self) -> None:
        if self._is_open:
            self._lease.release()
            self._is_open = False
            if self.lost is None:  # otherwise another process holds the run
                self._folder.bucket.guard = lambda: None

    def _ensure_held(self) -> None:
        self._lease.ensure(self._say)

    def _object(self, number: int) -> str:
        return self._folder.object_name(f"{self._name}/{number:09d}.jsonl")
