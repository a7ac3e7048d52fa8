"""Where this process keeps copies of what lies in object stores. Copies of processes that are gone are removed."""

import atexit
import functools
import os
import shutil
import socket
import uuid
from pathlib import Path

from raysweep.errors import InputError

VARIABLE = "RAYSWEEP_CACHE_DIR"


def cache_folder() -> Path:
    """The folder for what can be fetched again: what ``RAYSWEEP_CACHE_DIR`` names, else one in the user's cache."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "raysweep"


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
    for left in parent.iterdir():
        if not _runs(left.name.partition("-")[0]):
            shutil.rmtree(left, ignore_errors=True)
    own = parent / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    own.mkdir(mode=0o700)
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own


def _runs(process: str) -> bool:
    """Whether a process of this number runs on this machine, or may do so."""
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except (ValueError, PermissionError):
        return True
    return True
