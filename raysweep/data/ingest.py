"""What workers make of the sources on the way to a dataset: parts of texts and digests, conflicts, duplicates, shards.

A *piece* is read into *parts* of rows, which are numbered from 0 over all pieces: the rows of train, then dev, then test.
Equal texts are found by digests, which are shared out over *partitions*, so that nobody holds more than one partition.
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
from raysweep.data.shards import Shard, ShardSet, read_columns, serialised
from raysweep.data.source_files import SourceFile
from raysweep.data.sources import Piece
from raysweep.storage.folder import open_folder

PART_ROWS = 2**16
PART_CHARACTERS = 2**24  # after which a part ends early
_DIGEST_BYTES = 16
_KEY_BYTES = 8
_NUM_LABELS_SHOWN = 100  # of a conflicting text
_NUM_SHOWN = 5  # conflicting texts that a worker tells of each split

Chunk = Mapping[str, npt.NDArray[Any]]
Integers = npt.NDArray[np.int64]
Listed = Mapping[Split, Sequence[Piece]]
"""What the source of each split that has one is made of."""


def used_sources(data: DataConfig) -> dict[Split, sources.Source]:
    """The source of each split that has one. The demo brings its own test split."""
    test = data.test or ("demo" if data.train == "demo" else None)
    given: dict[Split, sources.Source | None] = {"train": data.train, "dev": data.dev, "test": test}
    return {split: source for split, source in given.items() if source}


def list_pieces(data: DataConfig) -> Listed:
    """List the sources once. Raises InputError as :func:`raysweep.data.sources.pieces` does."""
    return {
        split: sources.pieces(source, subset=data.subset, split=HUB_SPLITS[split])
        for split, source in used_sources(data).items()
    }


class PieceOfSplit(NamedTuple):
    """A piece and the split that its rows belong to."""

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
    """Consecutive rows of a piece, and where they stand among all rows."""

    piece: int
    number: int
    first_row: int
    num_rows: int


@dataclass(frozen=True)
class Layout:
    """The parts that all pieces were read into, in the folder ``work``."""

    work: Artifact
    rows_of_parts: tuple[tuple[int, ...], ...]  # of each piece
    num_train: int  # of all rows; those of train come first
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
        """The columns ``text`` and ``label_key`` of a part."""
        return read_columns(self.work.location, _part_name(self.work, "texts", part.piece, part.number))

    def digests(self, part: Part) -> pa.RecordBatch:
        """Of each kind of digest the columns ``_high`` and ``_low``, ascending, and ``_row``, the rows within the part."""
        return read_columns(self.work.location, _part_name(self.work, "digests", part.piece, part.number))

    @property
    def conflicts(self) -> ShardSet:
        """The shards of ``row`` and ``label_key``: the rows that are dropped, since their very text carries two labels."""
        return ShardSet(Artifact(self.work.location, f"{self.work.name}/conflicts"), self.num_partitions)

    def dropped(self) -> Integers:
        """The rows that are dropped, ascending. The conflicts must have been found."""
        columns = [self.conflicts.read(number).column("row").to_numpy() for number in range(self.num_partitions)]
        return np.sort(np.concatenate(columns))


def _part_name(work: Artifact, kind: str, piece: int, number: int) -> str:
    return f"{work.name}/{kind}/{piece:06}-{number:06}.arrow"


class ReadWorker:
    """Reads pieces into parts. What it makes of a piece is a table of the labels that occur in it."""

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
        content = serialised(columns, {})
        open_folder(self.work.location).put(_part_name(self.work, kind, piece, number), content)

    def _digests(self, split: Split, texts: Sequence[str], keys: npt.NDArray[np.uint64]) -> dict[str, Any]:
        exact = _sorted_digests("exact", texts, split)  # a text may have another label in another split
        found = {**exact, "exact_label_key": keys[exact["exact_row"]]}
        found |= _sorted_digests("folded", map(folded, texts))
        if self.is_carved and split == "train":
            found |= _sorted_digests("words", (" ".join(words(text)) for text in texts))
        return found


class _LabelTable:
    """The labels of a piece by spelling: names and keys, how many rows have each, and the first of these, from 1."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._keys: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._first_rows: dict[str, int] = {}

    def keys(self, batch: sources.Batch) -> npt.NDArray[np.uint64]:
        """The keys of a batch's labels, which are counted."""
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
    """What stands for a label while its number is not known: a digest, which is the same everywhere."""
    return int.from_bytes(blake2b(name.encode(), digest_size=_KEY_BYTES).digest(), "big")


def _in_parts(batches: Iterable[sources.Batch]) -> Iterator[list[sources.Batch]]:
    """Consecutive batches that make a part together."""
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
    """Digests of 16 bytes as two columns of numbers, ascending, and the rows that they belong to."""
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
    """Of each part, what lies in a partition: both halves of digests, rows and the keys of labels, (rows,) each."""
    columns = (f"{kind}_high", f"{kind}_low", f"{kind}_row", "exact_label_key")
    for part in layout.parts:
        batch = layout.digests(part)
        if columns[0] not in batch.schema.names:  # words, but for train
            continue
        highs = batch.column(columns[0]).to_numpy()
        within = _within(highs, number, layout.num_partitions)
        high, low, places, keys = (batch.column(name).to_numpy()[within] for name in columns)
        rows = places.astype(np.int64) + part.first_row
        some = slice(None) if is_wanted is None else is_wanted(rows)
        yield [high[some], low[some], rows[some], keys[some]]


def _changes(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether each value but the first is another one than that before it."""
    changes: npt.NDArray[np.bool_] = values[1:] != values[:-1]
    return changes


class _Partition:
    """The rows of a partition by their digests, equal ones together: rows, (rows,), ascending where digests are equal."""

    def __init__(
        self, layout: Layout, kind: str, number: int, is_wanted: Callable[[Integers], Any] | None = None
    ) -> None:
        """``is_wanted`` says which of the rows it is given, (rows,), are to be looked at; all of them if it is not given."""
        found = list(_of_parts(layout, kind, number, is_wanted))
        high, low, rows, keys = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.lexsort((rows, low, high))
        self.rows = rows[order]
        self.label_keys = keys[order]  # of use for the kind "exact" only
        is_first = np.ones(len(order), bool)
        is_first[1:] = _changes(high[order]) | _changes(low[order])
        self.starts = np.flatnonzero(is_first)
        self.sizes = np.diff(np.append(self.starts, len(order)))

    def spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """One value of each group of equal digests for each of its rows."""
        return np.repeat(values, self.sizes)


def _within(highs: npt.NDArray[np.uint64], number: int, count: int) -> slice:
    """Where the digests of a partition stand among ascending ones."""
    first = np.searchsorted(highs, np.uint64(number * 2**64 // count))
    if number == count - 1:
        return slice(int(first), None)
    behind = np.searchsorted(highs, np.uint64((number + 1) * 2**64 // count))
    return slice(int(first), int(behind))


class ConflictWorker:
    """Finds the rows of partitions whose very text carries different labels in one split.

    Of each split it tells how many such texts there are, and of the first few where they stand and their labels' keys.
    """

    def __init__(self, layout: Layout, first_rows: tuple[int, ...]) -> None:
        """``first_rows`` are those of the splits, and the number of all rows."""
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
    """Where a group stands first, and the keys of its first labels."""
    start = int(partition.starts[group])
    keys = np.unique(partition.label_keys[start : start + int(partition.sizes[group])])
    return [int(partition.rows[start]), keys[:_NUM_LABELS_SHOWN].tolist()]


class DuplicateWorker:
    """Finds ids of partitions that are not the first of their digest, each with the id that is.

    Chunks go through the partitions for one kind of digest after the other.
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
    """Writes the shards of the dataset: the texts and the labels' numbers of chunks of ids."""

    def __init__(self, layout: Layout, label_numbers: ShardSet) -> None:
        self.layout = layout
        numbers = label_numbers.read(0)
        self.keys = numbers.column("label_key").to_numpy()  # ascending
        self.numbers = numbers.column("number").to_numpy()

    @cached_property
    def _kept_before(self) -> Integers:
        """How many rows are kept before each that is dropped."""
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
        """What the parts hold of rows, which ascend."""
        for part in self.layout.parts:
            end = part.first_row + part.num_rows
            start, stop = np.searchsorted(rows, [part.first_row, end])
            if start < stop:
                places = rows[start:stop] - part.first_row
                yield self.layout.texts(part).take(pa.array(places))


class GatherWorker:
    """The texts of ids, which a chunk brings along, ascending."""

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
    """Which phrases stand inside which training rows of shards. A chunk brings along which rows are training rows."""

    def __init__(self, shards: ShardSet, rows_per_shard: int, question: ShardSet, most: int) -> None:
        self.shards = shards
        self.rows_per_shard = rows_per_shard
        self.most = most
        self.question = question

    @cached_property
    def _phrases(self) -> Phrases:
        return Phrases(self.question.read(0).column("text").to_pylist())

    def __call__(self, chunk: Chunk) -> dict[str, npt.NDArray[Any]]:
        """One row for each phrase that is found, with its count, then one for each pair of a row and a phrase."""
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
    """Some thousand places at a time, so that their words are not all in memory at once."""
    return [places[first : first + num_rows] for first in range(0, len(places), num_rows)]


def packed(is_train: npt.NDArray[np.bool_]) -> str:
    """Which rows of a shard are training rows, as :class:`InsideWorker` takes it."""
    return np.packbits(is_train).tobytes().hex()


def as_answer(columns: Mapping[str, npt.NDArray[Any]]) -> Answer:
    """The answer in what :class:`InsideWorker` returned."""
    is_count = columns["row"] < 0
    phrases = columns["phrase"]
    return Answer(phrases[is_count], columns["count"][is_count], columns["row"][~is_count], phrases[~is_count])


def _joined(parts: Sequence[Integers]) -> Integers:
    """The parts one after the other, of which there may be none."""
    nothing = np.zeros(0, np.int64)
    return np.concatenate([nothing, *parts])
