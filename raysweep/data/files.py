"""Block-by-block reading of columns of a table in a file.

The suffix determines the format: .csv .tsv .jsonl .ndjson .parquet; all but Parquet can be compressed, as in .csv.gz
(.gz .bz2 .zst). CSV follows RFC 4180: quoted line breaks, doubled quotes, spaces kept, and nothing between a closing
quote and the end of the cell. TSV is read the same way, but quoted cells must not contain line breaks or tabs: many TSV
files use no quoting, and a text that begins with a quote would swallow the rows up to the next quote. Text is UTF-8,
with or without a byte order mark.
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
import pyarrow.compute as pc

from raysweep.data.source_files import (
    COMPRESSIONS,
    DELIMITERS,
    JSON_LINES,
    PARQUET,
    Format,
    format_of,
    known_suffixes,
    stored,
)
from raysweep.errors import InputError

BLOCK_ROWS = 8192
MAX_TEXT = 2**24  # characters of a line, or bytes of a value: a compressed file may hide gigabytes in one
MAX_BLOCK = 2**26  # characters of all rows of a block
MAX_COLUMN = 2**30  # bytes of a column in a row group, which Parquet holds in memory at once


_NARROW_FLOATS = {pa.float16(): np.float16, pa.float32(): np.float32}
_BREAKS = re.compile(r"[\t\n\r]")
_SWALLOWED = (
    "has quotes around a line break or a tab, as happens by chance in a file that quotes nothing, where a text begins with "
    "a quote; write the file as .csv, .jsonl or .parquet"
)

Blocks = Iterator[tuple[list[Any], ...]]
"""Tuples of raw values by column, such as texts and labels, with up to ``BLOCK_ROWS`` values each."""


class RowGroups(NamedTuple):
    """Consecutive row groups of a Parquet file: the range [start, stop), and the first of their rows in the file."""

    start: int
    stop: int
    first_row: int  # from 1


def read(source: str, columns: tuple[str, ...], groups: RowGroups | None = None) -> Blocks:
    """Stream some columns; for a Parquet file, optionally only some row groups.

    Raises:
        InputError: If the content violates the format.
        OSError: If the file cannot be read.
    """
    suffix, compression = check_format(source)
    if suffix == PARQUET:
        return _parquet(source, columns, groups)
    rows = _json_lines if suffix in JSON_LINES else _csv
    return _blocks(source, compression, rows(source, suffix, compression, columns))


def column_names(source: str) -> list[str]:
    """Return the columns of a file; for JSON lines, those of the first object. Raises as :func:`read` does."""
    suffix, compression = check_format(source)
    if suffix == PARQUET:
        return _parquet_columns(source)
    with _utf8(source, compression), _decoded(source, compression, newline="") as stream:
        numbered = enumerate(_bounded(source, stream), 1)
        filled = ((number, line) for number, line in numbered if line.strip())
        if suffix in JSON_LINES:
            number, line = next(filled, (1, "{}"))
            return list(_json_object(f"{source}: line {number}", line))
        records = csv.reader((line for _, line in filled), delimiter=DELIMITERS[suffix])
        try:
            return next(records, [])
        except csv.Error as error:
            raise InputError(f"{source}: the first row: {_bad_quotes(str(error))}") from None


def lines(source: str) -> Iterator[str]:
    """Stream the lines of a text file unchanged, without line ends. Raises as :func:`read` does."""
    compression = check_format(source).compression
    with _utf8(source, compression), _decoded(source, compression) as stream:
        for line in _bounded(source, stream):
            yield line.removesuffix("\n")


class ColumnError(InputError):
    """A requested column is missing from a file or occurs twice."""


def positions(source: str, present: Sequence[str], columns: tuple[str, ...]) -> tuple[int, ...]:
    """Return the positions of the columns among those present. Raises ColumnError with a list of those present."""
    for column in columns:
        if present.count(column) != 1:
            problem = "occurs more than once" if column in present else "is missing"
            listed = ", ".join(repr(name) for name in present)
            raise ColumnError(f"{source}: column {column!r} {problem}; the columns are {listed}")
    return tuple(map(present.index, columns))


def check_format(source: str) -> Format:
    """Return the file's format. Raises InputError for an unknown suffix."""
    if found := format_of(source):
        return found
    suffixes = PurePosixPath(source).suffixes[-2:]
    last = "".join(suffixes[-1:]).lower()
    wrong = "".join(suffixes).lower() if last in COMPRESSIONS else last
    raise InputError(
        f"{source}: unsupported suffix ({wrong or 'none'}); a source is demo, hub:NAME, or a file that ends in "
        f"{known_suffixes()}, text formats also with {', '.join(COMPRESSIONS)} after it"
    )


@contextmanager
def _decoded(
    source: str, compression: str, encoding: str = "utf-8-sig", errors: str = "strict", newline: str | None = None
) -> Iterator[io.TextIOWrapper]:
    with stored(source) as stream:
        plain = pa.CompressedInputStream(stream, compression) if compression else stream
        yield io.TextIOWrapper(plain, encoding, errors, newline)


@contextmanager
def _utf8(source: str, compression: str) -> Iterator[None]:
    """Convert UnicodeDecodeError to an InputError that names the line."""
    try:
        yield
    except UnicodeDecodeError:
        raise _not_utf8(source, compression) from None


def _blocks(source: str, compression: str, rows: Iterator[tuple[Any, ...]]) -> Blocks:
    with _utf8(source, compression):
        while block := _next_block(rows):
            yield tuple(list(values) for values in zip(*block, strict=True))


def _next_block(rows: Iterator[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows of the next block, fewer if texts are long, and none at the end."""
    block = []
    num_characters = 0
    for row in itertools.islice(rows, BLOCK_ROWS):
        block.append(row)
        num_characters += sum(len(value) for value in row if isinstance(value, str))
        if num_characters >= MAX_BLOCK:
            break
    return block


def _csv(source: str, suffix: str, compression: str, columns: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    with _decoded(source, compression, newline="") as stream:
        delimiter = DELIMITERS[suffix]
        records = csv.reader(_bounded(source, stream), delimiter=delimiter, strict=True)
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
                problem = _wrong_length(record, header) if len(record) != len(header) else ""
                if _is_header(record, names, places):
                    problem = "repeats the header, as in files joined into one; remove it, or list the files one by one"
                if delimiter == "\t" and any(map(_BREAKS.search, record)):
                    problem = problem or _SWALLOWED
                if problem:
                    raise InputError(f"{source}: row {number} (up to line {records.line_num}) {problem}")
                yield tuple(map(record.__getitem__, places))
        except csv.Error as error:
            raise InputError(f"{source}: row {number + 1}: {_bad_quotes(str(error))}") from None
        if not header:
            raise InputError(f"{source}: is empty; the first line has to name the columns")


def _is_header(record: Sequence[str], names: Sequence[str], places: Sequence[int]) -> bool:
    """Return whether a row repeats the header: all column names in any order, or the names of the columns read.

    A text that happens to equal its column's name is an ordinary row, also in a file with one column.
    """
    if len(names) == 1 or len(record) != len(names) or _cell_name(record[places[-1]]) not in names:
        return False
    cells = list(map(_cell_name, record))
    has_read_names = len(places) > 1 and all(cells[place] == names[place] for place in places)
    return has_read_names or sorted(cells) == sorted(names)


def _cell_name(cell: str) -> str:
    """Return a cell as a column name, without the byte order mark that concatenated files contain in the middle.

    Quotes are also stripped, because after a byte order mark they are not parsed as quotes.
    """
    return cell.strip('\ufeff" \t\xa0')


def _bad_quotes(said: str) -> str:
    """Return a description of the problem behind an error message of the csv module."""
    if said == "unexpected end of data":
        return "a quote is still open at the end of the file"
    if said.endswith("expected after '\"'"):
        return "a cell goes on after its closing quote; a cell that begins with a quote has all its own quotes doubled"
    # In practice this is the limit of 131,072 characters per field, which bounds memory.
    return f"{said}; is a quote left open? Longer texts can be .jsonl or .parquet"


def _bounded(source: str, stream: io.TextIOWrapper) -> Iterator[str]:
    """Yield the lines of a file. Raises InputError for a line that is too long for memory, before reading all of it."""
    number = 0
    while line := stream.readline(MAX_TEXT):
        number += 1
        if len(line) == MAX_TEXT:
            raise InputError(f"{source}: line {number} is too long; allowed: fewer than {MAX_TEXT:,} characters")
        yield line


def _wrong_length(record: Sequence[str], header: Sequence[str]) -> str:
    fields = "1 field" if len(record) == 1 else f"{len(record)} fields"
    hint = "; is a quote left open?" if "\n" in "".join(record) else ""
    return f"has {fields}, the header has {len(header)}{hint}"


def _json_lines(source: str, suffix: str, compression: str, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    with _decoded(source, compression, newline="\n") as stream:
        for number, line in enumerate(_bounded(source, stream), 1):
            if not line.strip():
                continue
            where = f"{source}: line {number}"
            record = _json_object(where, line)
            keys = list(record)
            positions(where, keys, columns)
            yield tuple(map(record.__getitem__, columns))


def _json_object(where: str, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where} is not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise InputError(f"{where} is not a JSON object: {line.strip()[:60]}")
    return record


def share_out(source: str, num_bytes: int) -> list[RowGroups]:
    """Group the row groups of a Parquet file into shares of about ``num_bytes`` each when decompressed.

    Only the end of the file is read. Raises as :func:`read` does.
    """
    import pyarrow.parquet

    with stored(source) as stream:
        metadata = pyarrow.parquet.ParquetFile(stream).metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    shares = []
    start, first_row = 0, 1
    taken_bytes = num_rows = 0
    for stop, group in enumerate(groups, 1):
        taken_bytes += group.total_byte_size
        num_rows += group.num_rows
        if taken_bytes >= num_bytes or stop == len(groups):
            shares.append(RowGroups(start, stop, first_row))
            start, first_row = stop, first_row + num_rows
            taken_bytes = num_rows = 0
    return shares


def _parquet_columns(source: str) -> list[str]:
    import pyarrow.parquet

    with stored(source) as stream:
        names: list[str] = pyarrow.parquet.ParquetFile(stream).schema_arrow.names
        return names


def _parquet(source: str, columns: tuple[str, ...], groups: RowGroups | None) -> Blocks:
    import pyarrow.parquet

    with stored(source) as stream:
        described = pyarrow.parquet.ParquetFile(stream)
        metadata = described.metadata
        positions(source, described.schema_arrow.names, columns)
        some = groups or RowGroups(0, metadata.num_row_groups, 1)
        _check_sizes(source, metadata, columns, some)
        paths = {metadata.schema.column(number).path for number in range(metadata.num_columns)}
        # With dictionaries, a repeated value is in memory only once.
        flat = [name for name in columns if name in paths]
        file = pyarrow.parquet.ParquetFile(stream, metadata=metadata, read_dictionary=flat)
        first_row = some.first_row
        batches = file.iter_batches(BLOCK_ROWS, list(range(some.start, some.stop)), list(columns))
        for batch in batches:
            yield tuple(_values(source, first_row, name, batch.column(name)) for name in columns)
            first_row += batch.num_rows


def _check_sizes(source: str, metadata: Any, columns: tuple[str, ...], some: RowGroups) -> None:
    """Raise InputError if values in a row group, each or in total, exceed the limits; nothing is read before."""
    for number in range(some.start, some.stop):
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            chunk = group.column(index)
            most = min(MAX_TEXT * max(1, group.num_rows), MAX_COLUMN)
            if chunk.total_uncompressed_size <= most:
                continue
            path = f"{chunk.path_in_schema}."  # includes the fields of a nested column
            for name in columns:
                if path.startswith(f"{name}."):
                    raise _too_large(source, name, f"row group {number + 1}")


def _too_large(source: str, name: str, where: str) -> InputError:
    return InputError(
        f"{source}: {where}: column {name!r} is too large; allowed: values of up to {MAX_TEXT:,} bytes, "
        f"{MAX_COLUMN:,} together"
    )


def _values(source: str, first_row: int, name: str, column: Any) -> list[Any]:
    is_dictionary = pa.types.is_dictionary(column.type)
    cells = column.dictionary if is_dictionary else column
    if cells.type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        lengths = pc.binary_length(cells)
        of_rows = lengths.take(column.indices) if is_dictionary else lengths
        if (pc.max(lengths).as_py() or 0) > MAX_TEXT or (pc.sum(of_rows).as_py() or 0) > MAX_COLUMN:
            raise _too_large(source, name, f"rows from {first_row}")
    values = []
    for row, value in enumerate(column, first_row):
        try:
            values.append(plain_value(value))
        except UnicodeDecodeError as error:
            raise InputError(f"{source}: row {row}: column {name!r} is not UTF-8: {error.object[:40]!r}") from None
    return values


def plain_value(scalar: Any) -> Any:
    """Return an Arrow value as a Python value.

    A narrow float becomes the shortest decimal that rounds to it, such as 0.1.
    """
    value = scalar.as_py()
    kind = scalar.type.value_type if pa.types.is_dictionary(scalar.type) else scalar.type
    if value is None or kind not in _NARROW_FLOATS:
        return value
    return float(str(_NARROW_FLOATS[kind](value)))


def _not_utf8(source: str, compression: str) -> InputError:
    """Return the error for the first line that does not decode. Decoders work in blocks and do not know the line."""
    with _decoded(source, compression, encoding="utf-8", errors="surrogateescape") as stream:
        for number, line in enumerate(stream, 1):
            try:
                line.encode()
            except UnicodeEncodeError as error:
                escaped = line[error.start]
                byte = ord(escaped) - 0xDC00
                problem = f"line {number} is not UTF-8 (byte 0x{byte:02x})"
                return InputError(f"{source}: {problem}; convert it first")
    raise AssertionError(f"{source} changed while it was read")
