"""Streaming of labeled sentences from any source, in bounded memory.

A source is one of these strings, or a list of them:

``demo``                the built-in sentences of :mod:`raysweep.data.demo`, with the splits ``train`` and ``test``
``hub:NAME[:SPLIT]``    a dataset on the Hugging Face Hub, see :mod:`raysweep.data.hub`
a path or a URI         a file, a folder or a glob, see :mod:`raysweep.data.source_files`

Rows are numbered from 1 in each file, excluding the header and blank lines. Texts are used verbatim: a CSV cell ``NA``
or ``null`` is an ordinary text. Labels become strings in Unicode form NFC, without surrounding whitespace. Numbers
and booleans are normalized: ``1``, ``+1``, ``1.0`` and ``1e+0`` become "1", ``-0.0`` becomes "0", ``True`` becomes
"true", and a float32 of 0.1 becomes "0.1". The strings ``007`` and ``2.50`` keep their zeros, because they may be names.
"""

import errno
import hashlib
import itertools
import json
import math
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from unicodedata import normalize

import numpy as np
import pyarrow as pa

from raysweep.data import demo, files, hub
from raysweep.data.bad_rows import BadRows
from raysweep.data.source_files import (
    PARQUET,
    SourceFile,
    list_files,
    stored,
    unchanged,
    without_options,
)
from raysweep.errors import InputError
from raysweep.output import counted
from raysweep.storage import location
from raysweep.storage.bucket import StorageError
from raysweep.storage.folder import open_folder
from raysweep.storage.scratch import cache_folder

PAUSES = (1.0, 4.0, 16.0)  # seconds before each retry of a failed remote read
SHARE_BYTES = 2**26  # larger Parquet files are split among workers
LARGE_BYTES = 2**26  # hashes of local files of at least this size are cached
SETTLED_SECONDS = 10.0  # more recently changed files may change again with the same size and time
# messages of pyarrow's OSErrors for damaged files
_DAMAGED = re.compile("inflate failed|decompress failed|Truncated compressed stream")
MAX_SHOWN = 3  # maximum number of list entries shown in messages
# whitespace, including zero-width characters
_SURROUNDING = re.compile(r"^[\s\u200b\ufeff]+|[\s\u200b\ufeff]+$")
_WHOLE = re.compile(r"[+-]?[0-9]+(\.0*)?")
_DECIMAL = re.compile(r"(?P<sign>[+-]?)(?P<whole>[0-9]*)\.(?P<fraction>[0-9]+)")
# The exponent must have a sign, because a label such as 1e5 may be a code.
_EXPONENTIAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-][0-9]+")

Source = str | Sequence[str]
"""The value of ``data.train``, ``data.dev`` or ``data.test``."""


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of a file, at most several thousand. ``first_row`` counts from 1.

    ``spellings`` are the labels as written in the file.
    """

    name: str  # name of the file, or of the source if it is not a file
    first_row: int
    texts: list[str]
    labels: list[str]
    spellings: list[str]


@dataclass(frozen=True)
class Piece:
    """A part of a source: a listed file, or a ``demo`` or Hub dataset with its subset and split.

    If ``groups`` is set, the piece contains only these row groups of the file.
    """

    name: str
    file: SourceFile | None
    subset: str | None
    split: str
    groups: files.RowGroups | None = None


def shown(source: Source) -> str:
    """Return the source as shown in messages."""
    if isinstance(source, str):
        return source
    first = ", ".join(source[:MAX_SHOWN])
    return first if len(source) <= MAX_SHOWN else f"{first} and {len(source) - MAX_SHOWN} more"


def no_rows(source: Source) -> InputError:
    """Return the error for a source without rows."""
    return InputError(
        f"{shown(source)}: no rows; at least one row with a text and a label is required"
    )


def pieces(source: Source, *, subset: str | None = None, split: str = "train") -> list[Piece]:
    """List the pieces of a source in reading order, without opening any file.

    ``split`` is used for ``demo`` and for Hub sources that do not specify a split. ``subset`` is the configuration name
    on the Hub.

    Raises:
        InputError: If a file is missing, cannot be listed or has an unknown format.
    """
    entries = [source] if isinstance(source, str) else source
    listed: list[Piece] = []
    for entry in entries:
        if entry == "demo" or entry.startswith("hub:"):
            listed.append(Piece(entry, None, subset, split))
            continue
        if location.is_uri(entry):
            try:
                location.reject_keys(entry)
            except ValueError as error:
                raise InputError(str(error)) from None
        with _readable(entry):
            source_files = list_files(entry)
        for file in source_files:
            files.check_format(file.name)
            listed.append(Piece(file.name, file, None, ""))
    return listed


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Convert library exceptions to InputError while a source is read."""
    try:
        yield
    except InputError:
        raise
    except (OSError, EOFError, UnicodeError, OverflowError, pa.ArrowException) as error:
        raise _unreadable(name, error) from None
    except Exception as error:
        if location.is_uri(name):  # fsspec's backends can raise any exception
            raise _unreadable(name, error) from None
        raise


def check(
    source: Source, text_column: str = "text", label_column: str = "label", *, split: str = "train"
) -> None:
    """Check that a source exists and that its first rows are valid. The Hub is not contacted.

    Raises:
        InputError: If the source is missing or its first rows are invalid.
    """
    check_first(pieces(source, split=split), text_column, label_column)


def check_first(
    listed: Sequence[Piece], text_column: str, label_column: str, bad_rows: BadRows | None = None
) -> None:
    """Check listed pieces like :func:`check`. ``bad_rows`` collects bad rows, as in :func:`read_piece`."""
    first = listed[0]
    if first.name.startswith("hub:"):
        hub.parse(first.name, first.split)
    else:
        next(read_pieces(listed, text_column, label_column, bad_rows))


def read(
    source: Source, text_column: str = "text", label_column: str = "label", *, split: str = "train"
) -> Iterator[Batch]:
    """Stream the rows of a source in order. See :func:`pieces` and :func:`read_pieces` for the parameters."""
    yield from read_pieces(pieces(source, split=split), text_column, label_column)


def read_pieces(
    listed: Sequence[Piece],
    text_column: str = "text",
    label_column: str = "label",
    bad_rows: BadRows | None = None,
) -> Iterator[Batch]:
    """Stream the rows of pieces in order. ``bad_rows`` collects bad rows, as in :func:`read_piece`.

    Raises:
        InputError: If a row has no valid text or label, if a file is missing, unreadable or has changed since it was
            listed, or if there are no rows.
    """
    is_empty = True
    for piece in listed:
        for batch in read_piece(piece, text_column, label_column, bad_rows):
            yield batch
            is_empty = False
    if is_empty:
        raise no_rows([piece.name for piece in listed])


def column_names(piece: Piece) -> list[str]:
    """Return the columns of a piece. Raises InputError if it cannot be read."""
    if piece.name == "demo":
        return ["text", "label"]
    if piece.file is None:
        return hub.column_names(piece.name, piece.subset, piece.split)
    with _readable(piece.name):
        return files.column_names(piece.name)


def read_values(piece: Piece, columns: tuple[str, ...]) -> files.Blocks:
    """Stream the raw values of some columns of a piece. For ``demo``, any column names are accepted.

    Raises:
        InputError: If the piece cannot be read or lacks a column.
    """
    with _readable(piece.name):
        yield from _persistent_blocks(piece, columns)


def lines(piece: Piece) -> Iterator[str]:
    """Stream the lines of a text file, without line endings. Raises InputError if it cannot be read."""
    with _readable(piece.name):
        yield from files.lines(piece.name)


def read_piece(
    piece: Piece,
    text_column: str = "text",
    label_column: str = "label",
    bad_rows: BadRows | None = None,
) -> Iterator[Batch]:
    """Stream the rows of one piece. Raises InputError like :func:`read_pieces`, but not for an empty piece.

    Without ``bad_rows``, the first bad row raises an error immediately. Otherwise, all bad rows are collected in
    ``bad_rows`` and dropped if ``bad_rows.is_dropped`` is True; if it is False, an error is raised at the end.
    """
    columns = (text_column, label_column)
    if text_column == label_column:
        raise InputError(
            f"text_column and label_column are both {text_column!r}; required: two different columns"
        )
    first_row = piece.groups.first_row if piece.groups else 1
    try:
        with _readable(piece.name):
            for texts, labels in _persistent_blocks(piece, columns):
                try:
                    batches = [make_batch(piece.name, first_row, texts, labels, columns)]
                except InputError:
                    if bad_rows is None:
                        raise
                    batches = list(
                        _good_batches(piece.name, first_row, (texts, labels), columns, bad_rows)
                    )
                if bad_rows is None or bad_rows.is_dropped or not bad_rows.count:
                    yield from batches
                first_row += len(texts)
    except files.ColumnError as error:
        raise InputError(
            f"{error}; set text_column and label_column to the columns to read"
        ) from None
    if bad_rows is not None:
        bad_rows.check()


def _good_batches(
    name: str,
    first_row: int,
    block: tuple[list[Any], list[Any]],
    columns: tuple[str, str],
    bad_rows: BadRows,
) -> Iterator[Batch]:
    """Yield a batch for each run of good rows in a block, and add the bad rows to ``bad_rows``."""
    texts, labels = block
    start = 0
    for end in range(len(texts) + 1):
        row = first_row + end
        if end < len(texts):
            try:
                make_batch(name, row, texts[end : end + 1], labels[end : end + 1], columns)
            except InputError as error:
                bad_rows.add(row, error)
            else:
                continue
        if start < end:
            yield make_batch(name, first_row + start, texts[start:end], labels[start:end], columns)
        start = end + 1


def share_out(piece: Piece) -> list[Piece]:
    """Split a large Parquet file into pieces for several workers. Other pieces are returned unchanged.

    Raises:
        InputError: If the piece cannot be read or differs from its listing.
    """
    file = piece.file
    is_large = file is not None and file.num_bytes > SHARE_BYTES
    if file is None or not is_large or files.check_format(file.name).suffix != PARQUET:
        return [piece]
    with _readable(piece.name), unchanged(file):
        shares = files.share_out(file.name, SHARE_BYTES)
    return [replace(piece, groups=groups) for groups in shares] or [piece]


def fingerprint(
    listed: Sequence[Piece], text_column: str = "text", label_column: str = "label"
) -> str:
    """Return the SHA-256 of the listed pieces, in hex.

    - For a single local file, the bytes are hashed. The hash of a large file is cached.
    - For several files or remote files, their names, sizes, and tags or modification times are hashed.
    - For ``demo``, the Hub, and files without a tag or a modification time, the rows or bytes are hashed.

    The fingerprint does not include the column names.

    Raises:
        InputError: If a piece cannot be read.
    """
    digest = hashlib.sha256()
    if len(listed) == 1:
        (piece,) = listed
        file = piece.file
        if file is not None and not location.is_uri(file.name) and file.num_bytes >= LARGE_BYTES:
            return _cached_digest(file)
        if file is None or file.is_local or not file.is_recognized:
            _hash_content(piece, digest, text_column, label_column)
            return digest.hexdigest()
    for piece in listed:
        file = piece.file
        if file is not None and file.is_recognized:
            _hash_line([without_options(file.name), file.num_bytes, file.version], digest)
        else:
            _hash_line([piece.name], digest)
            _hash_content(piece, digest, text_column, label_column)
    return digest.hexdigest()


def _cached_digest(file: SourceFile) -> str:
    """Return the SHA-256 of a local file, cached by path, size and modification time."""
    path = location.expand_home(file.name).absolute()
    identity = json.dumps([str(path), file.num_bytes, file.version])
    name = hashlib.sha256(identity.encode()).hexdigest()
    folder = cache_folder() / "digests"
    cache = open_folder(folder)
    with suppress(OSError, UnicodeDecodeError):
        (content,) = cache.read([name])
        text = content.decode()
        if re.fullmatch("[0-9a-f]{64}", text):  # a power failure may have truncated it
            return text
    digest = hashlib.sha256()
    _hash_file(file, digest)
    text = digest.hexdigest()
    changed_at = path.stat().st_mtime
    age_seconds = time.time() - changed_at
    if age_seconds > SETTLED_SECONDS:
        with suppress(OSError):  # the cache is optional
            cache.put(name, text.encode())
    return text


def values_fingerprint(listed: Sequence[Piece], columns: tuple[str, ...]) -> str:
    """Return the SHA-256 of the values of some columns, in hex. Raises InputError if a piece cannot be read."""
    digest = hashlib.sha256()
    for piece in listed:
        for block in read_values(piece, columns):
            for row in zip(*block, strict=True):
                _hash_line([*map(repr, row)], digest)
    return digest.hexdigest()


def _hash_content(piece: Piece, digest: Any, text_column: str, label_column: str) -> None:
    if piece.file is not None:
        _hash_file(piece.file, digest)
        return
    for batch in read_piece(piece, text_column, label_column, BadRows(is_dropped=True)):
        for row in zip(batch.texts, batch.labels, strict=True):
            _hash_line(row, digest)


def _hash_line(values: Sequence[Any], digest: Any) -> None:
    line = json.dumps(values) + "\n"
    digest.update(line.encode())


def _hash_file(file: SourceFile, digest: Any) -> None:
    with _readable(file.name), unchanged(file), stored(file.name) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)


def _persistent_blocks(piece: Piece, columns: tuple[str, ...]) -> files.Blocks:
    """Yield the blocks of a piece, retrying failed remote reads.

    Each retry reads the file from the start and skips the blocks that were already yielded.
    """
    num_yielded = 0
    for seconds in (*PAUSES, None):
        try:
            for block in itertools.islice(_read_blocks(piece, columns), num_yielded, None):
                yield block
                num_yielded += 1
            return
        except Exception as error:
            if seconds is None or not _may_pass(piece.name, error):
                raise
            time.sleep(seconds)


def _may_pass(name: str, error: Exception) -> bool:
    """Return whether a read error may be transient.

    For remote files, all errors except known permanent ones count as transient, because fsspec's backends can raise any
    exception.
    """
    permanent = (InputError, FileNotFoundError, PermissionError, EOFError, pa.ArrowException)
    is_permanent = isinstance(error, permanent) or _DAMAGED.search(str(error)) is not None
    return location.is_uri(name) and not is_permanent


def _read_blocks(piece: Piece, columns: tuple[str, ...]) -> files.Blocks:
    if piece.name == "demo":
        train, test = demo.generate()
        splits = {"train": train, "test": test}
        if piece.split not in splits:
            raise InputError(f"demo: split is {piece.split!r}; allowed: train, test")
        rows = splits[piece.split]
        texts = [row.text for row in rows]
        labels = [row.label for row in rows]
        yield (texts, labels)[: len(columns)]
    elif piece.file is None:
        yield from hub.read(piece.name, columns, piece.subset, piece.split)
    else:
        with unchanged(piece.file):
            yield from files.read(piece.name, columns, piece.groups)


def _unreadable(source: str, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"{source}: no such file or folder")
    reason = (
        isinstance(error, OSError) and error.strerror
    ) or error  # str(error) would repeat the file's name
    if _may_pass(source, error):  # callers treat a StorageError as transient
        return StorageError(errno.EIO, f"cannot be read: {reason}", source)
    return InputError(f"{source}: cannot be read: {reason}")


def make_batch(
    source: str, first_row: int, texts: list[Any], raw_labels: list[Any], columns: tuple[str, str]
) -> Batch:
    """Create a batch. Raises InputError if a row has no valid text or label."""
    text_column, label_column = columns
    check_texts(source, first_row, texts, text_column)
    labels = []
    cached_labels: dict[str, str] = {}  # there are few distinct labels
    for row, value in enumerate(raw_labels, first_row):
        if not isinstance(value, str):
            label = _parse_label(value)
        elif value in cached_labels:
            label = cached_labels[value]
        else:
            label = cached_labels[value] = _parse_string_label(value)
        if not label:
            raise InputError(
                f"{source}: row {row}: column {label_column!r} is {value!r}; allowed: a label (a non-empty string, a number "
                "or a boolean)"
            )
        labels.append(label)
    _check_encodable(source, first_row, labels, label_column)
    return Batch(source, first_row, texts, labels, list(map(str, raw_labels)))


def describe_merged_labels(labels: Iterable[tuple[str, str]]) -> str:
    """Return a warning about labels with several spellings, or "" if there are none.

    Args:
        labels: Pairs of a label and one of its spellings.
    """
    spellings: dict[str, set[str]] = defaultdict(set)
    for label, spelling in labels:
        spellings[label].add(spelling)
    merged = [label for label in spellings if len(spellings[label]) > 1]
    if not merged:
        return ""
    num_spellings = sum(len(spellings[label]) for label in merged)
    names = ", ".join(map(repr, merged[:MAX_SHOWN]))
    more = ", ..." if len(merged) > MAX_SHOWN else ""
    return (
        f"labels: merged {num_spellings} spellings into {counted(len(merged), 'label')} ({names}{more}); the spellings "
        "differ only in Unicode form, surrounding spaces, or how a number or boolean is written"
    )


def check_texts(source: str, first_row: int, texts: list[Any], text_column: str) -> None:
    """Raise InputError unless all values of a column, starting at row ``first_row``, are non-empty texts."""
    for row, text in enumerate(texts, first_row):
        is_text = isinstance(text, str)
        if is_text and text.strip():
            continue
        if is_text:
            problem = f"is {text!r}; allowed: a non-empty text"
        elif text is None or text != text:  # only NaN differs from itself
            problem = "is missing; allowed: a non-empty text"
        else:
            problem = f"is {text!r} ({type(text).__name__}); allowed: a string"
        raise InputError(f"{source}: row {row}: column {text_column!r} {problem}")
    _check_encodable(source, first_row, texts, text_column)


def _check_encodable(source: str, first_row: int, values: list[str], column: str) -> None:
    """Raise InputError if a value cannot be encoded in UTF-8."""
    try:
        "".join(values).encode()
    except UnicodeEncodeError as error:  # JSON can contain unpaired surrogates: "\ud83d"
        ends = itertools.accumulate(map(len, values))
        row = next(row for row, end in enumerate(ends, first_row) if error.start < end)
        half = error.object[error.start]
        raise InputError(
            f"{source}: row {row}: column {column!r} contains {half!r}, an unpaired surrogate; allowed: valid Unicode"
        ) from None


def _parse_label(value: Any) -> str:
    """Return the label's canonical name, or "" for null, NaN, infinity, bytes, lists and objects."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float | Decimal):
        return _format_number(value)
    if value is None or isinstance(value, bytes | list | tuple | dict):
        return ""
    return _parse_string_label(str(value))


def _format_number(value: float | Decimal) -> str:
    if not math.isfinite(value):
        return ""
    if value == int(value):
        return str(int(value))
    if isinstance(value, Decimal):
        return f"{value:f}"
    return np.format_float_positional(value, trim="-")


def _parse_string_label(spelling: str) -> str:
    stripped = _SURROUNDING.sub("", spelling)
    name = normalize("NFC", stripped)
    if name in ("True", "False", "TRUE", "FALSE"):
        return name.lower()
    if _WHOLE.fullmatch(name):
        digits = name.partition(".")[0].removeprefix("+")
        return "0" if digits == "-0" else digits
    if _EXPONENTIAL.fullmatch(name):
        return _format_number(float(name)) or name  # a number may be too large for a float
    if decimal := _DECIMAL.fullmatch(name):
        sign = decimal["sign"].removeprefix("+")
        whole = decimal["whole"] or "0"
        fraction = decimal["fraction"]
        return f"{sign}{whole}.{fraction}"
    return name
