"""Copies on this machine of what never changes in an object store, under its own name. What is used least recently goes."""

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from raysweep.errors import InputError
from raysweep.storage.folder import BucketFolder
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
        with _locked(place) as lock:
            if not place.is_dir():
                _download(folder, name, place)
            fcntl.flock(lock, fcntl.LOCK_SH)
            _in_use[place] = lock
    with contextlib.suppress(OSError):
        os.utime(place)
    return place


def _lock_path(place: Path) -> Path:
    return place.with_name(f".{place.name}.lock")


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[IO[bytes]]:
    """The lock file of a copy, which this process alone has. It is not closed: who keeps it has the lock."""
    lock = _lock_path(place).open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if not place.is_dir():
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    except BaseException:
        lock.close()
        raise


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
    limit_bytes = _limit_gib() * 2**30
    copies = sorted((each for each in root.iterdir() if each.is_dir()), key=lambda each: each.stat().st_mtime)
    taken = {each: sum(file.stat().st_size for file in each.rglob("*") if file.is_file()) for each in copies}
    for copy in copies:
        if sum(taken.values()) + num_bytes <= limit_bytes:
            return
        if _removed(copy):
            del taken[copy]
    in_use_bytes = sum(taken.values())
    if in_use_bytes + num_bytes > limit_bytes:
        raise InputError(
            f"{root}: the cache may hold {limit_bytes / 2**30:g} GiB, but what this sweep reads takes "
            f"{(in_use_bytes + num_bytes) / 2**30:.2f}; set {LIMIT_VARIABLE} to that or more on every node"
        )


def _limit_gib() -> float:
    text = os.environ.get(LIMIT_VARIABLE, str(DEFAULT_GIB))
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{LIMIT_VARIABLE} is {text!r}; allowed: a number of GiB") from None


def _removed(copy: Path) -> bool:
    """Remove a copy, unless a process uses it."""
    with _lock_path(copy).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        shutil.rmtree(copy, ignore_errors=True)
    return not copy.exists()
