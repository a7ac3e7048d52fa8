"""Where this process keeps copies of what lies in object stores. Copies of processes that are gone are removed."""

import atexit
import contextlib
import fcntl
import functools
import os
import shutil
import socket
import uuid
from pathlib import Path

from raysweep.errors import InputError
from raysweep.storage.location import expanded

VARIABLE = "RAYSWEEP_CACHE_DIR"


def cache_folder() -> Path:
    """The folder for what can be fetched again: what ``RAYSWEEP_CACHE_DIR`` names, else one in the user's cache."""
    given = os.environ.get(VARIABLE)
    if given:
        return expanded(given).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expanded(base).absolute() / "raysweep"


@functools.cache
def process_folder() -> Path:
    """A folder of this process alone, which goes when it ends."""
    parent = cache_folder() / "processes" / socket.gethostname()
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{parent}: cannot be made: {error.strerror}; {VARIABLE} names the folder for what is fetched"
        ) from None
    for lock in parent.glob("*.lock"):
        _remove_leftover(lock)
    own = parent / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    _lock(_lock_path(own))  # before the folder is there, so that it is never without
    own.mkdir(mode=0o700)
    atexit.register(_remove, own)
    return own


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _lock(path: Path) -> None:
    """Lock a file until the kernel frees it, when this process ends. Other containers see that, but not its number."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)  # which nothing closes before
        with contextlib.suppress(OSError):  # a file system without locks, where nothing is taken for a leftover
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):  # another process may have taken it for a leftover in between
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return
        os.close(descriptor)


def _remove_leftover(path: Path) -> None:
    """Remove the folder that has this lock, unless a process holds it."""
    try:
        with path.open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path.with_suffix(""))
    except OSError:  # its process runs, or may do so
        pass


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():  # else another process removes the rest
        _lock_path(folder).unlink(missing_ok=True)
