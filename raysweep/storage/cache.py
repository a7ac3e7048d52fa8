"""Copies on this machine of what never changes in an object store, under its own name. What is used least recently goes."""

import contextlib
import fcntl
import os
import shutil
import uuid
from pathlib import Path
from typing import IO

from raysweep.errors import InputError
from raysweep.storage.folder import BucketFolder, LocalFolder
from raysweep.storage.scratch import cache_folder

LIMIT_VARIABLE = "RAYSWEEP_CACHE_GIB"
DEFAULT_GIB = 50.0

_in_use: dict[Path, IO[bytes]] = {}  # shared locks, which last as long as this process


def cached(folder: BucketFolder, name: str) -> Path:
    """A copy of what is stored under a name, which stays for as long as this process lives.

    InputError where it does not fit into the cache beside what is in use. FileNotFoundError where nothing is stored.
    """
    root = cache_folder() / "artifacts"
    root.mkdir(parents=True, exist_ok=True)
    place = root / name
    if place not in _in_use:
        _in_use[place] = _held(folder, name, place)
    with contextlib.suppress(OSError):
        os.utime(place)
    return place


def _held(folder: BucketFolder, name: str, place: Path) -> IO[bytes]:
    """A shared lock on a copy that is there; it is downloaded first where it is not."""
    lock = _lock_path(place).open("ab")
    try:
        while True:  # a shared lock in the place of an exclusive one is not had at once, and the copy may go in between
            fcntl.flock(lock, fcntl.LOCK_SH)
            if place.is_dir():
                return lock
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.is_dir():
                _download(folder, name, place)
    except BaseException:
        lock.close()
        raise


def _lock_path(copy: Path) -> Path:
    """The lock of a copy, or of the copy that a hidden folder is to become."""
    name = copy.name.lstrip(".").partition(".")[0]
    return copy.with_name(f".{name}.lock")


def _download(folder: BucketFolder, name: str, place: Path) -> None:
    stored = folder.within(name)
    num_bytes = sum(stored.sizes().values())
    _make_room(place.parent, num_bytes)
    copy = BucketFolder(stored.bucket, place.with_name(f".{name}.{uuid.uuid4().hex[:8]}"), stored.prefix)
    try:
        if not copy.fetch().is_dir():
            raise FileNotFoundError(f"{stored.location}: nothing is stored there")
        copy.path.rename(place)
    finally:
        shutil.rmtree(copy.path, ignore_errors=True)


def _make_room(root: Path, num_bytes: int) -> None:
    """Remove copies that no process uses, the least recently used first, until so many bytes fit."""
    limit_bytes = limit_gib() * 2**30
    files = {each: LocalFolder(each).files() for each in root.iterdir() if each.is_dir()}
    taken = {copy: sum(stat.num_bytes for stat in stats.values()) for copy, stats in files.items()}
    for copy in sorted(files, key=_last_used):
        if sum(taken.values()) + num_bytes <= limit_bytes:
            return
        if _removed(copy):
            del taken[copy]
    in_use_bytes = sum(taken.values())
    if in_use_bytes + num_bytes > limit_bytes:
        raise InputError(
            f"{root}: the cache may hold {limit_bytes / 2**30:g} GiB, but what this sweep reads takes "
            f"{(in_use_bytes + num_bytes) / 2**30:.3g}; set {LIMIT_VARIABLE} to that or more on every node"
        )


def _last_used(copy: Path) -> float:
    try:
        return copy.stat().st_mtime
    except OSError:  # another process has removed it, or finished downloading
        return 0.0


def limit_gib() -> float:
    """How much copies may take on this machine. InputError where the environment says what is no number."""
    text = os.environ.get(LIMIT_VARIABLE, str(DEFAULT_GIB))
    try:
        limit = float(text)
    except ValueError:
        limit = 0.0
    if not limit > 0:
        raise InputError(f"{LIMIT_VARIABLE} is {text!r}; allowed: a number of GiB above 0")
    return limit


def _removed(copy: Path) -> bool:
    """Remove a copy, unless a process uses it."""
    with _lock_path(copy).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        shutil.rmtree(copy, ignore_errors=True)
    return not copy.exists()
