"""Turns for work that several processes would duplicate: one does it, the others wait and then find it done.

The guarded work must tolerate being done twice, because a process that loses its store for too long loses its turn.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from raysweep.storage.folder import BucketFolder, Folder, LocalFolder
from raysweep.storage.lease import Lease

LEASE_SECONDS = 30.0  # the longest that others wait for a killed process
RENEW_SECONDS = 5.0


@contextlib.contextmanager
def turn(folder: Folder, name: str, say: Callable[[str], None]) -> Iterator[None]:
    """Wait for the exclusive turn to change ``name`` in a folder, and hold it in this context.

    ``say`` is called with a message about the current holder while waiting.
    """
    if isinstance(folder, BucketFolder):
        with _leased(folder, name, say):
            yield
        return
    with _locked(folder.within(f".{name}.lock"), say):
        yield


@contextlib.contextmanager
def _leased(folder: BucketFolder, name: str, say: Callable[[str], None]) -> Iterator[None]:
    lock = folder.object_name(f"building/{name}.json")
    lease = Lease(folder.bucket, lock, LEASE_SECONDS, RENEW_SECONDS, advice="")
    lease.acquire(say)
    try:
        yield
    finally:
        lease.release()  # the object is kept: a waiting process may have taken the lease already


@contextlib.contextmanager
def _locked(place: Folder, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock on a file, and remove the file afterwards."""
    assert isinstance(place, LocalFolder)
    try:
        place.path.parent.mkdir(parents=True, exist_ok=True)
        file = _lock(place.path, say)
    except OSError:  # locks are not supported; missing permissions are reported by the code that writes
        yield
        return
    with file:
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                place.path.unlink()


def _lock(path: Path, say: Callable[[str], None]) -> IO[bytes]:
    """Return the locked file at this path.

    A holder removes the file when it is done, so the file may no longer exist after the wait.
    """
    while True:
        file = path.open("ab")
        try:
            _acquire(file, path, say)
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                    return file
        except BaseException:
            file.close()
            raise
        file.close()


def _acquire(file: IO[bytes], path: Path, say: Callable[[str], None]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"{path}: another process is at it; waiting")
        fcntl.flock(file, fcntl.LOCK_EX)
