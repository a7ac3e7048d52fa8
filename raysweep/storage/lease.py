"""Leases, which give one process the exclusive right to change the data under a URI.

A lease expires unless its holder renews it. A turn prevents several processes from doing the same work
in a local or bucket folder.
"""

import contextlib
import errno
import fcntl
import getpass
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any

from raysweep.errors import InputError
from raysweep.storage.bucket import LEASE, Bucket, StorageError, Stored, attempt_seconds
from raysweep.storage.folder import BucketFolder, Folder
from raysweep.storage.private import make_private

SECONDS = 120.0  # duration of a lease from the time it reaches the store
# leases are proportionally longer if a request attempt may take longer than this
USUAL_ATTEMPT_SECONDS = 60.0
MAX_SECONDS = 86_400.0  # a stored lease that lasts longer is treated as damaged
RENEW_SECONDS = 20.0
NOTICE_SECONDS = 5.0  # time for a holder to stop after it discovers that its lease was taken over
TURN_SECONDS = 30.0  # maximum time that others wait after a holder is killed
TURN_RENEW_SECONDS = 5.0
CLOCK_SECONDS = 2.0  # maximum error of a store's times, which are rounded to seconds


def _holder() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user has no name, as in some containers
        user = f"user {os.getuid()}"
    return f"{user} on {socket.gethostname()}, process {os.getpid()}"


@dataclass
class Lease:
    """A lease on the contents of ``bucket``, renewed by a thread between :meth:`acquire` and :meth:`release`.

    For other processes, the duration starts when a renewal reaches the store. For the holder, it starts
    when the renewal is sent, so the holder never uses an expired lease. ``note`` is the progress recorded
    in the lease, such as the ledger's position, or None if the lease was damaged.
    """

    bucket: Bucket
    name: str = LEASE
    seconds: float = field(
        default_factory=lambda: SECONDS * max(1.0, attempt_seconds() / USUAL_ATTEMPT_SECONDS)
    )
    renew_seconds: float = field(default_factory=lambda: RENEW_SECONDS)
    # appended to the message that is printed while waiting
    advice: str = ". To stop that process and continue now: --take-over"
    on_lost: Callable[[], None] = lambda: None  # called from the renewal thread
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    note: dict[str, Any] | None = field(default_factory=dict)
    _tag: dict[str, str] = field(default_factory=dict, repr=False)
    _held_until: float = field(default=0.0, repr=False)  # on the monotonic clock
    # the reason why the last renewal failed
    _problem: StorageError | None = field(default=None, repr=False)
    _lost_to: str | None = field(default=None, repr=False)
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)

    def acquire(
        self, say: Callable[[str], None], *, take_over: bool = False
    ) -> dict[str, Any] | None:
        """Acquire the lease and return the previous holder's note, or None if the lease was damaged.

        If another process holds the lease, wait until it expires. With ``take_over``, take the lease from
        its holder, which then stops.
        """
        last_note: dict[str, Any] | None = {}
        taken_from: str | None = None  # the previous holder, which may still be running
        began = _clock()
        while not self._create():
            try:
                stored = self.bucket.read_version(self.name)
            except FileNotFoundError:  # removed in the meantime
                continue
            lease = _parse(stored)
            # acquired by an earlier request whose response was lost
            if lease.get("session") == self.session:
                self._tag = stored.tag
                break
            last_note = self.note = lease.get("note", {})
            taken_from = None
            if take_over and not lease.get("released"):
                taken_from = str(lease.get("holder"))
            else:
                self._await_end(stored, say)
                # do not repeat the message each time the holder renews its lease
                say = _say_nothing
            began = _clock()
            tag = self.bucket.replace(self.name, self._content(), stored.tag)
            if tag is not None:
                self._tag = tag
                break
        if taken_from is not None:
            say(
                f"{self.bucket.uri}: taken over from {taken_from}; waiting for that process to stop"
            )
            time.sleep(self.renew_seconds + NOTICE_SECONDS)
        self._held_until = began + self.seconds

        def renew_until_stopped() -> None:
            while not self._stop.wait(self.renew_seconds):
                self.renew()

        self._thread = threading.Thread(target=renew_until_stopped, name="lease", daemon=True)
        self._thread.start()
        return last_note

    def _create(self) -> bool:
        """Create the lease if it does not exist, and return whether it was created."""
        try:
            self._tag = self.bucket.create(self.name, self._content())
        except FileExistsError:
            return False
        return True

    def _await_end(self, stored: Stored, say: Callable[[str], None]) -> None:
        """Wait until the stored lease has expired or changed."""
        lease = _parse(stored)
        if lease.get("released"):
            return
        seconds = _duration(lease) or self.seconds
        ends = stored.modified + timedelta(seconds=seconds + CLOCK_SECONDS)
        now = self.bucket.now()
        if now < ends:
            until = datetime.now() + (ends - now)
            say(
                f"{self.bucket.uri}: leased by {lease.get('holder')} until {until:%H:%M:%S}, longer if renewed; "
                f"waiting{self.advice}"
            )
        while now < ends:
            time.sleep(min(5.0, max(0.2, (ends - now).total_seconds())))
            try:
                if self.bucket.read_version(self.name).tag != stored.tag:
                    return
            except FileNotFoundError:  # the lease was removed
                return
            now = self.bucket.now()

    def ensure(self, say: Callable[[str], None]) -> None:
        """Wait until the lease is valid for longer than a request may take.

        Raises:
            StorageError: If the lease was taken over or removed, or cannot be renewed within the bucket's
                patience.
        """
        is_reported = False
        began = _clock()
        # A request must reach the store before the lease expires.
        margin = min(attempt_seconds(), self.seconds / 2)
        while True:
            if self._lost_to is not None:
                raise StorageError(errno.EPERM, self.lost, self.bucket.uri)
            if _clock() < self._held_until - margin:
                return
            if self._problem is not None and (
                self._problem.errno == errno.EACCES or _clock() - began > self.bucket.patience
            ):
                raise self._problem
            if not is_reported:
                say(
                    f"{self.bucket.uri}: the lease cannot be renewed at the moment; writes are on hold"
                )
                is_reported = True
            time.sleep(0.2)

    def _lose_to(self, holder: str) -> None:
        self._lost_to = holder
        self.on_lost()

    @property
    def lost(self) -> str | None:
        """Return a message that names the process that took over the lease, or None if there is none."""
        return None if self._lost_to is None else f"taken over by {self._lost_to}"

    def release(self) -> None:
        """Release the lease so that others can acquire it immediately. Does nothing if the lease was lost."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._lost_to is None and self._tag:
            try:
                self.bucket.replace(self.name, self._content(released=True), self._tag)
            except StorageError:  # the lease will expire anyway
                return

    def _content(self, *, released: bool = False) -> bytes:
        values = {
            "holder": _holder(),
            "session": self.session,
            "seconds": self.seconds,
            "note": self.note,
            "released": released,
            "version": uuid.uuid4().hex,  # makes the tag of each renewal unique
        }
        return json.dumps(values).encode()

    def renew(self) -> None:
        """Renew the lease once. :meth:`ensure` reports failures."""
        sent = _clock()
        try:
            tag = self.bucket.replace(self.name, self._content(), self._tag)
            if tag is None:
                stored = self.bucket.read_version(self.name)
                lease = _parse(stored)
                if lease.get("session") != self.session:
                    self._lose_to(str(lease.get("holder")))
                    return
                # The tag is from an earlier renewal whose response was lost; the next renewal extends the lease.
                self._tag = stored.tag
                return
        except StorageError as error:
            # the renewal is retried, and ensure blocks writes once the lease has expired
            self._problem = error
            return
        except InputError as error:  # the bucket no longer exists
            self._problem = StorageError(errno.EACCES, str(error), self.bucket.uri)
            return
        except FileNotFoundError:
            self._lose_to("an unknown process: the lease was removed")
            return
        self._problem = None
        self._tag = tag
        self._held_until = sent + self.seconds


def _say_nothing(text: str) -> None:
    pass


def _clock() -> float:
    """Return a monotonic time in seconds that keeps counting while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def read_note(bucket: Bucket, name: str) -> dict[str, Any] | None:
    """Return the note of a lease's current or last holder, or None if the lease is damaged."""
    try:
        stored = bucket.read_version(name)
    except FileNotFoundError:
        return {}
    note: dict[str, Any] | None = _parse(stored).get("note", {})
    return note


def is_live(bucket: Bucket, name: str) -> bool:
    """Return whether a lease is still held. Its expiry time is compared with the local clock."""
    try:
        stored = bucket.read_version(name)
    except FileNotFoundError:
        return False
    lease = _parse(stored)
    seconds = _duration(lease)
    if lease.get("released") or seconds is None:
        return False
    ends = stored.modified + timedelta(seconds=seconds + CLOCK_SECONDS)
    return datetime.now(ends.tzinfo) < ends


def _duration(lease: dict[str, Any]) -> float | None:
    """Return the duration in seconds that a lease records, or None if that value is invalid."""
    seconds = lease.get("seconds")
    if isinstance(seconds, int | float) and 0 < seconds <= MAX_SECONDS:  # neither damaged nor NaN
        return float(seconds)
    return None


def _parse(stored: Stored) -> dict[str, Any]:
    """Return a lease's values, or only a note of None if the lease is damaged."""
    damaged = {"note": None}
    try:
        values = json.loads(stored.content)
    except (ValueError, RecursionError):
        return damaged
    return values if isinstance(values, dict) else damaged


@contextlib.contextmanager
def turn(folder: Folder, name: str, say: Callable[[str], None]) -> Iterator[None]:
    """Wait for an exclusive turn to change ``name`` in a folder, and hold it until the context exits.

    The work must be idempotent, because a process loses its turn if it cannot reach the store for too
    long. ``say`` is called with a message if this process has to wait.
    """
    if isinstance(folder, BucketFolder):
        lock = folder.object_name(f"building/{name}.json")
        lease = Lease(folder.bucket, lock, TURN_SECONDS, TURN_RENEW_SECONDS, advice="")
        lease.acquire(say)
        try:
            yield
        finally:
            lease.release()  # the object stays, because a waiting process may already have taken the lease
    else:
        with _locked(folder.path / f".{name}.lock", say):
            yield


@contextlib.contextmanager
def _locked(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock on a file, and remove the file when the context exits."""
    try:
        make_private(path.parent)
        file = _lock(path, say)
    except OSError:  # locks are unsupported, or permission is missing, which a later write reports
        yield
        return
    with file:
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()


def _lock(path: Path, say: Callable[[str], None]) -> IO[bytes]:
    """Open and lock the file at this path.

    Retry if the previous holder removed the file before the lock was acquired.
    """
    while True:
        file = path.open("ab")
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"{path}: locked by another process; waiting")
                fcntl.flock(file, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                    return file
        except BaseException:
            file.close()
            raise
        file.close()
