"""Lines that are appended one at a time, each durable before the next: one file, or numbered objects where nothing appends.

``NAME.jsonl`` holds lines in order. In an object store line number N is the object ``NAME/N.jsonl``, written once. Where
both are there, as after a move from the one to the other, the objects go on where the file ends.
"""

import contextlib
import dataclasses
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterable
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
    """A log that one process at a time appends to. Methods raise OSError for what cannot be read or written."""

    noted: dict[str, Any] | None  # what its last holder noted, where the storage keeps that; None where it is damaged

    @property
    def lost(self) -> str | None:
        """Why this process has it no more, where another one took it."""

    def open(self) -> bytes:
        """Take the log for this process, and return its content. No line changes. InputError where it is taken."""

    def append(self, line: bytes, offset: int, number: int) -> None:
        """Have a line durable as the one of this number, counted from 1, after ``offset`` bytes of lines.

        Beyond the offset may stand a line whose writing was interrupted, and which its writer does not know of. It goes.
        """

    def set_aside(self, unfinished: bytes, offset: int, number: int) -> None:
        """Keep what stands, cut short, where the line of this number belongs, in ``NAME.unfinished``."""

    def note(self, values: dict[str, Any]) -> None:
        """Note how far the work is, for ``noted`` of who opens the log next."""

    def close(self) -> None:
        """Let other processes have the log."""


def line_log(
    folder: Folder,
    name: str,
    say: Callable[[str], None] = print,
    *,
    take_over: bool = False,
    on_lost: Callable[[], None] = lambda: None,
) -> LineLog:
    """The log of this name in a folder.

    ``say`` is told of waiting for a store or another process; ``take_over`` takes the log from a process that has it;
    ``on_lost`` is called, from another thread, when it is taken from this one.
    """
    if isinstance(folder, BucketFolder):
        return LineObjects(folder, name, say, take_over, on_lost)
    return LineFile(folder.path / f"{name}.jsonl")


def read_log(folder: Folder, name: str) -> bytes:
    """A log's content, also while somebody appends to it. FileNotFoundError where there is none."""
    file = f"{name}.jsonl"
    base = folder.read([file])[0] if folder.exists(file) else None
    later = _later(base or b"", folder.names(name))
    if base is None and not later:
        raise FileNotFoundError(errno.ENOENT, "no such file", location.join(folder.location, file))
    lines = folder.read([f"{name}/{each}" for each in later])
    return b"".join([_whole_lines(base or b"") if lines else base or b"", *lines])


def read_log_after(folder: Folder, name: str, known: bytes) -> bytes:
    """A log's whole lines, of which those that are ``known`` need not be fetched again from an object store."""
    if not known or not isinstance(folder, BucketFolder):
        return _whole_lines(read_log(folder, name))
    later = _later(known, folder.names(name))
    lines = folder.read([f"{name}/{each}" for each in later])
    return b"".join([known, *lines])


def read_noted(folder: Folder) -> dict[str, Any] | None:
    """What the holder of the folder's log has noted so far, as :attr:`LineLog.noted`. Nothing is taken."""
    return read_note(folder.bucket, folder.object_name(LEASE)) if isinstance(folder, BucketFolder) else {}


def is_held(folder: Folder, name: str) -> bool | None:
    """Whether a process has this log open; None where that cannot be told. Nothing is taken.

    In an object store a process that was killed counts until its lease ends.
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
        fcntl.flock(
            descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB
        )  # let go at once: the log's own process asks more than once
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(descriptor)
    return False


def _whole_lines(content: bytes) -> bytes:
    """The lines but for a last one that was cut short: where lines follow, it never counted."""
    return content[: content.rfind(b"\n") + 1]


def _later(base: bytes, names: Iterable[str]) -> list[str]:
    """The names of the lines that come after those of ``base``, in order."""
    num_lines = base.count(b"\n")
    numbered = sorted(each for each in names if each.partition(".")[0].isdecimal())
    return [each for each in numbered if int(each.partition(".")[0]) > num_lines]


class LineFile:
    """A log on a file system, locked while it is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.noted: dict[str, Any] | None = {}  # nothing: whoever has the file has all of it
        self._file: FileIO | None = None
        self._copied = b""  # lines of objects, which the file gets with the next line: they are checked by then

    @property
    def lost(self) -> str | None:
        return None

    def open(self) -> bytes:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        file = FileIO(descriptor, "r+")
        self._lock(file)
        self._file = file
        content = read_log(LocalFolder(self.path.parent), self.path.stem)
        in_file = _whole_lines(self.path.read_bytes())
        self._copied = _whole_lines(content)[len(in_file) :]
        return content

    def _lock(self, file: FileIO) -> None:
        for is_last in (*(False,) * (LOCK_ATTEMPTS - 1), True):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if is_last:
                    raise InputError(
                        f"{self.path}: another process is running this sweep; raysweep watch shows it"
                    ) from None
                time.sleep(LOCK_PAUSE_SECONDS)  # one that only looks whether there is another has it for a moment
            except OSError:  # a file system without locks
                return
            else:
                return

    def append(self, line: bytes, offset: int, number: int) -> None:
        self._write(self._copied + line, offset - len(self._copied))
        self._copied = b""

    def _write(self, line: bytes, offset: int) -> None:
        assert self._file is not None
        descriptor = self._file.fileno()
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

    def set_aside(self, unfinished: bytes, offset: int, number: int) -> None:
        with self.path.with_suffix(".unfinished").open("ab") as file:
            file.write(unfinished + b"\n")

    def note(self, values: dict[str, Any]) -> None:
        """Do nothing."""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class LineObjects:
    """A log in an object store, held by a lease."""

    def __init__(
        self,
        folder: BucketFolder,
        name: str,
        say: Callable[[str], None],
        take_over: bool,
        on_lost: Callable[[], None],
    ) -> None:
        self.noted: dict[str, Any] | None = {}
        self._folder, self._name, self._say, self._take_over = folder, name, say, take_over
        unguarded = dataclasses.replace(folder.bucket, guard=lambda: None)  # by which the lease itself is written
        self._lease = Lease(unguarded, folder.object_name(LEASE), on_lost=on_lost)
        self._is_open = False

    @property
    def lost(self) -> str | None:
        return self._lease.lost

    def open(self) -> bytes:
        self.noted = self._lease.acquire(self._say, take_over=self._take_over)
        self._is_open = True
        self._folder.bucket.guard = self._ensure_held  # whoever writes to the run through this folder
        try:
            return read_log(self._folder, self._name)
        except FileNotFoundError:
            return b""

    def append(self, line: bytes, offset: int, number: int) -> None:
        name = self._object(number)
        try:
            self._folder.bucket.create(name, line)
        except FileExistsError:
            # It is no line of this process's, nor is it replaced: more of that other process may follow it.
            reason = "another process, which had this run before, has written one in its place"
            raise StorageError(errno.EEXIST, reason, location.join(self._folder.bucket.uri, name)) from None
        self._ensure_held()  # nor does anything follow from a line that came after somebody took the log

    def set_aside(self, unfinished: bytes, offset: int, number: int) -> None:
        bucket = self._folder.bucket
        bucket.write(self._folder.object_name(f"{self._name}.unfinished"), unfinished + b"\n")
        bucket.delete([self._object(number)])

    def note(self, values: dict[str, Any]) -> None:
        self._lease.note = values

    def close(self) -> None:
        if self._is_open:
            self._lease.release()
            self._is_open = False
            if self.lost is None:  # otherwise the run is another process's
                self._folder.bucket.guard = lambda: None

    def _ensure_held(self) -> None:
        self._lease.ensure(self._say)

    def _object(self, number: int) -> str:
        return self._folder.object_name(f"{self._name}/{number:09d}.jsonl")
