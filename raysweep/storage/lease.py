"""The right to change what lies under a URI, which one process at a time holds, and for as long only as it renews it."""

import errno
import getpass
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from raysweep.errors import InputError
from raysweep.storage.bucket import LEASE, Bucket, StorageError, Stored, attempt_seconds

SECONDS = 120.0  # that a lease lasts from when the store got it;
USUAL_ATTEMPT_SECONDS = 60.0  # longer in proportion where an attempt at a request may take longer than this
MOST_SECONDS = 86_400.0  # that a lease is believed to last
RENEW_SECONDS = 20.0
NOTICE_SECONDS = 5.0  # in which a holder that finds its lease taken stops what it does
CLOCK_SECONDS = 2.0  # by which times of a store may be off: they are rounded to seconds


def _holder() -> str:
    return f"{_user()} on {socket.gethostname()}, process {os.getpid()}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return f"user {os.getuid()}"


@dataclass
class Lease:
    """A lease on what lies in ``bucket``. A thread renews it from :meth:`acquire` to :meth:`release`.

    The store's clock alone says when it ends for others. For its holder it ends no later than that: it counts from before
    the request that renewed it. ``note`` is what the lease says of the work so far, such as the ledger's position; None
    where that was damaged.
    """

    bucket: Bucket
    name: str = LEASE
    seconds: float = field(default_factory=lambda: SECONDS * max(1.0, attempt_seconds() / USUAL_ATTEMPT_SECONDS))
    renew_seconds: float = field(default_factory=lambda: RENEW_SECONDS)
    advice: str = ". To stop it and go on at once: --take-over"  # for those who wait
    on_lost: Callable[[], None] = lambda: None  # called from the thread that renews it
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    note: dict[str, Any] | None = field(default_factory=dict)
    _tag: dict[str, str] = field(default_factory=dict, repr=False)
    _held_until: float = field(default=0.0, repr=False)  # by the monotonic clock
    _problem: StorageError | None = field(default=None, repr=False)  # why it could not be renewed
    _lost_to: str | None = field(default=None, repr=False)
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)

    def acquire(self, say: Callable[[str], None], *, take_over: bool = False) -> dict[str, Any] | None:
        """Take the lease, and return what its last holder noted; None where the lease was damaged.

        Where somebody else holds it this waits until it ends, and says whose it is and until when. With ``take_over`` it is
        taken from them, which stops them.
        """
        noted: dict[str, Any] | None = {}
        taken_from: str | None = None  # who may not have noticed yet
        began = _clock()
        while not self._taken_new():
            try:
                found = self.bucket.read_version(self.name)
            except FileNotFoundError:  # removed in between
                continue
            lease = _parsed(found)
            if lease.get("session") == self.session:  # taken by a request whose answer was lost
                self._tag = found.tag
                break
            noted = self.note = lease.get("note", {})
            taken_from = None
            if take_over and not lease.get("released"):
                taken_from = str(lease.get("holder"))
            else:
                self._await_end(found, say)
                say = _say_nothing  # the same again, for as long as its holder renews it
            began = _clock()
            if (tag := self.bucket.replace(self.name, self._content(), found.tag)) is not None:
                self._tag = tag
                break
        if taken_from is not None:
            say(f"{self.bucket.uri}: taken over from {taken_from}; waiting until that one has noticed and stops")
            time.sleep(self.renew_seconds + NOTICE_SECONDS)
        self._held_until = began + self.seconds
        self._thread = threading.Thread(target=self._renew_until_stopped, name="lease", daemon=True)
        self._thread.start()
        return noted

    def _taken_new(self) -> bool:
        """Whether there was no lease, and this one is it now."""
        try:
            self._tag = self.bucket.create(self.name, self._content())
        except FileExistsError:
            return False
        return True

    def _await_end(self, found: Stored, say: Callable[[str], None]) -> None:
        """Return once the lease that was found has ended, or has changed."""
        if _parsed(found).get("released"):
            return
        ends = found.modified + timedelta(seconds=self._seconds_of(found) + CLOCK_SECONDS)
        now = self.bucket.now()
        if now < ends:
            until = datetime.now() + (ends - now)
            say(
                f"{self.bucket.uri}: {_parsed(found).get('holder')} has it until {until:%H:%M:%S}, and longer if it lives; "
                f"waiting{self.advice}"
            )
        while now < ends:
            time.sleep(min(5.0, max(0.2, (ends - now).total_seconds())))
            try:
                if self.bucket.read_version(self.name).tag != found.tag:
                    return
            except FileNotFoundError:  # somebody removed it
                return
            now = self.bucket.now()

    def _seconds_of(self, found: Stored) -> float:
        """How long a lease lasts, by what it says itself."""
        seconds = _parsed(found).get("seconds")
        if isinstance(seconds, int | float) and 0 < seconds <= MOST_SECONDS:  # neither damaged nor NaN
            return float(seconds)
        return self.seconds

    def ensure(self, say: Callable[[str], None]) -> None:
        """Return while the lease is held for as long as a request may take. Otherwise this waits until it is renewed.

        StorageError where another process has it by now, where it was removed, and where it cannot be renewed for as long as
        the bucket's patience lasts, or for a reason that does not pass.
        """
        said = False
        began = _clock()
        # What is sent now should be there before the lease ends, not only be sent by then.
        margin = min(attempt_seconds(), self.seconds / 2)
        while True:
            if self._lost_to is not None:
                raise StorageError(errno.EPERM, self.lost, self.bucket.uri)
            if _clock() < self._held_until - margin:
                return
            if self._problem is not None and (self._problem.errno == errno.EACCES or self._has_waited(began)):
                raise self._problem
            if not said:
                say(f"{self.bucket.uri}: its lease cannot be renewed for now; nothing is written meanwhile")
                said = True
            time.sleep(0.2)

    def _has_waited(self, began: float) -> bool:
        return _clock() - began > self.bucket.patience

    def _lose_to(self, holder: str) -> None:
        self._lost_to = holder
        self.on_lost()

    @property
    def lost(self) -> str | None:
        """To whom the lease was lost, for people."""
        return None if self._lost_to is None else f"taken over by {self._lost_to}"

    def release(self) -> None:
        """Let others have it at once. Does nothing where it was lost."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._lost_to is None and self._tag:
            try:
                self.bucket.replace(self.name, self._content(released=True), self._tag)
            except StorageError:  # it ends by itself
                return

    def _content(self, *, released: bool = False) -> bytes:
        values = {"holder": _holder(), "session": self.session, "seconds": self.seconds, "note": self.note}
        # Each renewal is a version of its own, so that the tag of it names no other.
        return json.dumps({**values, "released": released, "version": uuid.uuid4().hex}).encode()

    def _renew_until_stopped(self) -> None:
        while not self._stop.wait(self.renew_seconds):
            self.renew()

    def renew(self) -> None:
        """Renew the lease once; what goes wrong is for :meth:`ensure` to say."""
        sent = _clock()
        try:
            tag = self.bucket.replace(self.name, self._content(), self._tag)
            if tag is None:
                found = self.bucket.read_version(self.name)
                if _parsed(found).get("session") != self.session:
                    self._lose_to(str(_parsed(found).get("holder")))
                    return
                self._tag = found.tag  # an earlier renewal whose answer was lost; the next one counts
                return
        except StorageError as error:
            self._problem = error  # tried again, and nothing is written once the time has passed
            return
        except InputError as error:  # the bucket is gone
            self._problem = StorageError(errno.EACCES, str(error), self.bucket.uri)
            return
        except FileNotFoundError:
            self._lose_to("nobody: the lease was removed")
            return
        self._problem = None
        self._tag = tag
        self._held_until = sent + self.seconds


def _say_nothing(text: str) -> None:
    pass


def _clock() -> float:
    """Seconds, also those that the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def read_note(bucket: Bucket, name: str) -> dict[str, Any] | None:
    """What the last holder of a lease noted, also while it holds it; None where the lease is damaged."""
    try:
        found = bucket.read_version(name)
    except FileNotFoundError:
        return {}
    noted: dict[str, Any] | None = _parsed(found).get("note", {})
    return noted


def is_live(bucket: Bucket, name: str) -> bool:
    """Whether a process holds a lease, or held it so lately that it may. Nothing is written: this machine's clock tells."""
    try:
        found = bucket.read_version(name)
    except FileNotFoundError:
        return False
    lease = _parsed(found)
    seconds = lease.get("seconds")
    if lease.get("released") or not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
        return False
    return datetime.now(found.modified.tzinfo) < found.modified + timedelta(seconds=seconds + CLOCK_SECONDS)


def _parsed(found: Stored) -> dict[str, Any]:
    """What a lease says; a note of None where it is damaged."""
    damaged = {"note": None}
    try:
        values = json.loads(found.content)
    except (ValueError, RecursionError):
        return damaged
    return values if isinstance(values, dict) else damaged
