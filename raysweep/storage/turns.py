"""One process at a time does what several would do alike; the others wait, and then find it done.

What is guarded has to bear being done twice: a process that is cut off from its store for too long loses its turn.
"""

import contextlib
import fcntl
from collections.abc import Callable, Iterator

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
        lease.release()
        with contextlib.suppress(OSError):
            folder.bucket.delete([lock])


@contextlib.contextmanager
def _locked(place: Folder, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock on a file, which goes afterwards: whoever waited for it finds the work done."""
    assert isinstance(place, LocalFolder)
    path = place.path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError:  # what the folder forbids is said by whoever writes to it
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"{path}: another process is at it; waiting")
            with contextlib.suppress(OSError):  # file systems without locks
                fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
