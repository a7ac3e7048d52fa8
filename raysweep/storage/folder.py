"""A common interface to folders on a file system and in an object store."""

import contextlib
import errno
import hashlib
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from raysweep.errors import InputError
from raysweep.storage import location
from raysweep.storage.bucket import NUM_THREADS, Bucket, FileStat
from raysweep.storage.private import make_private
from raysweep.storage.scratch import process_folder

UPLOAD_SECONDS = 60.0  # interval between uploads of growing files


class Folder(Protocol):
    """A folder on a file system or in an object store. Names are relative paths; "" is the folder itself.

    Files are read and written under ``path``. Call :meth:`fetch` before reading files that another
    process wrote, and :meth:`store` after writing. Both raise OSError on failure.
    """

    @property
    def location(self) -> str:
        """Return the folder as users specify it: a path or a URI."""

    @property
    def path(self) -> Path:
        """Return the local path under which files are read and written."""

    def within(self, name: str) -> "Folder":
        """Return a subfolder."""

    def fetch(self, name: str = "") -> Path:
        """Update the local copy of a file or folder and return its path, which may not exist."""

    def read(self, names: Sequence[str], num_bytes: int | None = None) -> list[bytes]:
        """Return the stored content of small files, or at most the first ``num_bytes`` bytes of each.

        Raises:
            FileNotFoundError: If a file does not exist.
        """

    def put(self, name: str, content: bytes) -> None:
        """Write a file atomically, replacing any existing file."""

    def keep(self, name: str, content: bytes) -> None:
        """Write a file like :meth:`put`, and flush it to durable storage."""

    def store(self, name: str = "") -> None:
        """Write a file or folder under ``path`` to durable storage."""

    def let_go(self, name: str) -> None:
        """Remove the local copy of a file or folder in an object store."""

    def remove(self, name: str) -> None:
        """Permanently remove a file or folder if it exists."""

    def exists(self, name: str) -> bool:
        """Return whether a file or a folder is stored."""

    def names(self, name: str = "") -> set[str]:
        """Return the names of the files and folders stored directly in a folder."""

    def files(self, name: str = "") -> dict[str, FileStat]:
        """Return the files stored in a folder and its subfolders, keyed by their names relative to the folder."""

    def sizes(self, name: str = "") -> dict[str, int]:
        """Return the size in bytes of each file that :meth:`files` returns."""


def open_folder(place: str | Path, on_wait: Callable[[str], None] = print) -> Folder:
    """Return the folder at a location; the folder need not exist.

    ``on_wait`` is called with a message while the store is unresponsive.

    Raises:
        ValueError: If the location is invalid.
    """
    where = location.absolute(str(place))
    if not location.is_uri(where):
        return LocalFolder(Path(where))
    digest = hashlib.sha256(where.encode()).hexdigest()[:16]
    return BucketFolder(Bucket(where, on_wait), process_folder() / digest)


def as_folder(place: "str | Path | Folder") -> Folder:
    """Return the folder at a path or URI; a Folder is returned unchanged."""
    if isinstance(place, Path):
        return LocalFolder(place)
    return open_folder(place) if isinstance(place, str) else place


@dataclass(frozen=True)
class LocalFolder:
    """A folder on a mounted file system."""

    path: Path

    @property
    def location(self) -> str:
        return str(self.path)

    def within(self, name: str) -> "LocalFolder":
        return LocalFolder(self.path / name)

    def fetch(self, name: str = "") -> Path:
        return self.path / name

    def read(self, names: Sequence[str], num_bytes: int | None = None) -> list[bytes]:
        contents = []
        for name in names:
            path = self.path / name
            if path.exists() and not path.is_file():  # reading a device or a pipe may block forever
                raise OSError(errno.EINVAL, "is not a regular file", str(path))
            with path.open("rb") as file:
                contents.append(file.read(num_bytes))
        return contents

    def put(self, name: str, content: bytes) -> None:
        self._put(name, content, lambda temporary: None)

    def keep(self, name: str, content: bytes) -> None:
        self._put(name, content, flush)
        self.store(name)

    def _put(self, name: str, content: bytes, before_rename: Callable[[Path], None]) -> None:
        path = self.path / name
        make_private(path.parent)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        try:
            temporary.write_bytes(content)
            before_rename(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def store(self, name: str = "") -> None:
        path = self.path / name
        flush(path)
        # new entries are durable only after the parent folders are flushed
        for folder in path.parents[: len(Path(name).parts)]:
            _flush_one(folder)

    def let_go(self, name: str) -> None:
        pass

    def remove(self, name: str) -> None:
        path = self.path / name
        if name and not path.parent.resolve().is_relative_to(self.path.resolve()):
            raise OSError(
                errno.ELOOP,
                "a symbolic link leads out of the folder; nothing was removed",
                str(path),
            )
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def exists(self, name: str) -> bool:
        return (self.path / name).exists()

    def names(self, name: str = "") -> set[str]:
        folder = self.path / name
        return {path.name for path in folder.iterdir()} if folder.is_dir() else set()

    def sizes(self, name: str = "") -> dict[str, int]:
        return {file: stat.num_bytes for file, stat in self.files(name).items()}

    def files(self, name: str = "") -> dict[str, FileStat]:
        folder = self.path / name
        files = {}
        # os.walk skips folders that disappear while workers replace checkpoints
        for parent, _, file_names in os.walk(folder):
            for file_name in file_names:
                path = Path(parent, file_name)
                with contextlib.suppress(OSError):
                    status = path.stat()
                    relative = path.relative_to(folder).as_posix()
                    files[relative] = FileStat(status.st_size, status.st_mtime)
        return files


def flush(place: Path) -> None:
    """Flush a file, or a folder and its contents, to disk. Raises OSError on failure.

    Flush files before renaming them into place; otherwise, they may be empty after a power failure.
    """
    for parent, folders, files in os.walk(place):
        for name in (*files, *folders):
            _flush_one(Path(parent, name))
    _flush_one(place)


def _flush_one(path: Path) -> None:
    """Flush a file, or a folder's entries."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # do not block on a pipe
    except FileNotFoundError:  # removed by another process that took over the trial
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        # some network file systems cannot flush folders
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class BucketFolder:
    """A folder in an object store, with local copies of some of its files."""

    bucket: Bucket
    path: Path
    prefix: str = ""

    @property
    def location(self) -> str:
        return location.join(self.bucket.uri, self.prefix) if self.prefix else self.bucket.uri

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the location, because local copies and credentials are specific to a process."""
        return open_folder, (self.location,)

    def within(self, name: str) -> "BucketFolder":
        return BucketFolder(self.bucket, self.path / name, self.object_name(name))

    def fetch(self, name: str = "") -> Path:
        path = self.path / name
        self.let_go(name)
        sizes = self._stored(name)
        if not sizes:
            return path

        def download(item: tuple[str, int]) -> None:
            stored_name, num_bytes = item
            relative = stored_name.removeprefix(self.prefix).lstrip("/")
            place = self.path / relative
            self.bucket.download(stored_name, place, num_bytes)

        with ThreadPoolExecutor(NUM_THREADS) as pool:
            list(pool.map(download, sizes.items()))
        return path

    def read(self, names: Sequence[str], num_bytes: int | None = None) -> list[bytes]:
        return self.bucket.read_all([self.object_name(name) for name in names], num_bytes)

    def put(self, name: str, content: bytes) -> None:
        self.bucket.write(self.object_name(name), content)

    def keep(self, name: str, content: bytes) -> None:
        self.put(name, content)

    def store(self, name: str = "") -> None:
        path = self.path / name
        files = sorted(file for file in path.rglob("*") if file.is_file())
        # in sorted order, because the last file marks a complete upload
        for file in files or [path]:
            relative = file.relative_to(self.path).as_posix()
            self.bucket.upload(file, self.object_name(relative))

    def let_go(self, name: str) -> None:
        LocalFolder(self.path).remove(name)

    def remove(self, name: str) -> None:
        self.let_go(name)
        self.bucket.delete(self._stored(name))

    def exists(self, name: str) -> bool:
        return bool(self._stored(name))

    def names(self, name: str = "") -> set[str]:
        return {file.partition("/")[0] for file in self.sizes(name)}

    def sizes(self, name: str = "") -> dict[str, int]:
        return {file: stat.num_bytes for file, stat in self.files(name).items()}

    def files(self, name: str = "") -> dict[str, FileStat]:
        full = self.object_name(name)
        skip = len(full) + 1 if full else 0
        files = self.bucket.files(full)
        return {file[skip:]: stat for file, stat in files.items() if len(file) > skip}

    def object_name(self, name: str) -> str:
        """Return the object name of a file in this folder."""
        return "/".join(part for part in (self.prefix, name) if part)

    def _stored(self, name: str) -> dict[str, int]:
        """Return the sizes of the objects below a name, or of the object with exactly this name."""
        full = self.object_name(name)
        sizes = self.bucket.sizes(full)
        if full and not sizes and (num_bytes := self.bucket.size_of(full)) is not None:
            return {full: num_bytes}
        return sizes


@contextlib.contextmanager
def uploaded(folder: Folder, names: list[str], seconds: float = UPLOAD_SECONDS) -> Iterator[None]:
    """Upload growing files, such as logs, every ``seconds`` seconds and when the context exits.

    Errors are ignored.
    """
    if isinstance(folder, LocalFolder):
        yield
        return
    stop = threading.Event()
    sizes: dict[str, int] = {}

    def upload() -> None:
        for name in names:
            path = folder.path / name
            with contextlib.suppress(OSError, InputError):  # retried at the next interval
                if (num_bytes := path.stat().st_size) != sizes.get(name):
                    folder.store(name)
                    sizes[name] = num_bytes

    def upload_until_stopped() -> None:
        while not stop.wait(seconds):
            upload()

    thread = threading.Thread(target=upload_until_stopped, name="uploads", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        upload()
