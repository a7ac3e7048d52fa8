"""A least-recently-used cache of artifacts from an object store.

While a copy is downloaded or removed, it has a hidden name: ``.NAME.`` followed by eight hexadecimal
digits. A killed process therefore leaves partial copies only under hidden names.

Before a copy is used, its files are compared with the checksums in the artifact's manifest, and damaged
files are downloaded again.
"""

import contextlib
import fcntl
import itertools
import json
import math
import os
import shutil
import uuid
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import IO, Any

from raysweep.errors import InputError
from raysweep.storage import location
from raysweep.storage.bucket import NUM_THREADS
from raysweep.storage.folder import BucketFolder, Folder, LocalFolder
from raysweep.storage.private import make_private
from raysweep.storage.scratch import cache_folder

LIMIT_VARIABLE = "RAYSWEEP_CACHE_GIB"
DEFAULT_GIB = 50.0
MANIFEST = "artifact.json"  # an artifact's manifest, written last and removed first
CHECKSUMS = "crc32"  # key in the manifest for the CRC-32 of each file
OWN_CHECKSUM = "manifest_crc32"  # key in the manifest for the CRC-32 of its other entries
BLOCK_BYTES = 1 << 20  # number of bytes to read at a time for a checksum

in_use: dict[Path, IO[bytes]] = {}  # shared locks, held until this process ends


def cached(folder: BucketFolder, name: str) -> Path:
    """Return a local copy of an artifact and keep it in the cache until this process ends.

    Raises:
        InputError: If the artifact does not fit into the cache next to the copies in use, or is damaged
            in the store.
        FileNotFoundError: If the stored artifact is missing or incomplete.
    """
    root = cache_folder() / "artifacts"
    make_private(root)
    place = root / name
    if place not in in_use:
        lock = _lock_copy(folder, name, place)
        try:
            _repair(folder, name, place)
        except BaseException:
            lock.close()
            raise
        in_use[place] = lock
    with contextlib.suppress(OSError):
        os.utime(place)
    return place


def _lock_copy(folder: BucketFolder, name: str, place: Path) -> IO[bytes]:
    """Return a shared lock on a copy, downloading the copy first if it is missing."""
    lock = _lock_path(place).open("ab")
    try:
        while True:  # converting an exclusive lock to a shared one is not atomic, so the copy may be evicted in between
            fcntl.flock(lock, fcntl.LOCK_SH)
            if _is_complete(place):
                return lock
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_complete(place):
                _download(folder, name, place)
    except BaseException:
        lock.close()
        raise


def write_manifest(manifest: dict[str, Any]) -> bytes:
    """Return a manifest as JSON, including its own checksum."""
    return _as_json({**manifest, OWN_CHECKSUM: zlib.crc32(_as_json(manifest))})


def _as_json(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, indent=1).encode()


def _repair(folder: BucketFolder, name: str, copy: Path) -> None:
    """Download the damaged files of a copy again. The caller must hold a shared lock on the copy.

    Files are replaced atomically because other processes may be using the copy.
    """
    if not (damaged := _find_damaged(copy)):
        return
    for file in (MANIFEST, *damaged):  # the manifest too, since it may be the damaged one
        stored_name = f"{name}/{file}"
        object_name = folder.object_name(stored_name)
        num_bytes = folder.bucket.size_of(object_name)
        if num_bytes is None:
            raise FileNotFoundError(
                f"{location.join(folder.location, stored_name)}: the artifact is missing or incomplete"
            )
        temporary = _hidden(copy / file)
        try:
            folder.bucket.download(object_name, temporary, num_bytes)
            temporary.replace(copy / file)
        finally:
            temporary.unlink(missing_ok=True)
    if damaged := _find_damaged(copy):
        stored = folder.within(name).location
        files = ", ".join(damaged)
        raise InputError(
            f"{location.join(stored, damaged[0])}: is damaged ({files}); remove {stored} and prepare again"
        )


def _find_damaged(copy: Path) -> list[str]:
    """Return the names of files that are missing or do not match their checksums in the manifest."""
    try:
        manifest: dict[str, Any] = json.loads((copy / MANIFEST).read_bytes())
        own_checksum = manifest.pop(OWN_CHECKSUM, None)
        checksums: dict[str, int] = manifest.get(CHECKSUMS, {})
        # names in a damaged manifest may refer to files outside the copy
        stays_inside = all(_is_relative(name) for name in checksums)
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return [MANIFEST]
    is_intact = own_checksum in (None, zlib.crc32(_as_json(manifest)))
    if not is_intact or not stays_inside:
        return [MANIFEST]

    def is_damaged(name: str) -> bool:
        return checksum(copy / name) != checksums[name]

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        are_damaged = list(pool.map(is_damaged, checksums))
    return list(itertools.compress(checksums, are_damaged))


def _is_relative(name: str) -> bool:
    path = PurePosixPath(name)
    return str(path) == name and not path.is_absolute() and ".." not in path.parts


def checksum(file: Path) -> int | None:
    """Return a file's CRC-32, or None if the file cannot be read."""
    value = 0
    try:
        with file.open("rb") as content:
            while block := content.read(BLOCK_BYTES):
                value = zlib.crc32(block, value)
    except OSError:
        return None
    return value


def _is_complete(copy: Path) -> bool:
    return (copy / MANIFEST).is_file()


def _lock_path(copy: Path) -> Path:
    """Return a copy's lock file. A hidden partial copy shares its lock file with the complete copy."""
    name = copy.name.lstrip(".").partition(".")[0]
    return copy.with_name(f".{name}.lock")


def _hidden(place: Path) -> Path:
    """Return a new hidden name for a copy or one of its files."""
    return place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}")


def _download(folder: BucketFolder, name: str, place: Path) -> None:
    """Download an artifact. The caller must hold an exclusive lock on it."""
    # Remove leftovers of killed processes here, because _make_room skips locked copies.
    hidden = f".{place.name}."
    for path in place.parent.iterdir():
        is_part = path == place or path.name.startswith(hidden)
        if is_part and path.is_dir():
            shutil.rmtree(path)
    stored = folder.within(name)
    num_bytes = sum(stored.sizes().values())
    _make_room(place, num_bytes)
    copy = BucketFolder(stored.bucket, _hidden(place), stored.prefix)
    try:
        if not _is_complete(copy.fetch()):
            raise FileNotFoundError(f"{stored.location}: the artifact is missing or incomplete")
        copy.path.rename(place)
    finally:
        shutil.rmtree(copy.path, ignore_errors=True)


def _make_room(place: Path, num_bytes: int) -> None:
    """Remove unused copies until ``num_bytes`` fit: first partial copies, then the least recently used ones."""
    root = place.parent
    limit_bytes = limit_gib() * 2**30
    sizes: dict[Path, int] = {}
    for copy in root.iterdir():
        if copy.is_dir():
            sizes[copy] = sum(LocalFolder(copy).sizes().values())
    for copy in sorted(sizes, key=_eviction_key):
        if sum(sizes.values()) + num_bytes <= limit_bytes:
            return
        if _try_remove(copy):
            del sizes[copy]
    needed_bytes = sum(sizes.values()) + num_bytes
    if needed_bytes > limit_bytes:
        needed_gib = _format_gib(needed_bytes)
        raise InputError(
            f"{root}: the cache limit is {limit_bytes / 2**30:g} GiB, but {place.name} and the copies in use need "
            f"{needed_gib} GiB; set {LIMIT_VARIABLE} to at least {needed_gib} on every node"
        )


def _eviction_key(copy: Path) -> tuple[bool, float]:
    """Return a sort key that places partial copies first, then the least recently used ones."""
    try:
        last_used = copy.stat().st_mtime
    except OSError:  # another process has removed the copy or finished downloading it
        last_used = 0.0
    return _is_complete(copy) and not copy.name.startswith("."), last_used


def check_room(folder: Folder, names: Iterable[str]) -> None:
    """Raise InputError if the total size of these artifacts exceeds the cache limit."""
    if isinstance(folder, LocalFolder):  # local artifacts are used in place
        return
    num_bytes = sum(sum(folder.sizes(name).values()) for name in set(names))
    limit = limit_gib()
    if num_bytes > limit * 2**30:
        needed_gib = _format_gib(num_bytes)
        raise InputError(
            f"{folder.location}: the artifacts of the sweep's trials need {needed_gib} GiB, but the cache limit "
            f"is {limit:g} GiB; set {LIMIT_VARIABLE} to at least {needed_gib} on every node"
        )


def _format_gib(num_bytes: int) -> str:
    """Return the size in GiB, rounded up so that users can set it as the limit."""
    return f"{math.ceil(100 * num_bytes / 2**30) / 100:g}"


def limit_gib() -> float:
    """Return the size limit of this machine's cache in GiB.

    Raises:
        InputError: If the environment variable is not a positive number.
    """
    text = os.environ.get(LIMIT_VARIABLE, str(DEFAULT_GIB))
    try:
        limit = float(text)
    except ValueError:
        limit = 0.0
    if not limit > 0:
        raise InputError(f"{LIMIT_VARIABLE} is {text!r}; allowed: a positive number of GiB")
    return limit


def _try_remove(copy: Path) -> bool:
    """Remove a copy unless a process is using it, and return whether the copy was removed."""
    with _lock_path(copy).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        leftover = copy
        if not copy.name.startswith("."):
            leftover = _hidden(copy)
            with contextlib.suppress(FileNotFoundError):  # another process has removed it
                copy.rename(leftover)
        shutil.rmtree(leftover, ignore_errors=True)
    return not leftover.exists()
