"""Listing of the files of a source: a file, a folder or a glob, given as a local path or a URI.

A listing records the size of each file and a tag or the modification time, as reported by the storage. Readers compare
each file with its listing to detect changes.
"""

import functools
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa

from raysweep.errors import InputError
from raysweep.storage.location import expand_home

DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSON_LINES = (".jsonl", ".ndjson")
PARQUET = ".parquet"
SUFFIXES = (*DELIMITERS, *JSON_LINES, PARQUET)
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}

# time limit for retrying a request; pyarrow's default is 15 minutes
_GCS_SECONDS = 60
_CLOUD_VARIABLES = ("AWS_", "GOOGLE_")
_BUCKET_SCHEMES = ("s3", "gs", "gcs")
# keys of tags and times in the file information of fsspec
_VERSION_KEYS = (
    "ETag",
    "etag",
    "mtime",
    "LastModified",
    "last_modified",
    "created",
)
_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class SourceFile:
    """A listed file. ``version`` is a tag or the modification time, or "" if the storage reports neither."""

    name: str
    num_bytes: int
    version: str

    @property
    def is_recognized(self) -> bool:
        """Return whether size and version can identify the file's content."""
        return bool(self.version)

    @property
    def is_local(self) -> bool:
        return "://" not in self.name or self.name.startswith("file://")


class Format(NamedTuple):
    """A file format: the suffix, and pyarrow's name for the compression ("" if uncompressed)."""

    suffix: str
    compression: str


def format_of(name: str) -> Format | None:
    """Return the format that a file's name indicates, or None if it is not supported."""
    path = PurePosixPath(without_options(name))
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = ""
    if suffixes and suffixes[-1] in COMPRESSIONS:
        compression = COMPRESSIONS[suffixes.pop()]
    suffix = suffixes[-1] if suffixes else ""
    is_text = suffix in DELIMITERS or suffix in JSON_LINES
    if is_text or (suffix == PARQUET and not compression):
        return Format(suffix, compression)
    return None


def without_options(uri: str) -> str:
    """Return a path or a URI without its query options."""
    return _split_options(uri)[0] if "://" in uri else uri


def list_files(source: str) -> list[SourceFile]:
    """Return the files of a source, sorted by name.

    Folders and globs skip names that begin with ``_`` or ``.``. Folders also skip files with unknown suffixes.

    Raises:
        InputError: If no files are found.
        OSError: If the files cannot be listed.
    """
    # Local file names may contain wildcard characters.
    place = stat(source) if "://" not in source else None
    glob = None if isinstance(place, SourceFile) else _parse_glob(source)
    if "://" in source and glob is None:
        place = stat(source)
    if isinstance(place, SourceFile):
        return [place]
    if place is not None:
        entries = []
        for entry in _list_folder(place, is_deep=False):
            is_hidden = entry.relative.startswith(("_", "."))
            if not is_hidden and format_of(entry.name):
                entries.append(entry)
        problem = f"{source}: the folder has no data files; allowed suffixes: {', '.join(SUFFIXES)}"
    elif glob:
        entries = _list_matches(glob)
        problem = f"{source}: no file matches this pattern"
    else:
        raise InputError(f"{source}: no such file or folder")
    if not entries:
        raise InputError(problem)
    entries.sort(key=lambda entry: entry.relative)
    return [_describe(entry.name, entry.info, entry.place) for entry in entries]


def stat(name: str) -> "SourceFile | _Place | None":
    """Return the file or the folder's :class:`_Place` at a path or a URI, or None if it does not exist."""
    import pyarrow.fs

    place = _locate(name)
    (info,) = place.filesystem.get_file_info([place.path])
    if info.type == pyarrow.fs.FileType.NotFound:
        return None
    if info.type == pyarrow.fs.FileType.Directory:
        return place
    if info.type != pyarrow.fs.FileType.File:  # reading a device or a pipe may never end
        raise InputError(f"{name}: not a regular file")
    return _describe(name, info, place)


@contextmanager
def unchanged(file: SourceFile) -> Iterator[None]:
    """Raise InputError if a file differs from its listing when the context starts or ends."""
    _compare(file)
    try:
        yield
    except Exception:
        _compare(file)  # report a changed file instead of the original error
        raise
    _compare(file)


def _compare(file: SourceFile) -> None:
    current = stat(file.name)
    if current is None:
        raise InputError(
            f"{file.name}: the file was removed while raysweep was reading it; prepare again"
        )
    if current != file:
        raise InputError(
            f"{file.name}: the file changed while raysweep was reading it; prepare again"
        )


@contextmanager
def stored(name: str) -> Iterator[Any]:
    """Open a file as a seekable binary stream, without decompressing it.

    Raises:
        OSError: If the file cannot be opened.
        InputError: If the scheme is unknown.
    """
    if "://" not in name:
        with expand_home(name).open("rb") as stream:
            yield stream
        return
    place = _locate(name)
    opened = (
        place.fsspec.open(place.path, "rb")
        if place.fsspec
        else place.filesystem.open_input_file(place.path)
    )
    with opened as stream:
        yield stream


@dataclass(frozen=True)
class _Place:
    """A path in a pyarrow file system; ``fsspec`` is the underlying fsspec file system, if any."""

    name: str
    filesystem: Any
    path: str
    fsspec: Any = None


class _Entry(NamedTuple):
    """A file, and its path relative to the listed folder."""

    relative: str
    name: str
    info: Any
    place: _Place


def _locate(name: str) -> _Place:
    """Return the file system of a path or a URI, and the path within it. Raises InputError for an unknown scheme."""
    import fsspec
    import pyarrow.fs

    if "://" not in name:
        return _Place(name, pyarrow.fs.LocalFileSystem(), str(expand_home(name)))
    plain, options = _split_options(name)
    scheme, _, address = plain.partition("://")
    if scheme in _BUCKET_SCHEMES:
        bucket, _, key = address.partition("/")
        path = f"{bucket}/{unquote(key)}".rstrip("/")
        variables = [item for item in os.environ.items() if item[0].startswith(_CLOUD_VARIABLES)]
        filesystem = _connect(f"{scheme}://{bucket}{options}", tuple(sorted(variables)))
        return _Place(name, filesystem, path)
    try:
        filesystem, path = pyarrow.fs.FileSystem.from_uri(name)
        return _Place(name, filesystem, path)
    except pa.ArrowInvalid:  # pyarrow does not support this URI
        pass
    try:
        filesystem, path = fsspec.core.url_to_fs(name)
    except (ImportError, ValueError) as error:
        raise InputError(f"{name}: cannot be opened: {error}") from None
    filesystem.invalidate_cache()  # earlier listings may be outdated
    wrapped = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(filesystem))
    return _Place(name, wrapped, path, filesystem)


@functools.lru_cache(maxsize=16)
def _connect(uri: str, environment: tuple[tuple[str, str], ...]) -> Any:
    """Return a client for a bucket. Clients are cached, because creating one may look up the region."""
    import pyarrow.fs

    is_gcs = uri.startswith(("gs://", "gcs://"))
    if is_gcs and "retry_limit_seconds=" not in uri:
        uri += f"{'&' if '?' in uri else '?'}retry_limit_seconds={_GCS_SECONDS}"
    return pyarrow.fs.FileSystem.from_uri(uri)[0]


def _list_matches(glob: "_Glob") -> list[_Entry]:
    import pyarrow.fs

    folder = _locate(glob.folder)
    filesystem = folder.filesystem
    if isinstance(filesystem, pyarrow.fs.LocalFileSystem):
        paths = _walk(folder.path, glob.max_depth)
        infos = filesystem.get_file_info(list(paths))
        entries = _entries(folder, infos)
    else:
        is_deep = glob.max_depth > 0
        entries = _list_folder(folder, is_deep=is_deep)
    return [entry for entry in entries if glob.matches(entry.relative)]


def _list_folder(folder: _Place, *, is_deep: bool) -> list[_Entry]:
    """Return the files in a folder and, with ``is_deep``, in all its subfolders."""
    import pyarrow.fs

    selector = pyarrow.fs.FileSelector(folder.path, recursive=is_deep, allow_not_found=True)
    return _entries(folder, folder.filesystem.get_file_info(selector))


def _walk(base: str, max_depth: float) -> Iterator[str]:
    """Yield the files below a local folder, following links, up to ``max_depth`` folders deep.

    If the depth is unlimited, each folder is visited only once, to avoid loops. The traversal is breadth-first, so that
    a folder is visited before deeper links to it.
    """
    visited = {os.path.realpath(base)}
    level = [base]
    depth = 0
    while level:
        deeper = []
        for folder in level:
            for entry in _scan(folder):
                path = f"{folder.rstrip('/')}/{entry.name}"
                if not Path(path).is_dir():
                    yield path
                    continue
                target = os.path.realpath(path)
                if math.isinf(max_depth) and target in visited:
                    continue
                visited.add(target)
                deeper.append(path)
        if depth >= max_depth:
            return
        level = deeper
        depth += 1


def _scan(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, sorted by name, or an empty list if the folder no longer exists."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _entries(folder: _Place, infos: list[Any]) -> list[_Entry]:
    import pyarrow.fs

    entries = []
    for info in infos:
        if info.type != pyarrow.fs.FileType.File:
            continue
        relative = info.path.removeprefix(folder.path.rstrip("/")).lstrip("/")
        if "://" in folder.name:
            plain, options = _split_options(folder.name)
            is_bucket = plain.partition("://")[0] in _BUCKET_SCHEMES
            # pyarrow accepts spaces only in bucket URIs
            safe = "/!$&'()*+,;=:@" + (" " if is_bucket else "")
            spelled = relative if folder.fsspec else quote(relative, safe=safe)
            name = f"{plain.rstrip('/')}/{spelled}{options}"
        else:
            name = str(Path(folder.path, relative))
        entries.append(_Entry(relative, name, info, folder))
    return entries


def _describe(name: str, info: Any, place: _Place) -> SourceFile:
    version = ""
    nanoseconds = info.mtime_ns
    if place.fsspec:
        facts = place.fsspec.info(info.path)
        versions = [facts[key] for key in _VERSION_KEYS if facts.get(key)]
        if versions:
            first = versions[0]
            version = first.isoformat() if isinstance(first, datetime) else str(first)
    elif nanoseconds is not None:
        if "://" in name:
            # some stores report times of single objects with lower precision than in listings
            nanoseconds -= nanoseconds % 10**9
        version = str(nanoseconds)
    num_bytes = -1 if info.size is None else info.size
    return SourceFile(name, num_bytes, version)


@dataclass(frozen=True)
class _Glob:
    """A pattern for paths below ``folder``, which contains no wildcards."""

    folder: str
    pattern: str
    expression: re.Pattern[str]

    @property
    def max_depth(self) -> float:
        """Return the maximum folder depth of matches; infinite if the pattern contains ``**``."""
        return math.inf if "**" in self.pattern else self.pattern.count("/")

    def matches(self, relative: str) -> bool:
        """Return whether a path below the folder matches.

        A path component that begins with ``_`` or ``.`` matches only if the pattern contains that character explicitly.
        """
        has_depth = math.isinf(self.max_depth) or relative.count("/") == self.max_depth
        is_match = has_depth and self.expression.match(relative) is not None
        return is_match and _hidden_marks(relative) == _hidden_marks(self.pattern)


def _hidden_marks(path: str) -> list[str]:
    """Return the first characters of the path components that begin with ``_`` or ``.``."""
    return [part[0] for part in path.split("/") if part.startswith(("_", "."))]


def _parse_glob(source: str) -> _Glob | None:
    """Parse a glob. Returns None for sources without wildcards and for HTTP URLs.

    Raises:
        InputError: If ``**`` is only part of a path component.
    """
    from fsspec.utils import glob_translate

    plain, options = _split_options(source) if "://" in source else (source, "")
    scheme, separator, path = plain.rpartition("://")
    wildcard = _WILDCARD.search(path)
    if scheme in ("http", "https") or not wildcard:
        return None
    folder, slash, _ = path[: wildcard.start()].rpartition("/")
    pattern = path[len(folder + slash) :]
    if not separator and not folder:
        folder = slash or "."
    try:
        expression = re.compile(glob_translate(pattern))
    except ValueError:
        raise InputError(
            f"{source}: ** is part of a name; allowed: folder/**/*.csv, folder/*.csv"
        ) from None
    uri = f"{scheme}{separator}{folder}{options}"
    return _Glob(uri, pattern, expression)


def _split_options(uri: str) -> tuple[str, str]:
    """Split a URI into an address and options, which start at ``?NAME=`` or, in HTTP URLs, at the first ``?``."""
    match = re.search(r"\?\w+=", uri)
    if uri.startswith(("http://", "https://")):
        match = re.search(r"\?", uri)
    return (uri[: match.start()], uri[match.start() :]) if match else (uri, "")
