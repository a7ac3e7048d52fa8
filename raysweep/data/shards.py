"""Shards of an artifact: files that each contain some of its rows.

Each shard, such as ``00002-of-00017.arrow``, is an uncompressed Arrow IPC file, which processes can memory-map. The
schema's metadata contains the worker's report, so resuming a build requires reading only the start of each file.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raysweep.data.artifacts import Artifact, damaged
from raysweep.errors import InputError
from raysweep.storage.bucket import StorageError
from raysweep.storage.cache import MANIFEST
from raysweep.storage.folder import LocalFolder, open_folder

Column: TypeAlias = npt.NDArray[Any] | Any
"""A NumPy array of numbers, (rows, ...), or an Arrow array."""

Report = dict[str, Any]
"""The report on a shard: ``num_rows``, ``num_bytes``, ``crc32`` (only after writing) and the shard's ``facts``."""

START_BYTES = 2**18  # bytes read from the start of a file; enough for its schema
FILES_AT_ONCE = 64
_REPORT = b"report"


class Shard(NamedTuple):
    """A worker's output for some rows: columns of equal length, and JSON values to add to the report."""

    columns: Mapping[str, Column]
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class ShardSet:
    """The ``count`` shards of an artifact that is being built."""

    artifact: Artifact
    count: int

    def write(self, number: int, shard: Shard) -> Report:
        """Store one shard atomically and return its report."""
        location = self.artifact.location
        first_column = next(iter(shard.columns.values()))
        report: Report = {"num_rows": len(first_column), **shard.facts}
        content = serialize(shard.columns, report)
        try:
            open_folder(location).put(self._name(number), content)
        except StorageError:
            raise
        except OSError as error:  # such as a full disk
            raise StorageError(error.errno, str(error.strerror), location) from None
        return {**report, "num_bytes": len(content), "crc32": zlib.crc32(content)}

    def read_reports(self) -> dict[int, Report]:
        """Return the reports of all shards with a readable schema, by shard number."""
        store = open_folder(self.artifact.location)
        sizes = store.sizes(self.artifact.name)
        stored = [number for number in range(self.count) if _file(number, self.count) in sizes]
        reports: dict[int, Report] = {}
        for first in range(0, len(stored), FILES_AT_ONCE):
            numbers = stored[first : first + FILES_AT_ONCE]
            names = [self._name(number) for number in numbers]
            starts = store.read(names, START_BYTES)
            for number, start in zip(numbers, starts, strict=True):
                num_bytes = sizes[_file(number, self.count)]
                # After a power failure, a shard may exist without its content.
                with suppress(pa.ArrowException, ValueError, KeyError, TypeError):
                    schema = pa.ipc.read_schema(pa.py_buffer(start[8:]))  # after eight magic bytes
                    report = json.loads(schema.metadata[_REPORT])
                    reports[number] = {**report, "num_bytes": num_bytes}
        return reports

    def read(self, number: int) -> pa.RecordBatch:
        """Return the columns of an existing shard. Local files are memory-mapped."""
        return read_columns(self.artifact.location, self._name(number))

    def _name(self, number: int) -> str:
        return f"{self.artifact.name}/{_file(number, self.count)}"


def _file(number: int, count: int) -> str:
    return f"{number:05}-of-{count:05}.arrow"


def read_columns(place: str, name: str) -> pa.RecordBatch:
    """Return the columns of a file in the folder ``place``."""
    store = open_folder(place)
    if isinstance(store, LocalFolder):
        source = pa.memory_map(str(store.path / name))
    else:
        (content,) = store.read([name])
        source = pa.py_buffer(content)
    return pa.ipc.open_file(source).get_batch(0)


def serialize(columns: Mapping[str, Column], report: Report) -> bytes:
    """Return the content of a shard file."""
    arrays = {name: _as_arrow(column) for name, column in columns.items()}
    batch = pa.record_batch(arrays).replace_schema_metadata({_REPORT: json.dumps(report)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _as_arrow(column: Column) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    if column.ndim == 1:
        return pa.array(column)
    row_shape = column.shape[1:]
    row_size = int(np.prod(row_shape))
    contiguous = np.ascontiguousarray(column)
    flat = pa.array(contiguous.reshape(-1))
    rows = pa.FixedSizeListArray.from_arrays(flat, row_size)
    tensor = pa.fixed_shape_tensor(flat.type, row_shape)
    return pa.ExtensionArray.from_storage(tensor, rows)


class ShardedArray:
    """An array (rows, ...) whose parts are opened on first use."""

    def __init__(
        self, lengths: Sequence[int], open_part: Callable[[int], npt.NDArray[Any]]
    ) -> None:
        """Create an array whose part i has ``lengths[i]`` rows and is returned by ``open_part(i)``."""
        self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._open_part = open_part
        self._parts: dict[int, npt.NDArray[Any]] = {}

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self._part(0).shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._part(0).dtype

    def __getitem__(self, rows: slice | npt.NDArray[np.integer]) -> npt.NDArray[Any]:
        """Return the rows with these numbers or in this slice. A contiguous slice of one part is returned as a view."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return self._read_range(start, max(start, stop))
            rows = np.arange(start, stop, step)
        row_numbers = np.asarray(rows)
        if not row_numbers.size:
            return self._allocate(row_numbers)
        lowest, highest = int(row_numbers.min()), int(row_numbers.max())
        if lowest < 0 or highest >= len(self):
            raise IndexError(
                f"rows range from {lowest} to {highest}; allowed: 0 to {len(self) - 1}"
            )
        part_numbers = np.searchsorted(self._starts, row_numbers, side="right") - 1
        rows_in_part = row_numbers - self._starts[part_numbers]
        present = np.unique(part_numbers).tolist()
        if len(present) == 1:
            values: npt.NDArray[Any] = self._part(present[0])[rows_in_part]
            return values
        values = self._allocate(row_numbers)
        for number in present:
            part = self._part(number)
            is_in_part = part_numbers == number
            values[is_in_part] = part[rows_in_part[is_in_part]]
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self[:], dtype)

    def _part(self, number: int) -> npt.NDArray[Any]:
        if number not in self._parts:
            self._parts[number] = self._open_part(number)
        return self._parts[number]

    def _read_range(self, start: int, stop: int) -> npt.NDArray[Any]:
        last_part = len(self._starts) - 2
        first = min(self._part_of(start), last_part)
        last = max(first, self._part_of(stop - 1))
        views = []
        for number in range(first, last + 1):
            part = self._part(number)
            offset = int(self._starts[number])
            start_in_part = max(0, start - offset)
            stop_in_part = stop - offset
            views.append(part[start_in_part:stop_in_part])
        return views[0] if len(views) == 1 else np.concatenate(views)

    def _part_of(self, row: int) -> int:
        return int(np.searchsorted(self._starts, row, side="right")) - 1

    def _allocate(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[Any]:
        return np.empty((*rows.shape, *self.shape[1:]), self.dtype)


Rows = npt.NDArray[Any] | ShardedArray
"""An array in memory, in one file or in several files."""


class OpenShards:
    """The columns of an artifact in a local folder, as memory maps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            self._shards: list[Report] = manifest["shards"]
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
            raise damaged(folder / MANIFEST) from None

    def array(self, name: str) -> ShardedArray:
        """Return a column of numbers."""

        def open_part(number: int) -> npt.NDArray[Any]:
            column = self.column(number, name)
            is_tensor = isinstance(column, pa.FixedShapeTensorArray)
            values: npt.NDArray[Any] = column.to_numpy_ndarray() if is_tensor else column.to_numpy()
            return values

        lengths = [shard["num_rows"] for shard in self._shards]
        return ShardedArray(lengths, open_part)

    def lists(self, name: str) -> tuple[ShardedArray, npt.NDArray[np.int64]]:
        """Return a column of lists: the concatenated values, and the offsets of the lists, (rows + 1,)."""
        columns = self.columns(name)
        lengths = [np.diff(column.offsets.to_numpy()) for column in columns]
        ends = np.cumsum(np.concatenate(lengths), dtype=np.int64)
        offsets = np.concatenate([[0], ends])
        num_values = [int(part.sum()) for part in lengths]
        values = ShardedArray(num_values, lambda number: columns[number].values.to_numpy())
        return values, offsets

    def columns(self, name: str) -> list[pa.Array]:
        """Return one column of every shard."""
        return [self.column(number, name) for number in range(len(self._shards))]

    def column(self, number: int, name: str) -> pa.Array:
        """Return a column of one shard. Raises InputError if the shard is damaged or missing."""
        path = self._folder / _file(number, len(self._shards))
        num_bytes = path.stat().st_size if path.is_file() else 0
        expected_bytes = self._shards[number]["num_bytes"]
        if num_bytes != expected_bytes:
            problem = (
                f"has {num_bytes} bytes instead of {expected_bytes}" if num_bytes else "is missing"
            )
            raise InputError(
                f"{path}: {problem}; remove the folder {self._folder} and prepare again"
            )
        try:
            file = pa.memory_map(str(path))
            batch = pa.ipc.open_file(file).get_batch(0)
            column = batch.column(name)
            column.validate()
        except (KeyError, pa.ArrowException):
            raise damaged(path) from None
        return column


def open_array(folder: Path, name: str) -> Rows:
    """Open a column of the artifact in a local folder."""
    return OpenShards(folder).array(name)


def open_npy(file: Path) -> npt.NDArray[Any]:
    """Open a ``.npy`` file as a memory map. Raises InputError if it is missing, damaged or contains pickled objects."""
    try:
        array: npt.NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (FileNotFoundError, ValueError, EOFError):
        raise damaged(file) from None
    return array
