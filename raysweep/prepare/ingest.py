"""The workers that turn sources into a dataset: parts of texts and digests, conflicts, duplicates, shards.

A *piece* is read into *parts* of rows. Rows are numbered from 0 over all pieces: those of train, then dev, then test.
Equal texts are found by digest. Digests are divided into *partitions*, so that no worker holds more than one partition.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raysweep.config.sweep import DataConfig
from raysweep.data import sources
from raysweep.data.artifacts import Artifact
from raysweep.data.containment import Matches, match_phrases
from raysweep.data.dataset import HUB_SPLITS, Split
from raysweep.data.files import RowGroups
from raysweep.data.phrases import Phrases, split_words
from raysweep.data.shards import Shard, ShardSet, read_columns, serialize
from raysweep.data.source_files import SourceFile
from raysweep.data.sources import Piece
from raysweep.prepare.workers import Columns, row_range
from raysweep.storage.folder import open_folder

PART_ROWS = 2**16
PART_CHARACTERS = 2**24  # a part with more characters ends early
BLOCK_ROWS = 8192  # training rows searched for phrases at once, to limit the words in memory
MAX_LABELS_SHOWN = 100  # labels reported for a conflicting text
MAX_CONFLICTS_SHOWN = 5  # conflicting texts reported by a worker for each split
_DIGEST_BYTES = 16
_KEY_BYTES = 8

Integers = npt.NDArray[np.int64]
PiecesBySplit = Mapping[Split, Sequence[Piece]]
"""The pieces of each split's source. Splits without a source have no entry."""


def sources_by_split(data: DataConfig) -> dict[Split, sources.Source]:
    """Return the source of each split that has one. The demo has its own test split."""
    test = data.test or ("demo" if data.train == "demo" else None)
    by_split: dict[Split, sources.Source | None] = {"train": data.train, "dev": data.dev, "test": test}
    return {split: source for split, source in by_split.items() if source}


def list_pieces(data: DataConfig) -> PiecesBySplit:
    """List the pieces of each split's source, once.

    Raises:
        InputError: If :func:`raysweep.data.sources.pieces` raises it.
    """
    pieces = {}
    for split, source in sources_by_split(data).items():
        pieces[split] = sources.pieces(source, subset=data.subset, split=HUB_SPLITS[split])
    return pieces


class PieceOfSplit(NamedTuple):
    """A piece and the split of its rows."""

    split: Split
    piece: Piece

    def to_json(self) -> str:
        return json.dumps([self.split, asdict(self.piece)])

    @classmethod
    def from_json(cls, text: str) -> "PieceOfSplit":
        split, values = json.loads(text)
        if values["file"]:
            values["file"] = SourceFile(**values["file"])
        if values["groups"]:
            values["groups"] = RowGroups(*values["groups"])
        return cls(split, Piece(**values))


class Part(NamedTuple):
    """Consecutive rows of a piece, and their position among all rows."""

    piece: int
    number: int
    first_row: int
    num_rows: int


@dataclass(frozen=True)
class Layout:
    """The parts into which all pieces were read, stored in ``work``."""

    work: Artifact
    rows_of_parts: tuple[tuple[int, ...], ...]  # for each piece
    num_train: int  # training rows, which come first
    num_partitions: int

    @property
    def num_rows(self) -> int:
        return sum(map(sum, self.rows_of_parts))

    @property
    def parts(self) -> Iterator[Part]:
        first_row = 0
        for piece, lengths in enumerate(self.rows_of_parts):
            for number, num_rows in enumerate(lengths):
                yield Part(piece, number, first_row, num_rows)
                first_row += num_rows

    def texts(self, part: Part) -> pa.RecordBatch:
        """Return the columns ``text`` and ``label_key`` of a part."""
        return read_columns(self.work.location, _part_name(self.work, "texts", part.piece, part.number))

    def digests(self, part: Part) -> pa.RecordBatch:
        """Return the digests of a part.

        Each kind of digest has the columns ``_high`` and ``_low``, ascending, and ``_row``, the rows within
        the part.
        """
        return read_columns(self.work.location, _part_name(self.work, "digests", part.piece, part.number))

    @property
    def conflicts(self) -> ShardSet:
        """Return the shards of ``row`` and ``label_key`` of the dropped rows.

        A row is dropped if its exact text has different labels in one split.
        """
        return ShardSet(Artifact(self.work.location, f"{self.work.name}/conflicts"), self.num_partitions)

    def read_dropped(self) -> Integers:
        """Return the dropped rows, ascending. The conflicts must already have been found."""
        columns = [self.conflicts.read(number).column("row").to_numpy() for number in range(self.num_partitions)]
        return np.sort(np.concatenate(columns))


def _part_name(work: Artifact, kind: str, piece: int, number: int) -> str:
    return f"{work.name}/{kind}/{piece:06}-{number:06}.arrow"


class ReadWorker:
    """Worker that reads a piece into parts, and returns the labels that occur in it."""

    def __init__(
        self, work: Artifact, columns: tuple[str, str], is_carved: bool, report_progress: Callable[[int], None] | None
    ) -> None:
        self.work = work
        self.columns = columns
        self.is_carved = is_carved
        self.report_progress = report_progress

    def __call__(self, chunk: Columns) -> Shard:
        number = int(chunk["number"][0])
        split, piece = PieceOfSplit.from_json(str(chunk["piece"][0][0]))
        labels = _LabelCounts()
        rows_of_parts: list[int] = []
        for batches in _group_into_parts(sources.read_piece(piece, *self.columns)):
            part = len(rows_of_parts)
            texts = [text for batch in batches for text in batch.texts]
            keys = np.concatenate([labels.add(batch) for batch in batches])
            columns = {"text": pa.array(texts, pa.string()), "label_key": keys}
            self._write("texts", number, part, columns)
            self._write("digests", number, part, self._digests(split, texts, keys))
            rows_of_parts.append(len(texts))
            if self.report_progress:
                self.report_progress(sum(rows_of_parts))
        facts = {"num_rows": sum(rows_of_parts), "rows_of_parts": rows_of_parts}
        return Shard(labels.columns(), facts)

    def _write(self, kind: str, piece: int, number: int, columns: Mapping[str, Any]) -> None:
        content = serialize(columns, {})
        open_folder(self.work.location).put(_part_name(self.work, kind, piece, number), content)

    def _digests(self, split: Split, texts: Sequence[str], keys: npt.NDArray[np.uint64]) -> dict[str, Any]:
        columns: dict[str, Any] = _sorted_digests("exact", texts, split)  # labels may differ between splits
        columns["exact_label_key"] = keys[columns["exact_row"]]
        columns |= _sorted_digests("folded", map(fold_text, texts))
        if self.is_carved and split == "train":
            words = (" ".join(split_words(text)) for text in texts)
            columns |= _sorted_digests("words", words)
        return columns


class _LabelCounts:
    """The labels of a piece by spelling: name, key, number of rows, and first row (counting from 1)."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._keys: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._first_rows: dict[str, int] = {}

    def add(self, batch: sources.Batch) -> npt.NDArray[np.uint64]:
        """Count a batch's labels and return their keys."""
        labels = zip(batch.labels, batch.spellings, strict=True)
        for row, (label, spelling) in enumerate(labels, batch.first_row):
            if spelling not in self._keys:
                self._names[spelling] = label
                self._keys[spelling] = label_key(label)
                self._counts[spelling] = 0
                self._first_rows[spelling] = row
            self._counts[spelling] += 1
        keys = [self._keys[spelling] for spelling in batch.spellings]
        return np.array(keys, np.uint64)

    def columns(self) -> dict[str, Any]:
        return {
            "spelling": pa.array(list(self._names), pa.string()),
            "name": pa.array(list(self._names.values()), pa.string()),
            "label_key": np.array(list(self._keys.values()), np.uint64),
            "count": np.array(list(self._counts.values()), np.int64),
            "first_row": np.array(list(self._first_rows.values()), np.int64),
        }


def label_key(name: str) -> int:
    """Return a digest of the label, which identifies it on every machine until its number is known."""
    return int.from_bytes(blake2b(name.encode(), digest_size=_KEY_BYTES).digest(), "big")


def _group_into_parts(batches: Iterable[sources.Batch]) -> Iterator[list[sources.Batch]]:
    """Yield lists of consecutive batches that form a part."""
    part: list[sources.Batch] = []
    num_rows = num_characters = 0
    for batch in batches:
        part.append(batch)
        num_rows += len(batch.texts)
        num_characters += sum(map(len, batch.texts))
        if num_rows >= PART_ROWS or num_characters >= PART_CHARACTERS:
            yield part
            part, num_rows, num_characters = [], 0, 0
    if part:
        yield part


def _sorted_digests(kind: str, texts: Iterable[str], salt: str = "") -> dict[str, npt.NDArray[Any]]:
    """Return 16-byte digests as two columns of integers, ascending, and the rows that they belong to."""
    person = salt.encode()
    digests = [blake2b(text.encode(), digest_size=_DIGEST_BYTES, person=person).digest() for text in texts]
    numbers = np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)
    high, low = numbers[::2], numbers[1::2]
    order = np.lexsort((low, high))
    return {
        f"{kind}_high": high[order],
        f"{kind}_low": low[order],
        f"{kind}_row": order.astype(np.int32),
    }


def fold_text(text: str) -> str:
    """Return the text in Unicode form NFKC, case-folded, with single spaces."""
    return " ".join(normalize("NFKC", text).casefold().split())


class _Partition:
    """The rows of a partition sorted by digest, without dropped rows; ``rows`` are ascending among equal digests."""

    def __init__(self, layout: Layout, kind: str, number: int, dropped: Integers) -> None:
        names = [f"{kind}_high", f"{kind}_low", f"{kind}_row", "exact_label_key"]
        parts = []
        for part in layout.parts:
            digests = layout.digests(part)
            if names[0] not in digests.schema.names:  # digests of words exist for train only
                continue
            columns = [digests.column(name).to_numpy() for name in names]
            inside = _partition_slice(columns[0], number, layout.num_partitions)
            # A view would keep the whole part in memory.
            high, low, rows_of_part, label_keys = (column[inside].copy() for column in columns)
            rows = rows_of_part.astype(np.int64) + part.first_row
            parts.append((high, low, rows, label_keys))
        high, low, rows, label_keys = map(np.concatenate, zip(*parts, strict=True))
        is_dropped = np.isin(rows, dropped)
        order = np.lexsort((rows, low, high))
        order = order[~is_dropped[order]]
        self.rows = rows[order]
        self.label_keys = label_keys[order]  # meaningful for the kind "exact" only
        high, low = high[order], low[order]
        is_first = np.ones(len(order), bool)
        is_first[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        self.starts = np.flatnonzero(is_first)  # of groups of equal digests
        self.sizes = np.diff(np.append(self.starts, len(order)))

    def spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Repeat each value, one for each group of equal digests, for all rows of its group."""
        return np.repeat(values, self.sizes)


def _partition_slice(highs: npt.NDArray[np.uint64], number: int, num_partitions: int) -> slice:
    """Return the slice of ascending digests that belong to a partition."""
    start = np.searchsorted(highs, np.uint64(number * 2**64 // num_partitions))
    if number == num_partitions - 1:
        return slice(int(start), None)
    stop = np.searchsorted(highs, np.uint64((number + 1) * 2**64 // num_partitions))
    return slice(int(start), int(stop))


class ConflictWorker:
    """Worker that finds the rows of a partition whose exact text has different labels in one split.

    For each split it reports the number of such texts and, for the first few, their first row and the keys of their
    labels.
    """

    def __init__(self, layout: Layout, first_rows: tuple[int, ...]) -> None:
        """Create a worker. ``first_rows`` holds the first row of each split and, at the end, the total number of rows."""
        self.layout = layout
        self.first_rows = first_rows

    def __call__(self, chunk: Columns) -> Shard:
        nothing = np.zeros(0, np.int64)
        partition = _Partition(self.layout, "exact", int(chunk["number"][0]), nothing)
        keys = partition.label_keys
        first_keys = partition.spread(keys[partition.starts])
        differing = np.flatnonzero(keys != first_keys)
        groups = np.searchsorted(partition.starts, differing, side="right") - 1
        has_conflict = np.zeros(len(partition.starts), bool)
        has_conflict[groups] = True
        dropped = np.flatnonzero(partition.spread(has_conflict))
        by_row = dropped[np.argsort(partition.rows[dropped])]
        columns = {"row": partition.rows[by_row], "label_key": keys[by_row]}
        return Shard(columns, {"conflicts": self._conflicts(partition, has_conflict)})

    def _conflicts(self, partition: _Partition, has_conflict: npt.NDArray[np.bool_]) -> list[Any]:
        """Return, for each split, the number of conflicting texts, and the first row and label keys of the first few."""
        groups = np.flatnonzero(has_conflict)
        first_rows = partition.rows[partition.starts[groups]]
        by_row = np.argsort(first_rows)
        groups, first_rows = groups[by_row], first_rows[by_row]
        conflicts = []
        for split_start, split_stop in itertools.pairwise(self.first_rows):
            is_of_split = (first_rows >= split_start) & (first_rows < split_stop)
            shown = []
            for group in groups[is_of_split][:MAX_CONFLICTS_SHOWN]:
                start = int(partition.starts[group])
                stop = start + int(partition.sizes[group])
                keys = np.unique(partition.label_keys[start:stop])
                first_row = int(partition.rows[start])
                shown.append([first_row, keys[:MAX_LABELS_SHOWN].tolist()])
            conflicts.append([int(is_of_split.sum()), shown])
        return conflicts


class DuplicateWorker:
    """Worker that finds the duplicates in a partition: each id whose digest occurs earlier, and the first id with it.

    Chunks are numbered by kind of digest, then by partition.
    """

    def __init__(self, layout: Layout, kinds: tuple[str, ...]) -> None:
        self.layout = layout
        self.kinds = kinds
        self.dropped = layout.read_dropped()

    def __call__(self, chunk: Columns) -> Shard:
        kind, number = divmod(int(chunk["number"][0]), self.layout.num_partitions)
        partition = _Partition(self.layout, self.kinds[kind], number, self.dropped)
        num_dropped_before = np.searchsorted(self.dropped, partition.rows)
        ids = (partition.rows - num_dropped_before).astype(np.int32)
        first_ids = partition.spread(ids[partition.starts])
        is_later = ids != first_ids
        return Shard({"id": ids[is_later], "first": first_ids[is_later]}, {})


class TextWorker:
    """Worker that writes the shards of the dataset: texts and label numbers of chunks of ids."""

    def __init__(self, layout: Layout, label_numbers: ShardSet) -> None:
        self.layout = layout
        numbers = label_numbers.read(0)
        self.keys = numbers.column("label_key").to_numpy()  # ascending
        self.numbers = numbers.column("number").to_numpy()
        dropped = layout.read_dropped()
        self.num_kept_before = dropped - np.arange(len(dropped))  # before each dropped row

    def __call__(self, chunk: Columns) -> Shard:
        ids = np.arange(*row_range(chunk))
        num_dropped_before = np.searchsorted(self.num_kept_before, ids, side="right")
        rows = ids + num_dropped_before
        texts, keys = [], []
        for part in self.layout.parts:
            bounds = [part.first_row, part.first_row + part.num_rows]
            start, stop = np.searchsorted(rows, bounds)
            if start < stop:
                places = rows[start:stop] - part.first_row
                columns = self.layout.texts(part).take(pa.array(places))
                texts.append(columns.column("text"))
                keys.append(columns.column("label_key").to_numpy())
        positions = np.searchsorted(self.keys, np.concatenate(keys))
        return Shard({"text": pa.concat_arrays(texts), "label": self.numbers[positions]}, {})


class GatherWorker:
    """Worker that returns the texts of a chunk's ids, which must be ascending."""

    def __init__(self, shards: ShardSet, rows_per_shard: int) -> None:
        self.shards = shards
        self.rows_per_shard = rows_per_shard

    def __call__(self, chunk: Columns) -> Columns:
        ids = np.asarray(chunk["ids"][0], np.int64)
        numbers = ids // self.rows_per_shard
        texts: list[str] = []
        for number in np.unique(numbers).tolist():
            places = ids[numbers == number] - number * self.rows_per_shard
            column = self.shards.read(number).column("text")
            texts += column.take(pa.array(places)).to_pylist()
        return {"text": np.array(texts, object)}


class InsideWorker:
    """Worker that finds which phrases are inside which training rows of a shard. The chunk marks the training rows."""

    def __init__(self, shards: ShardSet, rows_per_shard: int, phrases: ShardSet, max_rows: int) -> None:
        self.shards = shards
        self.rows_per_shard = rows_per_shard
        texts = phrases.read(0).column("text")
        self.phrases = Phrases(texts.to_pylist())
        self.max_rows = max_rows

    def __call__(self, chunk: Columns) -> Columns:
        """Return one row for each phrase present, with its count, then one for each pair of a row and a phrase."""
        number = int(chunk["number"][0])
        first_row = number * self.rows_per_shard
        texts = self.shards.read(number).column("text")
        mask = bytes.fromhex(str(chunk["is_train"][0][0]))
        is_train = np.unpackbits(np.frombuffer(mask, np.uint8), count=len(texts))
        places = np.flatnonzero(is_train)
        nothing = np.zeros(0, np.int64)
        blocks = [Matches(nothing, nothing, nothing, nothing)]
        for start in range(0, len(places), BLOCK_ROWS):
            block = places[start : start + BLOCK_ROWS]
            block_texts = texts.take(pa.array(block)).to_pylist()
            blocks.append(match_phrases(self.phrases, first_row + block, block_texts, self.max_rows))
        present, counts, rows, phrases = map(np.concatenate, zip(*blocks, strict=True))
        totals = np.bincount(present, counts).astype(np.int64)
        present = np.flatnonzero(totals)
        no_row = np.full(len(present), -1)
        no_count = np.zeros(len(rows), np.int64)
        return {
            "phrase": np.concatenate([present, phrases]),
            "count": np.concatenate([totals[present], no_count]),
            "row": np.concatenate([no_row, rows]),
        }


def pack_mask(is_train: npt.NDArray[np.bool_]) -> str:
    """Return the mask of a shard's training rows in the form that :class:`InsideWorker` takes."""
    return np.packbits(is_train).tobytes().hex()


def as_matches(columns: Columns) -> Matches:
    """Return the output of :class:`InsideWorker` as matches."""
    is_count = columns["row"] < 0
    phrases = columns["phrase"]
    return Matches(phrases[is_count], columns["count"][is_count], columns["row"][~is_count], phrases[~is_count])
