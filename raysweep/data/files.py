"""Read selected columns of a file in blocks.

The suffix determines the format: .csv, .tsv, .jsonl, .ndjson or .parquet. All formats except Parquet may be compressed
(.gz, .bz2 or .zst), as in .csv.gz. CSV follows RFC 4180. TSV is parsed the same way, but quoted cells must not contain
line breaks or tabs. Many TSV files do not use quoting, and a text that begins with a quote would otherwise include the
rows up to the next quote. Text is UTF-8, with or without a byte order mark.
"""

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from raysweep.data.source_files import (
    COMPRESSIONS,
    DELIMITERS,
    JSON_LINES,
    PARQUET,
    SUFFIXES,
    Format,
    format_of,
    stored,
)
from raysweep.errors import InputError
from raysweep.output import counted

BLOCK_ROWS = 8192
BLOCK_CHARACTERS = 2**26  # a block that reaches this size ends early

_NARROW_FLOATS = {pa.float16(): np.float16, pa.float32(): np.float32}
_SEPARATORS = re.compile(r"[\t\n\r]")
# as produced by Python's "surrogateescape" error handler
_ESCAPED_BYTE = re.compile(r"[\udc80-\udcff]")

Blocks = Iterator[tuple[list[Any], ...]]
"""Blocks of up to ``BLOCK_ROWS`` rows. A block is a tuple with a list of raw values per column."""


class RowGroups(NamedTuple):
    """Consecutive row groups [start, stop) of a Parquet file, and the number of their first row in the file."""

    start: int
    stop: int
    first_row: int  # counts from 1


def read(source: str, columns: tuple[str, ...], groups: RowGroups | None = None) -> Blocks:
    """Stream columns of a file, or of some row groups of a Parquet file.

    Raises:
        InputError: If the content violates the format.
        OSError: If the file cannot be read.
    """
    suffix, compression = check_format(source)
    if suffix == PARQUET:
        yield from _read_parquet(source, columns, groups)
        return
    read_rows = _read_json_lines if suffix in JSON_LINES else _read_csv
    rows = read_rows(source, suffix, compression, columns)
    with _utf8(source, compression):
        while block := _next_block(rows):
            yield tuple(map(list, zip(*block, strict=True)))


def column_names(source: str) -> list[str]:
    """Return a file's column names; for JSON Lines, the first object's keys. Raises the same errors as :func:`read`."""
    suffix, compression = check_format(source)
    if suffix == PARQUET:
        with _open_parquet(source) as file:
            names: list[str] = file.schema_arrow.names
            return names
    with _utf8(source, compression), _decoded(source, compression, newline="") as stream:
        filled_lines = ((number, line) for number, line in enumerate(stream, 1) if line.strip())
        if suffix in JSON_LINES:
            number, line = next(filled_lines, (1, "{}"))
            record = _parse_object(f"{source}: line {number}", line)
            return list(record)
        texts = (line for _, line in filled_lines)
        records = csv.reader(texts, delimiter=DELIMITERS[suffix])
        try:
            return next(records, [])
        except csv.Error as error:
            raise InputError(f"{source}: header: {_explain_csv(str(error))}") from None


def lines(source: str) -> Iterator[str]:
    """Stream the lines of a text file without line endings.

    Raises the same errors as :func:`read`.
    """
    compression = check_format(source).compression
    with _utf8(source, compression), _decoded(source, compression) as stream:
        for line in stream:
            yield line.removesuffix("\n")


class ColumnError(InputError):
    """A requested column is missing from a file or occurs more than once."""


def positions(source: str, present: Sequence[str], columns: tuple[str, ...]) -> tuple[int, ...]:
    """Return the positions of ``columns`` in ``present``. Raises ColumnError unless each column occurs exactly once."""
    for column in columns:
        if present.count(column) != 1:
            problem = "occurs more than once" if column in present else "is missing"
            listed = ", ".join(map(repr, present)) or "none"
            raise ColumnError(f"{source}: column {column!r} {problem}; columns: {listed}")
    return tuple(map(present.index, columns))


def check_format(source: str) -> Format:
    """Return the file's format. Raises InputError for an unknown suffix."""
    if file_format := format_of(source):
        return file_format
    suffixes = [suffix.lower() for suffix in PurePosixPath(source).suffixes]
    is_compressed = bool(suffixes) and suffixes[-1] in COMPRESSIONS
    num_suffixes = 2 if is_compressed else 1
    unknown = "".join(suffixes[-num_suffixes:])
    problem = f"suffix {unknown!r} is unknown" if unknown else "the suffix is missing"
    formats = ", ".join(SUFFIXES)
    compressions = ", ".join(COMPRESSIONS)
    raise InputError(
        f"{source}: {problem}; allowed: {formats} (all but {PARQUET} may be followed by {compressions}), demo, hub:NAME"
    )


@contextmanager
def _decoded(
    source: str,
    compression: str,
    encoding: str = "utf-8-sig",
    errors: str = "strict",
    newline: str | None = None,
) -> Iterator[io.TextIOWrapper]:
    with stored(source) as stream:
        plain = pa.CompressedInputStream(stream, compression) if compression else stream
        yield io.TextIOWrapper(plain, encoding, errors, newline)


@contextmanager
def _utf8(source: str, compression: str) -> Iterator[None]:
    """Convert UnicodeDecodeError to an InputError with the line number, which the block-wise decoder does not report."""
    try:
        yield
    except UnicodeDecodeError:
        with _decoded(source, compression, encoding="utf-8", errors="surrogateescape") as stream:
            for number, line in enumerate(stream, 1):
                escaped = _ESCAPED_BYTE.search(line)
                if escaped:
                    place = f"{source}: line {number}"
                    byte = ord(escaped[0]) - 0xDC00
                    raise InputError(
                        f"{place}: byte 0x{byte:02x} is not UTF-8; convert the file to UTF-8"
                    ) from None
        raise InputError(
            f"{source}: the file changed while raysweep was reading it; prepare again"
        ) from None


def _next_block(rows: Iterator[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows of the next block, or an empty list at the end of the file."""
    block = []
    num_characters = 0
    for row in itertools.islice(rows, BLOCK_ROWS):
        block.append(row)
        num_characters += sum(len(value) for value in row if isinstance(value, str))
        if num_characters >= BLOCK_CHARACTERS:
            break
    return block


def _read_csv(
    source: str, suffix: str, compression: str, columns: tuple[str, ...]
) -> Iterator[tuple[Any, ...]]:
    with _decoded(source, compression, newline="") as stream:
        records = csv.reader(stream, delimiter=DELIMITERS[suffix], strict=True)
        header: list[str] = []
        number = 0
        try:
            for record in records:
                if len(record) < 2 and not "".join(record).strip():
                    continue
                if not header:
                    header = record
                    places = positions(source, header, columns)
                    names = list(map(_cell_name, header))
                    continue
                number += 1
                problem = ""
                if _is_header(record, names, places):
                    problem = "repeats the header, as in concatenated files; remove it, or pass a list of files"
                elif len(record) != len(header):
                    hint = "; is a quote left open?" if "\n" in "".join(record) else ""
                    problem = (
                        f"has {counted(len(record), 'field')}; the header has {len(header)}{hint}"
                    )
                elif suffix == ".tsv" and any(map(_SEPARATORS.search, record)):
                    problem = (
                        "has a line break or a tab inside quotes, probably because the file does not use quoting and a text "
                        "begins with a quote; write the file as .csv, .jsonl or .parquet"
                    )
                if problem:
                    raise InputError(
                        f"{source}: row {number} (ends on line {records.line_num}) {problem}"
                    )
                yield tuple(map(record.__getitem__, places))
        except csv.Error as error:
            raise InputError(f"{source}: row {number + 1}: {_explain_csv(str(error))}") from None
        if not header:
            raise InputError(f"{source}: the file is empty; its first line must name the columns")


def _is_header(record: Sequence[str], names: Sequence[str], places: Sequence[int]) -> bool:
    """Return whether a row repeats the header.

    Such a row contains all column names in any order, or the names of all columns read. A single text that equals its
    column's name is not enough.
    """
    if len(names) == 1 or len(record) != len(names) or _cell_name(record[places[-1]]) not in names:
        return False
    cells = list(map(_cell_name, record))
    has_read_names = len(places) > 1 and all(cells[place] == names[place] for place in places)
    return has_read_names or sorted(cells) == sorted(names)


def _cell_name(cell: str) -> str:
    """Strip spaces, byte order marks and quotes from a cell.

    Concatenated files can contain byte order marks, and a quote after a byte order mark is not parsed as a quote.
    """
    return cell.strip('\ufeff" \t\xa0')


def _explain_csv(message: str) -> str:
    if message == "unexpected end of data":
        return "a quote is still open at the end of the file"
    if message.endswith("expected after '\"'"):
        return 'a cell continues after its closing quote; allowed in a quoted cell: doubled quotes, as in "a ""b"" c"'
    # usually the limit of 131,072 characters per field
    return f"{message}; is a quote left open? Longer texts are allowed in .jsonl and .parquet files"


def _read_json_lines(
    source: str, suffix: str, compression: str, columns: tuple[str, ...]
) -> Iterator[tuple[Any, ...]]:
    with _decoded(source, compression, newline="\n") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            place = f"{source}: line {number}"
            record = _parse_object(place, line)
            present = list(record)
            positions(place, present, columns)
            yield tuple(map(record.__getitem__, columns))


def _parse_object(place: str, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{place}: invalid JSON at column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: invalid JSON: {error}") from None
    if not isinstance(record, dict):
        example = '{"text": "...", "label": "..."}'
        raise InputError(
            f"{place}: the JSON value is {line.strip()[:60]}; allowed: an object, such as {example}"
        )
    return record


@contextmanager
def _open_parquet(source: str) -> Iterator[Any]:
    import pyarrow.parquet

    with stored(source) as stream:
        yield pyarrow.parquet.ParquetFile(stream)


def share_out(source: str, num_bytes: int) -> list[RowGroups]:
    """Split a Parquet file's row groups into shares of about ``num_bytes`` each, uncompressed.

    Only the footer of the file is read. Raises the same errors as :func:`read`.
    """
    with _open_parquet(source) as file:
        metadata = file.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    shares = []
    start, first_row = 0, 1
    share_bytes = num_rows = 0
    for stop, group in enumerate(groups, 1):
        share_bytes += group.total_byte_size
        num_rows += group.num_rows
        if share_bytes >= num_bytes or stop == len(groups):
            shares.append(RowGroups(start, stop, first_row))
            start = stop
            first_row += num_rows
            share_bytes = num_rows = 0
    return shares


def _read_parquet(source: str, columns: tuple[str, ...], groups: RowGroups | None) -> Blocks:
    import pyarrow.parquet

    with stored(source) as stream:
        file = pyarrow.parquet.ParquetFile(stream)
        metadata = file.metadata
        positions(source, file.schema_arrow.names, columns)
        groups = groups or RowGroups(0, metadata.num_row_groups, 1)
        first_row = groups.first_row
        # With dictionary encoding, a repeated value is kept in memory only once.
        paths = {metadata.schema.column(number).path for number in range(metadata.num_columns)}
        flat_columns = [name for name in columns if name in paths]
        file = pyarrow.parquet.ParquetFile(stream, metadata=metadata, read_dictionary=flat_columns)
        group_numbers = list(range(groups.start, groups.stop))
        for batch in file.iter_batches(BLOCK_ROWS, group_numbers, list(columns)):
            yield tuple(
                _plain_values(source, first_row, name, batch.column(name)) for name in columns
            )
            first_row += batch.num_rows


def _plain_values(source: str, first_row: int, name: str, column: Any) -> list[Any]:
    values = []
    for row, value in enumerate(column, first_row):
        try:
            values.append(plain_value(value))
        except UnicodeDecodeError as error:
            raise InputError(
                f"{source}: row {row}: column {name!r} is not UTF-8: {error.object[:40]!r}"
            ) from None
    return values


def plain_value(scalar: Any) -> Any:
    """Return an Arrow value as a Python value.

    A float16 or float32 becomes the shortest decimal that rounds to it, such as 0.1.
    """
    value = scalar.as_py()
    kind = scalar.type.value_type if pa.types.is_dictionary(scalar.type) else scalar.type
    if value is None or kind not in _NARROW_FLOATS:
        return value
    return float(str(_NARROW_FLOATS[kind](value)))
