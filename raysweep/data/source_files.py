"""Listing of a source's files. A source is a file, a folder or a glob, given as a local path or a URI.

Files are listed once, without reading them. For each file, a listing records the size, and a tag or the modification
time, as reported by the storage. Readers compare each file with its listing, so that they read exactly the listed
version.
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

# time limit for retries of one request; pyarrow's default is 15 minutes without any output
_GCS_SECONDS = 60
_CLOUD_VARIABLES = ("AWS_", "GOOGLE_")
_BUCKET_SCHEMES = ("s3", "gs", "gcs")
# keys under which fsspec's file systems report a tag or a time
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
    """A file as listed. ``version``, a tag or a time, changes with the content; "" if the storage reports neither."""

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
    """A file's format: its suffix, and pyarrow's name for the compression, or "" for none."""

    suffix: str
    compression: str


def format_of(name: str) -> Format | None:
    """Return a file's format according to its name, or None if the format is not supported."""
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
    """Return a path or a URI without its options, which only describe how to access the file."""
    return _split_options(uri)[0] if "://" in uri else uri


def list_files(source: str) -> list[SourceFile]:
    """Return the files at a path or a URI, sorted by name: the file itself, a folder's files, or a glob's matches.

    Names that begin with ``_`` or ``.`` are skipped in folders and glob matches. In folders, files without a known
    suffix are skipped too.

    Raises:
        InputError: If no file remains.
        OSError: If the files cannot be listed.
    """
    # the name of a local file may contain a wildcard
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
    """Return what currently exists at a path or a URI: a file, the :class:`_Place` of a folder, or None."""
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
    """Raise InputError if a file differs from its listing before or after it is read in this context."""
    _compare(file)
    try:
        yield
    except Exception:
        _compare(file)  # if the file is still being written, report that instead
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
    """Open the file as stored, as a readable, seekable binary stream.

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
    """A listed file, and its path relative to the listed folder."""

    relative: str
    name: str
    info: Any
    place: _Place


def _locate(name: str) -> _Place:
    """Return the file system for a path or a URI, and the path in it. Raises InputError for an unknown scheme."""
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
    except pa.ArrowInvalid:  # pyarrow does not support the scheme or the form
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
    """Return a client for a bucket, cached per environment because creating a client may look up the region."""
    import pyarrow.fs

    is_gcs = uri.startswith(("gs://", "gcs://"))
    if is_gcs and "retry_limit_seconds=" not in uri:
        uri += f"{'&' if '?' in uri else '?'}retry_limit_seconds={_GCS_SECONDS}"
    return pyarrow.fs.FileSystem.from_uri(uri)[0]


def _list_matches(glob: "_Glob") -> list[_Entry]:
    """Return the files that match a glob."""
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
    """Return the files in a folder; with ``is_deep``, also those in all folders below it."""
    import pyarrow.fs

    selector = pyarrow.fs.FileSelector(folder.path, recursive=is_deep, allow_not_found=True)
    return _entries(folder, folder.filesystem.get_file_info(selector))


def _walk(base: str, max_depth: float) -> Iterator[str]:
    """Yield the files below a local folder, following links, up to ``max_depth`` folders deep.

    If the depth is unlimited, each folder is visited once, so a link to an enclosing folder does not cause a loop.
    Folders are visited level by level, so a folder itself comes before deeper links to it.
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
    """Return the entries of a folder, sorted by name; empty if the folder has since been removed."""
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
            # some stores report less precise times for single objects than in listings
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
        """Return how many folders deep a match can be; infinite if the pattern has ``**``."""
        return math.inf if "**" in self.pattern else self.pattern.count("/")

    def matches(self, relative: str) -> bool:
        """Return whether a path below the folder matches.

        A part that begins with ``_`` or ``.`` matches only if the pattern spells out that character.
        """
        has_depth = math.isinf(self.max_depth) or relative.count("/") == self.max_depth
        is_match = has_depth and self.expression.match(relative) is not None
        return is_match and _hidden_marks(relative) == _hidden_marks(self.pattern)


def _hidden_marks(path: str) -> list[str]:
    """Return the first characters of the parts that begin with ``_`` or ``.``."""
    return [part[0] for part in path.split("/") if part.startswith(("_", "."))]


def _parse_glob(source: str) -> _Glob | None:
    """Return the source as a glob if it has a wildcard, else None. Web addresses never have wildcards.

    Raises:
        InputError: If ``**`` is only part of a name.
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
    """Split a URI before its options, which start at ``?NAME=``, or in web addresses at any question mark."""
    match = re.search(r"\?\w+=", uri)
    if uri.startswith(("http://", "https://")):
        match = re.search(r"\?", uri)
    return (uri[: match.start()], uri[match.start() :]) if match else (uri, "")
