"""The workers that turn sources into a dataset: parts of texts and digests, conflicts, duplicates, shards.

A *piece* is read into *parts* of rows. Rows are numbered from 0 over all pieces: those of train, then dev, then test.
Equal texts are found by digest. Digests are divided into *partitions*, so that no worker holds more than one partition.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raysweep.config.sweep import DataConfig
from raysweep.data import sources
from raysweep.data.artifacts import Artifact
from raysweep.data.containment import Answer, answer
from raysweep.data.dataset import HUB_SPLITS, Split
from raysweep.data.files import RowGroups
from raysweep.data.phrases import Phrases, words
from raysweep.data.shards import Shard, ShardSet, read_columns, serialized
from raysweep.data.source_files import SourceFile
from raysweep.data.sources import Piece
from raysweep.storage.folder import open_folder

PART_ROWS = 2**16
PART_CHARACTERS = 2**24  # a part with more characters ends early
_DIGEST_BYTES = 16
_KEY_BYTES = 8
_NUM_LABELS_SHOWN = 100  # labels reported for a conflicting text
_NUM_SHOWN = 5  # conflicting texts reported by a worker for each split

Chunk = Mapping[str, npt.NDArray[Any]]
Integers = npt.NDArray[np.int64]
Listed = Mapping[Split, Sequence[Piece]]
"""The pieces of each split's source. Splits without a source have no entry."""


def used_sources(data: DataConfig) -> dict[Split, sources.Source]:
    """Return the source of each split that has one. The demo brings its own test split."""
    test = data.test or ("demo" if data.train == "demo" else None)
    given: dict[Split, sources.Source | None] = {"train": data.train, "dev": data.dev, "test": test}
    return {split: source for split, source in given.items() if source}


def list_pieces(data: DataConfig) -> Listed:
    """List the pieces of each split's source, once.

    Raises:
        InputError: As :func:`raysweep.data.sources.pieces` does.
    """
    return {
        split: sources.pieces(source, subset=data.subset, split=HUB_SPLITS[split])
        for split, source in used_sources(data).items()
    }


class PieceOfSplit(NamedTuple):
    """A piece and the split of its rows."""

    split: Split
    piece: Piece

    def to_json(self) -> str:
        return json.dumps([self.split, asdict(self.piece)])

    @classmethod
    def from_json(cls, text: str) -> "PieceOfSplit":
        split, values = json.loads(text)
        file = values["file"] and SourceFile(**values["file"])
        groups = values["groups"] and RowGroups(*values["groups"])
        return cls(split, Piece(**{**values, "file": file, "groups": groups}))


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
    rows_of_parts: tuple[tuple[int, ...], ...]  # by piece
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

        For each kind of digest there are the columns ``_high`` and ``_low``, ascending, and ``_row``, the rows within
        the part.
        """
        return read_columns(self.work.location, _part_name(self.work, "digests", part.piece, part.number))

    @property
    def conflicts(self) -> ShardSet:
        """Return the shards of ``row`` and ``label_key`` of the dropped rows.

        A row is dropped if its exact text has different labels in one split.
        """
        return ShardSet(Artifact(self.work.location, f"{self.work.name}/conflicts"), self.num_partitions)

    def dropped(self) -> Integers:
        """Return the dropped rows, ascending. Conflicts must have been found before."""
        columns = [self.conflicts.read(number).column("row").to_numpy() for number in range(self.num_partitions)]
        return np.sort(np.concatenate(columns))


def _part_name(work: Artifact, kind: str, piece: int, number: int) -> str:
    return f"{work.name}/{kind}/{piece:06}-{number:06}.arrow"


class ReadWorker:
    """Worker that reads a piece into parts, and returns a table of the labels that occur in it."""

    def __init__(
        self, work: Artifact, columns: tuple[str, str], is_carved: bool, progress: Callable[[int], None]
    ) -> None:
        self.work = work
        self.columns = columns
        self.is_carved = is_carved
        self.progress = progress

    def __call__(self, chunk: Chunk) -> Shard:
        number = int(chunk["number"][0])
        split, piece = PieceOfSplit.from_json(str(chunk["piece"][0][0]))
        labels = _LabelTable()
        rows_of_parts: list[int] = []
        for batches in _in_parts(sources.read_piece(piece, *self.columns)):
            part = len(rows_of_parts)
            texts = [text for batch in batches for text in batch.texts]
            keys = np.concatenate([labels.keys(batch) for batch in batches])
            self._write("texts", number, part, {"text": pa.array(texts, pa.string()), "label_key": keys})
            self._write("digests", number, part, self._digests(split, texts, keys))
            rows_of_parts.append(len(texts))
            self.progress(sum(rows_of_parts))
        numbers = {"num_rows": sum(rows_of_parts), "rows_of_parts": rows_of_parts}
        return Shard(labels.columns(), numbers)

    def _write(self, kind: str, piece: int, number: int, columns: Mapping[str, Any]) -> None:
        content = serialized(columns, {})
        open_folder(self.work.location).put(_part_name(self.work, kind, piece, number), content)

    def _digests(self, split: Split, texts: Sequence[str], keys: npt.NDArray[np.uint64]) -> dict[str, Any]:
        exact = _sorted_digests("exact", texts, split)  # a text may have different labels in different splits
        found = {**exact, "exact_label_key": keys[exact["exact_row"]]}
        found |= _sorted_digests("folded", map(folded, texts))
        if self.is_carved and split == "train":
            found |= _sorted_digests("words", (" ".join(words(text)) for text in texts))
        return found


class _LabelTable:
    """The labels of a piece by spelling: name, key, number of rows, and first row (counting from 1)."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._keys: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._first_rows: dict[str, int] = {}

    def keys(self, batch: sources.Batch) -> npt.NDArray[np.uint64]:
        """Count a batch's labels and return their keys."""
        for row, (label, spelling) in enumerate(zip(batch.labels, batch.spellings, strict=True), batch.first_row):
            if spelling not in self._keys:
                self._names[spelling] = label
                self._keys[spelling] = label_key(label)
                self._first_rows[spelling] = row
            self._counts[spelling] = self._counts.get(spelling, 0) + 1
        return np.array([self._keys[spelling] for spelling in batch.spellings], np.uint64)

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


def _in_parts(batches: Iterable[sources.Batch]) -> Iterator[list[sources.Batch]]:
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
    content = b"".join(
        blake2b(text.encode(), digest_size=_DIGEST_BYTES, person=salt.encode()).digest() for text in texts
    )
    halves = np.frombuffer(content, ">u8").astype(np.uint64).reshape(-1, 2)
    order = np.lexsort((halves[:, 1], halves[:, 0]))
    return {
        f"{kind}_high": halves[order, 0],
        f"{kind}_low": halves[order, 1],
        f"{kind}_row": order.astype(np.int32),
    }


def folded(text: str) -> str:
    return " ".join(normalize("NFKC", text).casefold().split())


def _of_parts(
    layout: Layout, kind: str, number: int, is_wanted: Callable[[Integers], Any] | None
) -> Iterator[list[npt.NDArray[Any]]]:
    """Yield a partition's rows of each part: both halves of the digests, rows and label keys, (rows,) each."""
    columns = (f"{kind}_high", f"{kind}_low", f"{kind}_row", "exact_label_key")
    for part in layout.parts:
        batch = layout.digests(part)
        if columns[0] not in batch.schema.names:  # digests of words exist for train only
            continue
        highs = batch.column(columns[0]).to_numpy()
        within = _within(highs, number, layout.num_partitions)
        high, low, places, keys = (batch.column(name).to_numpy()[within] for name in columns)
        rows = places.astype(np.int64) + part.first_row
        some = slice(None) if is_wanted is None else is_wanted(rows)
        yield [high[some], low[some], rows[some], keys[some]]


def _changes(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return whether each value except the first differs from the previous one."""
    changes: npt.NDArray[np.bool_] = values[1:] != values[:-1]
    return changes


class _Partition:
    """The rows of a partition sorted by digest; ``rows`` (rows,) ascend among equal digests."""

    def __init__(
        self, layout: Layout, kind: str, number: int, is_wanted: Callable[[Integers], Any] | None = None
    ) -> None:
        """Read a partition. ``is_wanted`` takes rows (rows,) and returns which to include; all by default."""
        found = list(_of_parts(layout, kind, number, is_wanted))
        high, low, rows, keys = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.lexsort((rows, low, high))
        self.rows = rows[order]
        self.label_keys = keys[order]  # meaningful for the kind "exact" only
        is_first = np.ones(len(order), bool)
        is_first[1:] = _changes(high[order]) | _changes(low[order])
        self.starts = np.flatnonzero(is_first)
        self.sizes = np.diff(np.append(self.starts, len(order)))

    def spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Repeat each value, one for each group of equal digests, for all rows of its group."""
        return np.repeat(values, self.sizes)


def _within(highs: npt.NDArray[np.uint64], number: int, count: int) -> slice:
    """Return the slice of a partition's digests among ascending ones."""
    first = np.searchsorted(highs, np.uint64(number * 2**64 // count))
    if number == count - 1:
        return slice(int(first), None)
    behind = np.searchsorted(highs, np.uint64((number + 1) * 2**64 // count))
    return slice(int(first), int(behind))


class ConflictWorker:
    """Worker that finds the rows of a partition whose exact text has different labels in one split.

    For each split it reports the number of such texts and, for the first few, their first row and the keys of their
    labels.
    """

    def __init__(self, layout: Layout, first_rows: tuple[int, ...]) -> None:
        """Create a worker. ``first_rows`` holds the first row of each split and, at the end, the number of all rows."""
        self.layout = layout
        self.first_rows = first_rows

    def __call__(self, chunk: Chunk) -> Shard:
        partition = _Partition(self.layout, "exact", int(chunk["number"][0]))
        keys = partition.label_keys
        lowest = np.minimum.reduceat(keys, partition.starts) if len(keys) else keys
        highest = np.maximum.reduceat(keys, partition.starts) if len(keys) else keys
        is_torn = lowest != highest
        is_dropped = partition.spread(is_torn)
        by_row = np.argsort(partition.rows[is_dropped])
        columns = {
            "row": partition.rows[is_dropped][by_row],
            "label_key": keys[is_dropped][by_row],
        }
        return Shard(columns, {"conflicts": self._told(partition, is_torn)})

    def _told(self, partition: _Partition, is_torn: npt.NDArray[np.bool_]) -> list[Any]:
        torn = np.flatnonzero(is_torn)
        firsts = partition.rows[partition.starts[torn]]
        told = []
        for start, stop in zip(self.first_rows, self.first_rows[1:], strict=False):
            here = torn[(firsts >= start) & (firsts < stop)]
            by_row = here[np.argsort(partition.rows[partition.starts[here]])]
            shown = [_conflict(partition, group) for group in by_row[:_NUM_SHOWN]]
            told.append([len(here), shown])
        return told


def _conflict(partition: _Partition, group: int) -> list[Any]:
    """Return a group's first row, and the keys of its first labels."""
    start = int(partition.starts[group])
    keys = np.unique(partition.label_keys[start : start + int(partition.sizes[group])])
    return [int(partition.rows[start]), keys[:_NUM_LABELS_SHOWN].tolist()]


class DuplicateWorker:
    """Worker that finds the duplicates in a partition: ids after the first with the same digest, with that first id.

    Chunks are numbered by kind of digest, then by partition.
    """

    def __init__(self, layout: Layout, kinds: tuple[str, ...]) -> None:
        self.layout = layout
        self.kinds = kinds
        self.dropped = layout.dropped()

    def __call__(self, chunk: Chunk) -> Shard:
        kind, number = divmod(int(chunk["number"][0]), self.layout.num_partitions)
        partition = _Partition(self.layout, self.kinds[kind], number, self._is_kept)
        firsts = partition.spread(partition.rows[partition.starts])
        is_later = partition.rows != firsts
        columns = {"id": self._ids(partition.rows[is_later]), "first": self._ids(firsts[is_later])}
        return Shard(columns, {})

    def _is_kept(self, rows: Integers) -> npt.NDArray[np.bool_]:
        places = np.searchsorted(self.dropped, rows)
        beyond = np.append(self.dropped, -1)
        is_kept: npt.NDArray[np.bool_] = beyond[places] != rows
        return is_kept

    def _ids(self, rows: Integers) -> npt.NDArray[np.int32]:
        ids = rows - np.searchsorted(self.dropped, rows)
        return ids.astype(np.int32)


class TextWorker:
    """Worker that writes the shards of the dataset: texts and label numbers of chunks of ids."""

    def __init__(self, layout: Layout, label_numbers: ShardSet) -> None:
        self.layout = layout
        numbers = label_numbers.read(0)
        self.keys = numbers.column("label_key").to_numpy()  # ascending
        self.numbers = numbers.column("number").to_numpy()

    @cached_property
    def _kept_before(self) -> Integers:
        """Return the number of kept rows before each dropped row."""
        dropped = self.layout.dropped()
        return dropped - np.arange(len(dropped))

    def __call__(self, chunk: Chunk) -> Shard:
        ids = np.arange(int(chunk["start"][0]), int(chunk["stop"][0]))
        rows = ids + np.searchsorted(self._kept_before, ids, side="right")
        taken = list(self._take(rows))
        texts = pa.concat_arrays([batch.column("text") for batch in taken])
        keys = np.concatenate([batch.column("label_key").to_numpy() for batch in taken])
        labels = self.numbers[np.searchsorted(self.keys, keys)]
        return Shard({"text": texts, "label": labels}, {})

    def _take(self, rows: Integers) -> Iterator[pa.RecordBatch]:
        """Yield the texts and label keys of ``rows``, which must ascend, part by part."""
        for part in self.layout.parts:
            end = part.first_row + part.num_rows
            start, stop = np.searchsorted(rows, [part.first_row, end])
            if start < stop:
                places = rows[start:stop] - part.first_row
                yield self.layout.texts(part).take(pa.array(places))


class GatherWorker:
    """Worker that returns the texts of a chunk's ids, which must ascend."""

    def __init__(self, shards: ShardSet, rows_per_shard: int) -> None:
        self.shards = shards
        self.rows_per_shard = rows_per_shard

    def __call__(self, chunk: Chunk) -> dict[str, npt.NDArray[Any]]:
        ids = np.asarray(chunk["ids"][0], np.int64)
        numbers = ids // self.rows_per_shard
        texts: list[str] = []
        for number in np.unique(numbers).tolist():
            places = ids[numbers == number] - number * self.rows_per_shard
            texts += self.shards.read(number).column("text").take(pa.array(places)).to_pylist()
        return {"text": np.array(texts, object)}


class InsideWorker:
    """Worker that finds which phrases are inside which training rows of a shard. The chunk marks the training rows."""

    def __init__(self, shards: ShardSet, rows_per_shard: int, question: ShardSet, most: int) -> None:
        self.shards = shards
        self.rows_per_shard = rows_per_shard
        self.most = most
        self.question = question

    @cached_property
    def _phrases(self) -> Phrases:
        return Phrases(self.question.read(0).column("text").to_pylist())

    def __call__(self, chunk: Chunk) -> dict[str, npt.NDArray[Any]]:
        """Return one row for each phrase found, with its count, then one for each pair of a row and a phrase."""
        number = int(chunk["number"][0])
        texts = self.shards.read(number).column("text")
        marks = str(chunk["is_train"][0][0])
        packed = np.frombuffer(bytes.fromhex(marks), np.uint8)
        is_train = np.unpackbits(packed, count=len(texts))
        places = np.flatnonzero(is_train)
        answers = [self._answer(number, texts, some) for some in _blocks(places)]
        found = _joined([each.found for each in answers])
        counts = _joined([each.counts for each in answers])
        phrases = _joined([each.phrases for each in answers])
        rows = _joined([each.rows for each in answers])
        totals = np.bincount(found, counts).astype(np.int64)
        each_once = np.flatnonzero(totals)
        no_row = np.full(len(each_once), -1)
        no_count = np.zeros(len(rows), np.int64)
        return {
            "phrase": np.concatenate([each_once, phrases]),
            "count": np.concatenate([totals[each_once], no_count]),
            "row": np.concatenate([no_row, rows]),
        }

    def _answer(self, number: int, texts: pa.StringArray, places: Integers) -> Answer:
        some = texts.take(pa.array(places)).to_pylist()
        return answer(self._phrases, places + number * self.rows_per_shard, some, self.most)


def _blocks(places: Integers, num_rows: int = 8192) -> list[Integers]:
    """Split the places into blocks of some thousand, to limit the words in memory at once."""
    return [places[first : first + num_rows] for first in range(0, len(places), num_rows)]


def packed(is_train: npt.NDArray[np.bool_]) -> str:
    """Return the mask of a shard's training rows in the form that :class:`InsideWorker` takes."""
    return np.packbits(is_train).tobytes().hex()


def as_answer(columns: Mapping[str, npt.NDArray[Any]]) -> Answer:
    """Return the output of :class:`InsideWorker` as an answer."""
    is_count = columns["row"] < 0
    phrases = columns["phrase"]
    return Answer(phrases[is_count], columns["count"][is_count], columns["row"][~is_count], phrases[~is_count])


def _joined(parts: Sequence[Integers]) -> Integers:
    """Concatenate the parts, of which there may be none."""
    nothing = np.zeros(0, np.int64)
    return np.concatenate([nothing, *parts])
