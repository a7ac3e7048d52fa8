"""The files that a source names, listed once: a file, a folder or a glob, of this machine or behind a URI.

A listing says of each file what its storage tells without reading it: the size, and a tag or the time of the last change.
Whoever reads a file compares it with the listing, so that what is read is what was listed.
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


_GCS_SECONDS = 60  # of tries of one request; pyarrow's own 15 minutes pass without a word
_CLOUD_VARIABLES = ("AWS_", "GOOGLE_")


_BUCKET_SCHEMES = ("s3", "gs", "gcs")


_VERSION_KEYS = (
    "ETag",
    "etag",
    "mtime",
    "LastModified",
    "last_modified",
    "created",
)  # as fsspec's file systems name it


@dataclass(frozen=True)
class SourceFile:
    """A file as it was listed. ``version`` changes with the content: a tag or a time, "" where the storage tells neither."""

    name: str
    num_bytes: int
    version: str

    @property
    def is_recognised(self) -> bool:
        """Whether size and version say that it is still the same."""
        return bool(self.version)

    @property
    def is_local(self) -> bool:
        return "://" not in self.name or self.name.startswith("file://")


class Format(NamedTuple):
    """The suffix that names a file's format, and pyarrow's name of the compression, "" for none."""

    suffix: str
    compression: str


def format_of(name: str) -> Format | None:
    """The format of a file by its name; None for one that no source has."""
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
    """A path or a URI without what only says how to get there."""
    return _split_options(uri)[0] if "://" in uri else uri


def list_files(source: str) -> list[SourceFile]:
    """The files of a path or a URI, by name: the file itself, those that lie in the folder, or those that match the glob.

    Of a folder, and of what a glob matches, names that begin with ``_`` or ``.`` are left out, and of a folder those
    without a known suffix. InputError where no file is left; OSError for what cannot be listed.
    """
    glob = _glob(source)
    found = None if glob and "://" in source else stat(source)  # a path may have a wildcard's character in its name
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
    """What lies at a path or a URI now: a file, a folder as a place, or nothing."""
    import pyarrow.fs

    place = _locate(name)
    (info,) = place.filesystem.get_file_info([place.path])
    if info.type == pyarrow.fs.FileType.NotFound:
        return None
    if info.type == pyarrow.fs.FileType.Directory:
        return place
    if info.type != pyarrow.fs.FileType.File:  # a device or a pipe would be read without end
        raise InputError(f"{name}: is no ordinary file")
    return _described(name, info, place)


@contextmanager
def unchanged(file: SourceFile) -> Iterator[None]:
    """Read a file in this context: InputError where it is not, before and after, what was listed."""
    _compare(file)
    try:
        yield
    except Exception:
        _compare(file)  # what is wrong with a file that is still being written is just that
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
    """The file's bytes as stored: a readable, seekable binary stream. Raises OSError, InputError for an odd scheme."""
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
    """A path within a file system of pyarrow's; ``fsspec`` is the file system of fsspec's behind it, if there is one."""

    name: str
    filesystem: Any
    path: str
    fsspec: Any = None


class _Listed(NamedTuple):
    """A file, and its path within the folder that was listed."""

    relative: str
    name: str
    info: Any
    place: _Place


def _locate(name: str) -> _Place:
    """Find the file system of a path or a URI. InputError for a scheme that nobody knows."""
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
    except pa.ArrowInvalid:  # a scheme, or a spelling, that pyarrow does not know
        return _locate_with_fsspec(name)
    return _Place(name, filesystem, path)


@functools.lru_cache(maxsize=16)
def _bucket_filesystem(uri: str, environment: tuple[tuple[str, str], ...]) -> Any:
    """A client for a bucket, kept as long as the environment stays, since making one may ask where the bucket lies."""
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
    filesystem.invalidate_cache()  # what it has listed before may have changed
    wrapped = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(filesystem))
    return _Place(name, wrapped, path, filesystem)


def _listed(folder: _Place, *, is_deep: bool) -> list[_Listed]:
    """The files in a folder, or also those in all folders below it."""
    import pyarrow.fs

    selector = pyarrow.fs.FileSelector(folder.path, recursive=is_deep, allow_not_found=True)
    return _files_of(folder, folder.filesystem.get_file_info(selector))


def _below(base: _Place, glob: "_Glob") -> list[_Listed]:
    """The files that a glob may match. Links of this machine are followed, and lead to no folder again and again."""
    import pyarrow.fs

    if not isinstance(base.filesystem, pyarrow.fs.LocalFileSystem):
        return _listed(base, is_deep=glob.is_deep)
    paths = list(_walk(base.path, None if "**" in glob.pattern else glob.pattern.count("/")))
    return _files_of(base, base.filesystem.get_file_info(paths))


def _walk(base: str, most_folders: int | None) -> Iterator[str]:
    """The files below a folder, through so many folders at most, or, where that is None, through each folder once."""
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
    """Those that were not seen under another name, each once; they count as seen from now on."""
    new = []
    for folder in folders:
        place = os.path.realpath(folder)
        if place not in seen:
            seen.add(place)
            new.append(folder)
    return new


def _paths_in(folder: str) -> list[str]:
    """What lies in a folder, by name; nothing in one that is not there."""
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
    """The name of a file in a folder: a path, or a URI with the folder's options."""
    if "://" not in folder.name:
        return str(Path(folder.path, relative))
    plain, options = _split_options(folder.name)
    is_bucket = plain.partition("://")[0] in _BUCKET_SCHEMES
    safe = "/!$&'()*+,;=:@" + (" " if is_bucket else "")  # pyarrow takes no URI with a space in it
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
        nanoseconds -= nanoseconds % 10**9  # some stores tell less of one object's time than when they list many
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
    """A pattern of paths below the folder ``base``, which has no wildcard."""

    base: str
    pattern: str

    @property
    def is_deep(self) -> bool:
        return "/" in self.pattern or "**" in self.pattern

    def matches(self, relative: str) -> bool:
        """Whether a path below ``base`` matches, and is hidden only as far as the pattern says so itself."""
        if not _expression(self.pattern).fullmatch(relative):
            return False
        given = [part[0] for part in self.pattern.split("/") if part[:1] in ("_", ".")]
        hidden = [part[0] for part in relative.split("/") if part[:1] in ("_", ".")]
        return hidden == given


def _glob(source: str) -> _Glob | None:
    """The source as a glob, if it has a wildcard. Web addresses have none."""
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
    """A glob as a regular expression: ``**`` goes through folders, ``*``, ``?`` and ``[...]`` stay within a name."""
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
    """A URI and its options, which begin at a question mark that a name and an equals sign follow."""
    match = re.search(r"\?\w+=", uri)
    if uri.startswith(("http://", "https://")):
        match = re.search(r"\?", uri)
    return (uri[: match.start()], uri[match.start() :]) if match else (uri, "")
