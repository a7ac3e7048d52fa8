"""Workers that read sources, find label conflicts and duplicates, and build the dataset's shards.

Each *piece* of a source is split into *parts* of consecutive rows. Rows are numbered from 0 across all pieces, in the
order train, dev, test. Texts are compared by digest. The digests are divided into *partitions*, and a worker loads one
partition at a time.
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
from raysweep.data.bad_rows import BadRows
from raysweep.data.containment import Matches, match_phrases
from raysweep.data.dataset import HUB_SPLITS, Split
from raysweep.data.files import RowGroups
from raysweep.data.phrases import Phrases, split_words
from raysweep.data.shards import Shard, ShardSet, read_columns, serialize
from raysweep.data.source_files import SourceFile
from raysweep.data.sources import Piece
from raysweep.prepare.workers import Columns, chunk_number, row_range
from raysweep.storage.folder import open_folder

PART_ROWS = 2**16
PART_CHARACTERS = 2**24  # a part ends early if it reaches this length
BLOCK_ROWS = 8192  # training rows searched for phrases at a time
MAX_LABELS_SHOWN = 100  # labels reported per conflicting text
MAX_CONFLICTS_SHOWN = 5  # conflicting texts reported per worker and split
_DIGEST_BYTES = 16
_KEY_BYTES = 8

Integers = npt.NDArray[np.int64]
PiecesBySplit = Mapping[Split, Sequence[Piece]]
"""The pieces of each split's source. Splits without a source have no entry."""


def sources_by_split(data: DataConfig) -> dict[Split, sources.Source]:
    """Return the source of each split that has one. The demo has its own test split."""
    test = data.test or ("demo" if data.train == "demo" else None)
    by_split: dict[Split, sources.Source | None] = {
        "train": data.train,
        "dev": data.dev,
        "test": test,
    }
    return {split: source for split, source in by_split.items() if source}


def list_pieces(data: DataConfig) -> PiecesBySplit:
    """Return the pieces of each split's source.

    Raises:
        InputError: If a source cannot be listed; see :func:`raysweep.data.sources.pieces`.
    """
    pieces = {}
    for split, source in sources_by_split(data).items():
        pieces[split] = sources.pieces(source, subset=data.subset, split=HUB_SPLITS[split])
    return pieces


class PieceOfSplit(NamedTuple):
    """A piece and the split that its rows belong to."""

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

    @property
    def stop_row(self) -> int:
        return self.first_row + self.num_rows


@dataclass(frozen=True)
class Layout:
    """The layout of the parts stored in ``work``."""

    work: Artifact
    rows_of_parts: tuple[tuple[int, ...], ...]  # row counts of each piece's parts
    num_train: int
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
        """Return a part's ``text`` and ``label_key`` columns."""
        return read_columns(
            self.work.location, _part_name(self.work, "texts", part.piece, part.number)
        )

    def digests(self, part: Part) -> pa.RecordBatch:
        """Return the digests of a part.

        Each kind of digest has the columns ``KIND_high``, ``KIND_low`` and ``KIND_row`` (the row within the part), sorted
        by digest.
        """
        return read_columns(
            self.work.location, _part_name(self.work, "digests", part.piece, part.number)
        )

    @property
    def conflicts(self) -> ShardSet:
        """Return the shards with the ``row`` and ``label_key`` of each dropped row.

        A row is dropped if its exact text occurs in its split with more than one label.
        """
        return ShardSet(
            Artifact(self.work.location, f"{self.work.name}/conflicts"), self.num_partitions
        )

    def read_dropped(self) -> Integers:
        """Return the dropped rows in ascending order. The conflicts must be stored first."""
        rows = []
        for number in range(self.num_partitions):
            batch = self.conflicts.read(number)
            rows.append(batch.column("row").to_numpy())
        return np.sort(np.concatenate(rows))


def _part_name(work: Artifact, kind: str, piece: int, number: int) -> str:
    return f"{work.name}/{kind}/{piece:06}-{number:06}.arrow"


class ReadWorker:
    """Worker that reads a piece, stores it in parts, and returns its labels."""

    def __init__(
        self,
        work: Artifact,
        columns: tuple[str, str],
        is_carved: bool,
        drops_bad_rows: bool,
        report_progress: Callable[[int], None] | None,
    ) -> None:
        self.work = work
        self.columns = columns
        self.is_carved = is_carved
        self.drops_bad_rows = drops_bad_rows
        self.report_progress = report_progress

    def __call__(self, chunk: Columns) -> Shard:
        number = chunk_number(chunk)
        split, piece = PieceOfSplit.from_json(str(chunk["piece"][0][0]))
        labels = _LabelCounts()
        num_rows = 0
        rows_of_parts: list[int] = []
        bad_rows = BadRows(self.drops_bad_rows)
        batches = sources.read_piece(piece, *self.columns, bad_rows)
        for part, batches_of_part in enumerate(_group_into_parts(batches)):
            texts: list[str] = []
            keys_of_batches = []
            for batch in batches_of_part:
                texts += batch.texts
                keys_of_batches.append(labels.add(batch))
            keys = np.concatenate(keys_of_batches)
            columns = {"text": pa.array(texts, pa.string()), "label_key": keys}
            self._write("texts", number, part, columns)
            # A text may have different labels in different splits, so the split is part of the digest.
            digests: dict[str, Any] = _sorted_digests("exact", texts, split)
            digests["exact_label_key"] = keys[digests["exact_row"]]
            digests |= _sorted_digests("folded", map(fold_text, texts))
            if self.is_carved and split == "train":
                words = (" ".join(split_words(text)) for text in texts)
                digests |= _sorted_digests("words", words)
            self._write("digests", number, part, digests)
            rows_of_parts.append(len(texts))
            num_rows += len(texts)
            if self.report_progress:
                self.report_progress(num_rows)
        report = {
            "num_rows": num_rows,
            "rows_of_parts": rows_of_parts,
            "num_bad_rows": bad_rows.count,
            "bad_rows": bad_rows.rows,
        }
        return Shard(labels.columns(), report)

    def _write(self, kind: str, piece: int, number: int, columns: Mapping[str, Any]) -> None:
        content = serialize(columns, {})
        open_folder(self.work.location).put(_part_name(self.work, kind, piece, number), content)


@dataclass
class _Label:
    """One spelling of a label. ``first_row`` is numbered from 1."""

    name: str
    key: int
    first_row: int
    count: int = 0


class _LabelCounts:
    """The labels in a piece, keyed by spelling."""

    def __init__(self) -> None:
        self._labels: dict[str, _Label] = {}

    def add(self, batch: sources.Batch) -> npt.NDArray[np.uint64]:
        """Count a batch's labels and return their keys."""
        keys = []
        names_and_spellings = zip(batch.labels, batch.spellings, strict=True)
        for row, (name, spelling) in enumerate(names_and_spellings, batch.first_row):
            label = self._labels.get(spelling)
            if label is None:
                label = _Label(name, label_key(name), row)
                self._labels[spelling] = label
            label.count += 1
            keys.append(label.key)
        return np.array(keys, np.uint64)

    def columns(self) -> dict[str, Any]:
        labels = self._labels.values()
        names = [label.name for label in labels]
        keys = [label.key for label in labels]
        counts = [label.count for label in labels]
        first_rows = [label.first_row for label in labels]
        return {
            "spelling": pa.array(list(self._labels), pa.string()),
            "name": pa.array(names, pa.string()),
            "label_key": np.array(keys, np.uint64),
            "count": np.array(counts, np.int64),
            "first_row": np.array(first_rows, np.int64),
        }


def label_key(name: str) -> int:
    """Return a digest that identifies the label on every machine until labels are numbered."""
    digest = blake2b(name.encode(), digest_size=_KEY_BYTES).digest()
    return int.from_bytes(digest, "big")


def _group_into_parts(batches: Iterable[sources.Batch]) -> Iterator[list[sources.Batch]]:
    """Yield each part as a list of consecutive batches."""
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
    """Return the texts' 16-byte digests, sorted and split into two integers, and the row of each digest."""
    person = salt.encode()
    hashes = (blake2b(text.encode(), digest_size=_DIGEST_BYTES, person=person) for text in texts)
    digests = b"".join(text_hash.digest() for text_hash in hashes)
    numbers = np.frombuffer(digests, ">u8").astype(np.uint64)
    high = numbers[::2]
    low = numbers[1::2]
    order = np.lexsort((low, high))
    return {
        f"{kind}_high": high[order],
        f"{kind}_low": low[order],
        f"{kind}_row": order.astype(np.int32),
    }


def fold_text(text: str) -> str:
    """Return the text normalized to NFKC, case-folded and with single spaces."""
    return " ".join(normalize("NFKC", text).casefold().split())


class _Partition:
    """The rows of a partition, without dropped rows, sorted by digest and then by row number."""

    def __init__(self, layout: Layout, kind: str, number: int, dropped: Integers) -> None:
        parts = _read_partition(layout, kind, number)
        high, low, rows, label_keys = map(np.concatenate, zip(*parts, strict=True))
        is_kept = np.isin(rows, dropped, invert=True)
        order = np.lexsort((rows, low, high))
        order = order[is_kept[order]]
        self.rows = rows[order]
        self.label_keys = label_keys[order]  # meaningful only for the "exact" kind
        high = high[order]
        low = low[order]
        is_first = np.ones(len(order), bool)
        is_first[1:] = (np.diff(high) != 0) | (np.diff(low) != 0)
        self.starts = np.flatnonzero(is_first)  # one per group of equal digests
        bounds = np.append(self.starts, len(order))
        self.sizes = np.diff(bounds)

    def spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Repeat each group's value for all rows in the group."""
        return np.repeat(values, self.sizes)


def _read_partition(
    layout: Layout, kind: str, number: int
) -> Iterator[tuple[npt.NDArray[Any], ...]]:
    """Yield a partition's digests (high and low halves), rows and label keys, one part at a time."""
    names = [f"{kind}_high", f"{kind}_low", f"{kind}_row", "exact_label_key"]
    first_digest = number * 2**64 // layout.num_partitions
    stop_digest = (number + 1) * 2**64 // layout.num_partitions
    for part in layout.parts:
        digests = layout.digests(part)
        if names[0] not in digests.schema.names:  # word digests exist for train only
            continue
        columns = [digests.column(name).to_numpy() for name in names]
        start = int(np.searchsorted(columns[0], np.uint64(first_digest)))
        stop = None
        if stop_digest < 2**64:
            stop = int(np.searchsorted(columns[0], np.uint64(stop_digest)))
        # A view would keep the whole part in memory.
        high, low, rows_of_part, label_keys = (column[start:stop].copy() for column in columns)
        rows = rows_of_part.astype(np.int64) + part.first_row
        yield high, low, rows, label_keys


class ConflictWorker:
    """Worker that finds texts with more than one label in the same split, and returns their rows.

    For each split, the report contains the number of these texts, and the first row and label keys of a few of them.
    ``first_rows`` contains the first row of each split, followed by the total number of rows.
    """

    def __init__(self, layout: Layout, first_rows: tuple[int, ...]) -> None:
        self.layout = layout
        self.first_rows = first_rows

    def __call__(self, chunk: Columns) -> Shard:
        no_rows = np.zeros(0, np.int64)
        partition = _Partition(self.layout, "exact", chunk_number(chunk), no_rows)
        keys = partition.label_keys
        first_keys = partition.spread(keys[partition.starts])
        has_conflict = np.logical_or.reduceat(keys != first_keys, partition.starts)
        dropped = np.flatnonzero(partition.spread(has_conflict))
        by_row = np.argsort(partition.rows[dropped])
        dropped = dropped[by_row]
        columns = {"row": partition.rows[dropped], "label_key": keys[dropped]}
        groups = np.flatnonzero(has_conflict)
        first_rows = partition.rows[partition.starts[groups]]
        groups_by_row = np.argsort(first_rows)
        groups = groups[groups_by_row]
        bounds = np.searchsorted(first_rows[groups_by_row], self.first_rows).tolist()
        conflicts = []
        for split_start, split_stop in itertools.pairwise(bounds):
            groups_of_split = groups[split_start:split_stop]
            shown = []
            for group in groups_of_split[:MAX_CONFLICTS_SHOWN].tolist():
                start = partition.starts[group]
                stop = start + partition.sizes[group]
                distinct_keys = np.unique(keys[start:stop])
                shown_keys = distinct_keys[:MAX_LABELS_SHOWN].tolist()
                first_row = int(partition.rows[start])
                shown.append([first_row, shown_keys])
            conflicts.append([len(groups_of_split), shown])
        return Shard(columns, {"conflicts": conflicts})


class DuplicateWorker:
    """Worker that returns the id of each duplicate in a partition, and the lowest id with the same digest.

    Chunks are numbered by kind of digest, then by partition.
    """

    def __init__(self, layout: Layout, kinds: tuple[str, ...]) -> None:
        self.layout = layout
        self.kinds = kinds
        self.dropped = layout.read_dropped()

    def __call__(self, chunk: Columns) -> Shard:
        kind_number, number = divmod(chunk_number(chunk), self.layout.num_partitions)
        kind = self.kinds[kind_number]
        partition = _Partition(self.layout, kind, number, self.dropped)
        num_dropped_before = np.searchsorted(self.dropped, partition.rows)
        ids = (partition.rows - num_dropped_before).astype(np.int32)
        first_ids = partition.spread(ids[partition.starts])
        is_later = ids != first_ids
        columns = {"id": ids[is_later], "first": first_ids[is_later]}
        return Shard(columns, {})


class TextWorker:
    """Worker that returns the texts and label numbers for a range of ids."""

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
        texts = []
        label_keys = []
        for part in self.layout.parts:
            start, stop = np.searchsorted(rows, [part.first_row, part.stop_row])
            if start == stop:
                continue
            places = rows[start:stop] - part.first_row
            batch = self.layout.texts(part).take(pa.array(places))
            texts.append(batch.column("text"))
            label_keys.append(batch.column("label_key").to_numpy())
        positions = np.searchsorted(self.keys, np.concatenate(label_keys))
        labels = self.numbers[positions]
        return Shard({"text": pa.concat_arrays(texts), "label": labels}, {})


class GatherWorker:
    """Worker that returns the texts of a chunk's ids, which must be ascending."""

    def __init__(self, shards: ShardSet, rows_per_shard: int) -> None:
        self.shards = shards
        self.rows_per_shard = rows_per_shard

    def __call__(self, chunk: Columns) -> Columns:
        ids = np.asarray(chunk["ids"][0], np.int64)
        numbers, places = np.divmod(ids, self.rows_per_shard)
        texts: list[str] = []
        for number in np.unique(numbers).tolist():
            places_in_shard = places[numbers == number]
            column = self.shards.read(number).column("text")
            texts_of_shard = column.take(pa.array(places_in_shard))
            texts += texts_of_shard.to_pylist()
        return {"text": np.array(texts, object)}


class InsideWorker:
    """Worker that searches a shard's training rows for phrases. The chunk contains a mask of the training rows."""

    def __init__(
        self, shards: ShardSet, rows_per_shard: int, phrases: ShardSet, max_rows: int
    ) -> None:
        self.shards = shards
        self.rows_per_shard = rows_per_shard
        texts = phrases.read(0).column("text")
        self.phrases = Phrases(texts.to_pylist())
        self.max_rows = max_rows

    def __call__(self, chunk: Columns) -> Columns:
        """Return one entry with a count per phrase found, followed by one entry per match of a rare phrase."""
        number = chunk_number(chunk)
        first_row = number * self.rows_per_shard
        texts = self.shards.read(number).column("text")
        packed = np.frombuffer(bytes.fromhex(str(chunk["is_train"][0][0])), np.uint8)
        is_train = np.unpackbits(packed, count=len(texts))
        places = np.flatnonzero(is_train)
        nothing = np.zeros(0, np.int64)
        blocks = [Matches(nothing, nothing, nothing, nothing)]
        for start in range(0, len(places), BLOCK_ROWS):
            block = places[start : start + BLOCK_ROWS]
            block_texts = texts.take(pa.array(block)).to_pylist()
            matches = match_phrases(self.phrases, first_row + block, block_texts, self.max_rows)
            blocks.append(matches)
        counted, counts, rows, phrases = map(np.concatenate, zip(*blocks, strict=True))
        totals = np.bincount(counted, counts).astype(np.int64)
        present = np.flatnonzero(totals)
        total_counts = totals[present]
        no_row = np.full(len(present), -1)
        no_count = np.zeros(len(rows), np.int64)
        return {
            "phrase": np.concatenate([present, phrases]),
            "count": np.concatenate([total_counts, no_count]),
            "row": np.concatenate([no_row, rows]),
        }


def pack_masks(is_train: npt.NDArray[np.bool_], rows_per_shard: int) -> npt.NDArray[np.object_]:
    """Return a mask of each shard's training rows, encoded for :class:`InsideWorker`."""
    masks = []
    for start in range(0, len(is_train), rows_per_shard):
        packed = np.packbits(is_train[start : start + rows_per_shard])
        masks.append(packed.tobytes().hex())
    return np.array(masks, object)


def as_matches(columns: Columns) -> Matches:
    """Convert the output of :class:`InsideWorker` to matches."""
    is_count = columns["row"] < 0
    phrases = columns["phrase"]
    return Matches(
        phrases[is_count], columns["count"][is_count], columns["row"][~is_count], phrases[~is_count]
    )
