"""Local copies of data from object stores. Copies left behind by dead processes are removed."""

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
from raysweep.storage.location import expand_home
from raysweep.storage.private import OWNER_ONLY, make_private

VARIABLE = "RAYSWEEP_CACHE_DIR"


def cache_folder() -> Path:
    """Return the folder for downloaded data: ``RAYSWEEP_CACHE_DIR`` if set, otherwise ``raysweep`` in the user's cache."""
    folder = os.environ.get(VARIABLE)
    if folder:
        return expand_home(folder).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expand_home(base).absolute() / "raysweep"


@functools.cache
def process_folder() -> Path:
    """Return this process's own folder, which is removed when the process ends."""
    parent = cache_folder() / "processes" / socket.gethostname()
    try:
        make_private(parent)
    except OSError as error:
        raise InputError(
            f"{parent}: cannot be created: {error.strerror}; set {VARIABLE} to a writable folder for downloaded data"
        ) from None
    for leftover in parent.glob("*.lock"):
        try:
            with leftover.open("r+b") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(leftover.with_suffix(""))
        except OSError:  # its process may still be running
            pass
    folder = parent / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    _lock(_lock_path(folder))  # before mkdir, so that the folder is always locked
    folder.mkdir(mode=OWNER_ONLY)
    atexit.register(_remove, folder)
    return folder


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _lock(path: Path) -> None:
    """Lock a file until this process ends.

    Unlike process ids, file locks work across containers.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)  # closing releases the lock
        with contextlib.suppress(OSError):  # some file systems do not support locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # another process may have removed the file in the meantime
        with contextlib.suppress(FileNotFoundError):
            locked = os.fstat(descriptor)
            if locked.st_ino == path.stat().st_ino:
                return
        os.close(descriptor)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():  # otherwise another process is removing it
        _lock_path(folder).unlink(missing_ok=True)
