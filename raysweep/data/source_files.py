"""The files of a source, listed once: a file, a folder or a glob, local or behind a URI.

A listing records what the storage reports about each file without reading it: the size, and a tag or the time of the
last change. Readers compare each file with its listing, so that they read exactly the listed version.
"""

import functools
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa

from raysweep.errors import InputError
from raysweep.storage.location import expanded

DELIMITERS = {".csv": ",", ".tsv": "\t"}


JSON_LINES = (".jsonl", ".ndjson")


PARQUET = ".parquet"


COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


_GCS_SECONDS = 60  # time limit for retries of one request; pyarrow's default is 15 minutes without any output
_CLOUD_VARIABLES = ("AWS_", "GOOGLE_")


_BUCKET_SCHEMES = ("s3", "gs", "gcs")


_VERSION_KEYS = (
    "ETag",
    "etag",
    "mtime",
    "LastModified",
    "last_modified",
    "created",
)  # names used by fsspec's file systems


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
    """A file's format: its suffix, and pyarrow's name of the compression, "" for none."""

    suffix: str
    compression: str


def format_of(name: str) -> Format | None:
    """Return the format of a file by its name, or None if it is not supported."""
    path = without_options(name)
    suffixes = [suffix.lower() for suffix in PurePosixPath(path).suffixes]
    last = suffixes.pop() if suffixes else ""
    compression = COMPRESSIONS.get(last, "")
    suffix = last
    if compression:
        suffix = suffixes.pop() if suffixes else ""
    if suffix in DELIMITERS or suffix in JSON_LINES or (suffix == PARQUET and not compression):
        return Format(suffix, compression)
    return None


def without_options(uri: str) -> str:
    """Return a path or a URI without the options that only describe how to access it."""
    return _split_options(uri)[0] if "://" in uri else uri


def list_files(source: str) -> list[SourceFile]:
    """Return the files of a path or a URI, sorted by name: the file itself, a folder's files, or a glob's matches.

    Names that begin with ``_`` or ``.`` are skipped in folders and glob matches. In folders, files without a known
    suffix are skipped too.

    Raises:
        InputError: If no file is left.
        OSError: If the files cannot be listed.
    """
    glob = _glob(source)
    found = None if glob and "://" in source else stat(source)  # the name of a local file may contain a wildcard
    if isinstance(found, SourceFile):
        return [found]
    if isinstance(found, _Place):
        inside = [file for file in _listed(found, is_deep=False) if not file.relative.startswith(("_", "."))]
        known = [file for file in inside if format_of(file.name)]
        return _sorted(known, f"{source}: no file in this folder ends in {known_suffixes()}")
    if not glob:
        raise InputError(f"{source}: no such file")
    base = _locate(glob.base)
    matching = [file for file in _below(base, glob) if glob.matches(file.relative)]
    return _sorted(matching, f"{source}: no file matches")


def known_suffixes() -> str:
    return ", ".join([*DELIMITERS, *JSON_LINES, PARQUET])


def stat(name: str) -> "SourceFile | _Place | None":
    """Return the current state of a path or a URI: a file, a folder as a place, or None if nothing exists there."""
    import pyarrow.fs

    place = _locate(name)
    (info,) = place.filesystem.get_file_info([place.path])
    if info.type == pyarrow.fs.FileType.NotFound:
        return None
    if info.type == pyarrow.fs.FileType.Directory:
        return place
    if info.type != pyarrow.fs.FileType.File:  # reading a device or a pipe may never end
        raise InputError(f"{name}: is no ordinary file")
    return _described(name, info, place)


@contextmanager
def unchanged(file: SourceFile) -> Iterator[None]:
    """Read a file in this context. Raises InputError if, before or after, it differs from the listing."""
    _compare(file)
    try:
        yield
    except Exception:
        _compare(file)  # if the file is still being written, report that instead
        raise
    _compare(file)


def _compare(file: SourceFile) -> None:
    now = stat(file.name)
    if now is None:
        raise InputError(f"{file.name}: no such file")
    if now != file:
        raise InputError(f"{file.name}: changed while it was read: prepare again")


@contextmanager
def stored(name: str) -> Iterator[Any]:
    """Open the file as stored, as a readable, seekable binary stream.

    Raises:
        OSError: If the file cannot be opened.
        InputError: If the scheme is unknown.
    """
    if "://" not in name:
        with expanded(name).open("rb") as stream:
            yield stream
        return
    place = _locate(name)
    opened = place.fsspec.open(place.path, "rb") if place.fsspec else place.filesystem.open_input_file(place.path)
    with opened as stream:
        yield stream


@dataclass(frozen=True)
class _Place:
    """A path in a pyarrow file system; ``fsspec`` is the underlying fsspec file system, if any."""

    name: str
    filesystem: Any
    path: str
    fsspec: Any = None


class _Listed(NamedTuple):
    """A file, and its path relative to the listed folder."""

    relative: str
    name: str
    info: Any
    place: _Place


def _locate(name: str) -> _Place:
    """Return the file system and path of a path or a URI. Raises InputError for an unknown scheme."""
    import pyarrow.fs

    if "://" not in name:
        return _Place(name, pyarrow.fs.LocalFileSystem(), str(expanded(name)))
    plain, options = _split_options(name)
    scheme, _, rest = plain.partition("://")
    if scheme in _BUCKET_SCHEMES:
        bucket, _, key = rest.partition("/")
        path = f"{bucket}/{unquote(key)}".rstrip("/")
        environment = tuple(sorted(item for item in os.environ.items() if item[0].startswith(_CLOUD_VARIABLES)))
        return _Place(name, _bucket_filesystem(f"{scheme}://{bucket}{options}", environment), path)
    try:
        filesystem, path = pyarrow.fs.FileSystem.from_uri(name)
    except pa.ArrowInvalid:  # a scheme or a form that pyarrow does not support
        return _locate_with_fsspec(name)
    return _Place(name, filesystem, path)


@functools.lru_cache(maxsize=16)
def _bucket_filesystem(uri: str, environment: tuple[tuple[str, str], ...]) -> Any:
    """Return a client for a bucket, cached while the environment is the same: creating one may look up the region."""
    import pyarrow.fs

    is_gcs = uri.startswith(("gs://", "gcs://"))
    if is_gcs and "retry_limit_seconds=" not in uri:
        uri += f"{'&' if '?' in uri else '?'}retry_limit_seconds={_GCS_SECONDS}"
    return pyarrow.fs.FileSystem.from_uri(uri)[0]


def _locate_with_fsspec(name: str) -> _Place:
    import fsspec
    import pyarrow.fs

    try:
        filesystem, path = fsspec.core.url_to_fs(name)
    except (ImportError, ValueError) as error:
        raise InputError(f"{name}: cannot be opened: {error}") from None
    filesystem.invalidate_cache()  # earlier listings may be outdated
    wrapped = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(filesystem))
    return _Place(name, wrapped, path, filesystem)


def _listed(folder: _Place, *, is_deep: bool) -> list[_Listed]:
    """Return the files in a folder; with ``is_deep``, also those in all folders below it."""
    import pyarrow.fs

    selector = pyarrow.fs.FileSelector(folder.path, recursive=is_deep, allow_not_found=True)
    return _files_of(folder, folder.filesystem.get_file_info(selector))


def _below(base: _Place, glob: "_Glob") -> list[_Listed]:
    """Return the files that a glob may match. Local links are followed without looping."""
    import pyarrow.fs

    if not isinstance(base.filesystem, pyarrow.fs.LocalFileSystem):
        return _listed(base, is_deep=glob.is_deep)
    paths = list(_walk(base.path, None if "**" in glob.pattern else glob.pattern.count("/")))
    return _files_of(base, base.filesystem.get_file_info(paths))


def _walk(base: str, most_folders: int | None) -> Iterator[str]:
    """Yield the files below a folder, up to ``most_folders`` levels deep; if it is None, visit every folder once."""
    seen = {os.path.realpath(base)}
    folders, depth = [base], 0
    while folders:
        paths = [path for folder in folders for path in _paths_in(folder)]
        inside = list(filter(os.path.isdir, paths))
        yield from set(paths).difference(inside)
        if depth == most_folders:
            return
        folders = _not_seen(inside, seen) if most_folders is None else inside
        depth += 1


def _not_seen(folders: list[str], seen: set[str]) -> list[str]:
    """Return the folders not yet seen under another name, each once, and mark them as seen."""
    new = []
    for folder in folders:
        place = os.path.realpath(folder)
        if place not in seen:
            seen.add(place)
            new.append(folder)
    return new


def _paths_in(folder: str) -> list[str]:
    """Return the paths in a folder, sorted by name, or nothing if the folder does not exist."""
    try:
        with os.scandir(folder) as found:
            return sorted(entry.path for entry in found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _files_of(folder: _Place, infos: Iterable[Any]) -> list[_Listed]:
    import pyarrow.fs

    found = []
    for info in infos:
        if info.type == pyarrow.fs.FileType.File:
            relative = info.path[len(folder.path.rstrip("/")) :].lstrip("/")
            found.append(_Listed(relative, _join(folder, relative), info, folder))
    return found


def _join(folder: _Place, relative: str) -> str:
    """Return the name of a file in a folder: a path, or a URI with the folder's options."""
    if "://" not in folder.name:
        return str(Path(folder.path, relative))
    plain, options = _split_options(folder.name)
    is_bucket = plain.partition("://")[0] in _BUCKET_SCHEMES
    safe = "/!$&'()*+,;=:@" + (" " if is_bucket else "")  # pyarrow rejects other URIs with spaces
    spelled = relative if folder.fsspec else quote(relative, safe=safe)
    return f"{plain.rstrip('/')}/{spelled}{options}"


def _sorted(listed: list[_Listed], problem: str) -> list[SourceFile]:
    if not listed:
        raise InputError(problem)
    by_name = sorted(listed, key=lambda file: file.relative)
    return [_described(file.name, file.info, file.place) for file in by_name]


def _described(name: str, info: Any, place: _Place) -> SourceFile:
    nanoseconds = info.mtime_ns
    if nanoseconds is not None and "://" in name:
        nanoseconds -= nanoseconds % 10**9  # some stores report less precise times for one object than in listings
    version = "" if nanoseconds is None else str(nanoseconds)
    if place.fsspec:
        told = place.fsspec.info(info.path)
        versions = [_as_version(told[key]) for key in _VERSION_KEYS if told.get(key)]
        version = versions[0] if versions else ""
    return SourceFile(name, -1 if info.size is None else info.size, version)


def _as_version(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


@dataclass(frozen=True)
class _Glob:
    """A pattern for paths below the folder ``base``, which contains no wildcards."""

    base: str
    pattern: str

    @property
    def is_deep(self) -> bool:
        return "/" in self.pattern or "**" in self.pattern

    def matches(self, relative: str) -> bool:
        """Return whether a path below ``base`` matches.

        A part that begins with ``_`` or ``.`` matches only if the pattern spells out that character.
        """
        if not _expression(self.pattern).fullmatch(relative):
            return False
        given = [part[0] for part in self.pattern.split("/") if part[:1] in ("_", ".")]
        hidden = [part[0] for part in relative.split("/") if part[:1] in ("_", ".")]
        return hidden == given


def _glob(source: str) -> _Glob | None:
    """Return the source as a glob if it has a wildcard, else None. Web addresses never have wildcards."""
    plain, options = _split_options(source) if "://" in source else (source, "")
    scheme, separator, path = plain.rpartition("://")
    if scheme in ("http", "https") or not re.search(r"[*?\[]", path):
        return None
    parts = path.split("/")
    first = next(i for i, part in enumerate(parts) if re.search(r"[*?\[]", part))
    base = "/".join(parts[:first])
    if not separator:
        base = base or ("/" if path.startswith("/") else ".")
    return _Glob(f"{scheme}{separator}{base}{options}", "/".join(parts[first:]))


@functools.lru_cache(maxsize=16)
def _expression(pattern: str) -> re.Pattern[str]:
    """Return a glob as a regular expression: ``**`` crosses folders; ``*``, ``?`` and ``[...]`` stay within a name."""
    tokens = re.findall(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|.", pattern, re.DOTALL)
    try:
        return re.compile("".join(map(_translated, tokens)), re.DOTALL)
    except re.error:
        raise InputError(f"{pattern}: the characters in its brackets are none, such as [z-a]; allowed: [a-z]") from None


def _translated(token: str) -> str:
    match token:
        case "**/":
            return "(?:[^/]+/)*"
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
    if len(token) > 1:
        negated = "^/" if token[1] == "!" else ""
        characters = token[2 if negated else 1 : -1].replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]")
        return f"[{negated}{characters}]"
    return re.escape(token)


def _split_options(uri: str) -> tuple[str, str]:
    """Split a URI before its options, which start at a question mark followed by a name and an equals sign."""
    match = re.search(r"\?\w+=", uri)
    if uri.startswith(("http://", "https://")):
        match = re.search(r"\?", uri)
    return (uri[: match.start()], uri[match.start() :]) if match else (uri, "")
