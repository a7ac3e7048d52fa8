"""One process at a time does what several would do alike; the others wait, and then find it done.

What is guarded has to bear being done twice: a process that is cut off from its store for too long loses its turn.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from raysweep.storage.folder import BucketFolder, Folder, LocalFolder
from raysweep.storage.lease import Lease

LEASE_SECONDS = 30.0  # that others wait at most for a process that was killed
RENEW_SECONDS = 5.0


@contextlib.contextmanager
def turn(folder: Folder, name: str, say: Callable[[str], None]) -> Iterator[None]:
    """Wait for the turn to change what has this name in a folder, and hold it. ``say`` is told who has it before."""
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
        lease.release()  # the object stays: whoever waits may have taken the lease by now


@contextlib.contextmanager
def _locked(place: Folder, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock on a file, which goes afterwards."""
    assert isinstance(place, LocalFolder)
    try:
        place.path.parent.mkdir(parents=True, exist_ok=True)
        file = _lock(place.path, say)
    except OSError:  # no locks here; and what the folder forbids is said by whoever writes to it
        yield
        return
    with file:
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                place.path.unlink()


def _lock(path: Path, say: Callable[[str], None]) -> IO[bytes]:
    """The file of this path, locked. A holder removes it at its end, so what was waited for may not be there any more."""
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
