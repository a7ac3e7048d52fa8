"""Building a sweep's sentences: reading, conflicting labels, label numbers, shards, duplicates and the dev split.

Workers read and write everything that grows with the texts, one part, partition or shard at a time. This process holds
only numbers per row: its label, split and groups, and the data for carving dev, at most some 60 bytes.
"""

import io
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raysweep.data import sources
from raysweep.data.artifacts import Artifact, Store
from raysweep.data.containment import Answer, Containment
from raysweep.data.dataset import NO_SPLIT, SPLITS, Split, Summary
from raysweep.data.dev_split import carve
from raysweep.data.overlap import overlaps
from raysweep.data.shards import Report, Shard, ShardSet
from raysweep.errors import InputError
from raysweep.prepare import ingest
from raysweep.prepare.chunks import ChunkedJob
from raysweep.prepare.ingest import Layout, PieceOfSplit
from raysweep.prepare.plan import SentencesStage
from raysweep.prepare.workers import Columns
from raysweep.storage.folder import open_folder

ROWS_PER_SHARD = 2**16
ROWS_PER_PARTITION = 2**17  # approximate
FEW_ROWS = 2**17  # this process handles this many rows itself once they are read
FEW_BYTES = 2**25
FEW_PIECES = 8
FOOTERS_AT_ONCE = 16  # of large Parquet files, which describe the row groups

_GATHERED = 2**13  # texts returned at a time
_MOST_DIGITS = 4000  # of a number in a name; Python parses at most 4,300
_NUM_SHOWN = 5  # conflicting texts in the summary

Integers = npt.NDArray[np.int64]


class Steps(Protocol):
    """Interface for running the jobs of a stage, on a cluster or, if ``is_small``, in this process."""

    def store_shards(self, artifact: Artifact, job: ChunkedJob, *, is_small: bool) -> list[Report]:
        """Return the reports of an artifact's shards, one per chunk.

        The job's workers build the missing shards.
        """

    def run(self, job: ChunkedJob, *, is_small: bool) -> Iterator[Columns]:
        """Yield the results of the job's workers."""

    def tell(self, num_rows: int) -> None:
        """Report the number of rows that the current step has processed."""


@dataclass(frozen=True)
class _Conflict:
    """A text with different labels in one split: the row where it first occurs, and the keys of its labels."""

    row: int
    label_keys: list[int]


@dataclass
class _Conflicts:
    """The conflicts of one split: the number of texts, the first few of them, and the number of dropped rows."""

    num_texts: int
    first: list[_Conflict]
    num_rows: int


@dataclass
class _Rows:
    """The rows of the dataset in order of their ids: labels and splits, (rows,) each."""

    labels: npt.NDArray[np.int32]
    splits: npt.NDArray[np.int8]

    def is_in(self, split: Split) -> npt.NDArray[np.bool_]:
        is_in: npt.NDArray[np.bool_] = self.splits == SPLITS.index(split)
        return is_in

    def ids(self, split: Split) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self.is_in(split))


class SentencesBuilder:
    """Builder of the sentences of one stage, step by step.

    Results stored by an earlier attempt are reused.
    """

    def __init__(self, stage: SentencesStage, store: Store, steps: Steps) -> None:
        self.stage = stage
        self.store = store
        self.steps = steps
        self.data = stage.data
        self.seed = stage.parameters.get("seed", 0)
        self.used = ingest.used_sources(stage.data)
        listed = [PieceOfSplit(split, piece) for split, pieces in stage.listed.items() for piece in pieces]
        with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
            shares = pool.map(sources.share_out, [piece for _, piece in listed])
            self.pieces = [
                PieceOfSplit(split, share) for (split, _), some in zip(listed, shares, strict=True) for share in some
            ]
        self.work = store.working(stage.artifact)
        self._num_questions = 0

    def build(self) -> tuple[Summary, list[Report]]:
        """Return the summary of the dataset and the reports of its shards, without writing the manifest.

        Without ``data.test`` there are no test rows, except that the source ``demo`` as train brings its own. Given
        splits are never changed; warnings count their rows that also occur in train or inside training rows.

        Raises:
            InputError: If :func:`raysweep.data.sources.read_pieces` rejects a source, there are fewer than two classes,
                a split has labels that train lacks, or the label column does not contain labels.
        """
        self._read()
        conflicts = self._find_conflicts()
        label_names = self._settle_labels()
        shown, warnings = self._report_conflicts(conflicts)
        warnings += self._report_merged_labels()
        reports = self._write_texts(label_names)
        rows = _Rows(self._labels(), self._first_splits())
        groups = self._groups("folded")
        if not self.data.dev:
            self._carve_dev(rows)
            warnings += _carving_warnings(rows, label_names)
        ids = {split: rows.ids(split) for split in SPLITS}
        shared = overlaps(ids, groups, self._containment(rows.is_in("train")), seed=self.seed)
        for overlap in shared.values():
            warnings += overlap.warnings
        num_by_label: dict[str, dict[str, int]] = {split: _count_labels(rows, split, label_names) for split in SPLITS}
        for split in self.used:
            warnings += _missing_labels(split, num_by_label[split])
        summary = Summary(
            sources=self.used,
            label_names=label_names,
            num_sentences={split: len(ids[split]) for split in SPLITS},
            num_by_label=num_by_label,
            num_dropped_conflicting=self.layout.num_rows - self._num_kept,
            conflicts=shown,
            num_duplicates={split: _count_duplicates(groups[ids[split]]) for split in SPLITS},
            num_also_in_train={split: overlap.num_also_in_train for split, overlap in shared.items()},
            num_inside_train={split: overlap.num_inside_train for split, overlap in shared.items()},
            num_left_out=int((rows.splits == NO_SPLIT).sum()),
            warnings=warnings,
        )
        self._save(rows, groups, summary)
        return summary, reports

    def _read(self) -> None:
        """Read all pieces and record their layout.

        Raises:
            InputError: If a source has no rows.
        """
        reports = self._read_pieces()
        num_by_split = dict.fromkeys(SPLITS, 0)
        for (split, _), report in zip(self.pieces, reports, strict=True):
            num_by_split[split] += report["num_rows"]
        for split, source in self.used.items():
            if not num_by_split[split]:
                raise InputError(f"{sources.shown(source)}: holds no rows")
        ends = np.cumsum([0, *num_by_split.values()])
        self.first_rows = tuple(ends.tolist())
        rows_of_parts = tuple(tuple(report["rows_of_parts"]) for report in reports)
        num_rows = self.first_rows[-1]
        num_partitions = -(-num_rows // ROWS_PER_PARTITION)
        self.layout = Layout(self.work, rows_of_parts, num_by_split["train"], num_partitions)

    def _read_pieces(self) -> list[Report]:
        """Store the rows of all pieces and return one report per piece."""
        texts = np.array([piece.to_json() for piece in self.pieces], object)
        is_small = self._is_small
        columns = (self.data.text_column, self.data.label_column)
        tell = self.steps.tell if is_small else _tell_nobody
        arguments = (self.work, columns, not self.data.dev, tell)
        job = ChunkedJob(ingest.ReadWorker, arguments, len(texts), 1, {"piece": texts})
        return self.steps.store_shards(self._read_shards.artifact, job, is_small=is_small)

    @property
    def _is_small(self) -> bool:
        """Return whether this process should read the pieces itself.

        This holds for little data, and for a single piece, which cannot be shared out.
        """
        files = [piece.file for _, piece in self.pieces]
        num_bytes = sum(file.num_bytes for file in files if file)
        return len(files) == 1 or (len(files) <= FEW_PIECES and num_bytes <= FEW_BYTES)

    @property
    def _read_shards(self) -> ShardSet:
        return ShardSet(self.store.working(self.stage.artifact, "read"), len(self.pieces))

    @property
    def _has_few(self) -> bool:
        return self.layout.num_rows <= FEW_ROWS

    @cached_property
    def _dropped(self) -> Integers:
        return self.layout.dropped()

    @property
    def _num_kept(self) -> int:
        return self.layout.num_rows - len(self._dropped)

    @cached_property
    def _label_tables(self) -> list[dict[str, Any]]:
        """Return the labels of each piece: their names, keys, counts and first rows."""
        shards = [self._read_shards.read(number) for number in range(len(self.pieces))]
        return [shard.to_pydict() for shard in shards]

    @cached_property
    def _name_of_key(self) -> dict[int, str]:
        named: dict[int, str] = {}
        for table in self._label_tables:
            named.update(zip(table["label_key"], table["name"], strict=True))
        return named

    def _find_conflicts(self) -> dict[Split, _Conflicts]:
        """Return, by split, the texts with different labels, after workers have found their rows."""
        self._check_number_of_labels()
        arguments = (self.layout, self.first_rows)
        job = ChunkedJob(ingest.ConflictWorker, arguments, self.layout.num_partitions, 1)
        reports = self.steps.store_shards(self.layout.conflicts.artifact, job, is_small=self._has_few)
        return {
            split: self._conflicts_of(number, [report["conflicts"][number] for report in reports])
            for number, split in enumerate(SPLITS)
        }

    def _conflicts_of(self, number: int, told: Sequence[tuple[int, list[Any]]]) -> _Conflicts:
        """Return the conflicts of the split with this number.

        ``told`` has, for each partition, the number of texts and the first few of them.
        """
        num_texts = sum(count for count, _ in told)
        few = itertools.chain.from_iterable(conflicts for _, conflicts in told)
        first = sorted(map(tuple, few))[:_NUM_SHOWN]
        shown = [_Conflict(row, keys) for row, keys in first]
        return _Conflicts(num_texts, shown, self._num_dropped_of(number))

    def _num_dropped_of(self, number: int) -> int:
        """Return the number of dropped rows of the split with this number.

        Raises:
            InputError: If no row of the split is left.
        """
        start, stop = self.first_rows[number : number + 2]
        num_dropped = self._num_dropped(start, stop)
        if num_dropped and num_dropped == stop - start:
            name = sources.shown(self.used[SPLITS[number]])
            raise InputError(f"{name}: nothing is left, as every text carries different labels")
        return num_dropped

    def _num_dropped(self, start: int, stop: int) -> int:
        """Return the number of dropped rows from ``start`` to ``stop``, exclusive."""
        first, end = np.searchsorted(self._dropped, [start, stop]).tolist()
        return int(end - first)

    def _check_number_of_labels(self) -> None:
        tables = [table for (split, _), table in zip(self.pieces, self._label_tables, strict=True) if split == "train"]
        num_labels = len({name for table in tables for name in table["name"]})
        num_rows = self.layout.num_train
        if num_labels > 1000 and num_labels > num_rows / 2:
            raise InputError(
                f"{sources.shown(self.data.train)}: {num_labels} different labels in {num_rows} rows; is label_column right?"
            )

    def _settle_labels(self) -> list[str]:
        """Return the names of train's remaining labels in natural sort order.

        Raises:
            InputError: If there is only one label, or another split has a label that train lacks.
        """
        left: dict[str, int] = {}
        for (split, _), table in zip(self.pieces, self._label_tables, strict=True):
            if split == "train":
                for name, count in zip(table["name"], table["count"], strict=True):
                    left[name] = left.get(name, 0) + count
        for key, count in self._dropped_of_train():
            left[self._name_of_key[key]] -= count
        names = sorted((name for name, count in left.items() if count), key=_natural)
        if len(names) == 1:
            name = sources.shown(self.data.train)
            raise InputError(f"{name}: every row has the label {names[0]!r}; at least two classes are needed")
        self._check_known(names)
        return names

    def _dropped_of_train(self) -> Iterator[tuple[int, int]]:
        """Yield, per partition, the label keys of dropped training rows and their numbers of rows."""
        conflicts = self.layout.conflicts
        for number in range(conflicts.count):
            batch = conflicts.read(number)
            is_of_train = batch.column("row").to_numpy() < self.layout.num_train
            keys, counts = np.unique(batch.column("label_key").to_numpy()[is_of_train], return_counts=True)
            yield from zip(keys.tolist(), counts.tolist(), strict=True)

    def _check_known(self, names: Sequence[str]) -> None:
        """Raise InputError for the first label that train lacks."""
        in_train = set(names)
        for (split, piece), table in zip(self.pieces, self._label_tables, strict=True):
            if split == "train":
                continue
            rows = zip(table["first_row"], table["name"], strict=True)
            unknown = [(row, name) for row, name in rows if name not in in_train]
            if unknown:
                row, label = min(unknown)
                some = ", ".join(map(repr, names[:10]))
                known = f"{some}, ..." if len(names) > 10 else some
                raise InputError(f"{piece.name}: row {row}: label {label!r} does not occur in train, which has {known}")

    def _report_conflicts(self, found: Mapping[Split, _Conflicts]) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the first few conflicting texts, and a warning for each source that has any."""
        shown: list[dict[str, Any]] = []
        warnings = []
        for split, conflicts in found.items():
            entries = [self._described(split, conflict) for conflict in conflicts.first]
            shown += entries
            if entries:
                first = entries[0]
                problem = (
                    f"{conflicts.num_texts} texts carry different labels; their {conflicts.num_rows} rows are dropped"
                )
                labels = ", ".join(first["labels"])
                warnings.append(
                    f"{sources.shown(self.used[split])}: {problem}, such as {first['text'][:80]!r} ({labels})"
                )
        return shown[:_NUM_SHOWN], warnings

    def _report_merged_labels(self) -> list[str]:
        """Return the warning about labels that the sources spell in several ways, if there are any."""
        spelled = (
            label for table in self._label_tables for label in zip(table["name"], table["spelling"], strict=True)
        )
        merged = sources.merged_labels(spelled)
        return [merged] if merged else []

    def _described(self, split: Split, conflict: _Conflict) -> dict[str, Any]:
        part = next(part for part in self.layout.parts if conflict.row < part.first_row + part.num_rows)
        text = self.layout.texts(part).column("text")[conflict.row - part.first_row].as_py()
        labels = sorted((self._name_of_key[key] for key in conflict.label_keys), key=_natural)
        return {"split": split, "text": text, "labels": labels}

    @cached_property
    def _shards(self) -> ShardSet:
        return ShardSet(self.stage.artifact, -(-self._num_kept // ROWS_PER_SHARD))

    def _write_texts(self, label_names: Sequence[str]) -> list[Report]:
        """Store the texts and label numbers by id and return the shards' reports."""
        numbers = {ingest.label_key(name): number for number, name in enumerate(label_names)}
        keys = np.array(sorted(numbers), np.uint64)
        columns = {
            "label_key": keys,
            "number": np.array([numbers[key] for key in keys.tolist()], np.int32),
        }
        into = ShardSet(self.store.working(self.stage.artifact, "labels"), 1)
        into.write(0, Shard(columns, {}))
        job = ChunkedJob(ingest.TextWorker, (self.layout, into), self._num_kept, ROWS_PER_SHARD)
        return self.steps.store_shards(self.stage.artifact, job, is_small=self._has_few)

    def _labels(self) -> npt.NDArray[np.int32]:
        columns = (self._shards.read(number).column("label").to_numpy() for number in range(self._shards.count))
        return np.concatenate(list(columns))

    def _first_splits(self) -> npt.NDArray[np.int8]:
        """Return the splits as given by the sources."""
        bounds = self.first_rows - np.searchsorted(self._dropped, self.first_rows)
        return np.repeat(np.arange(len(SPLITS), dtype=np.int8), np.diff(bounds))

    def _groups(self, kind: str) -> npt.NDArray[np.int32]:
        """Return a group number per row, in order of first appearance.

        Rows share a number if their digests of this ``kind`` are equal.
        """
        kinds = ("folded",) if self.data.dev else ("folded", "words")
        num_partitions = self.layout.num_partitions
        into = ShardSet(self.store.working(self.stage.artifact, "duplicates"), len(kinds) * num_partitions)
        job = ChunkedJob(ingest.DuplicateWorker, (self.layout, kinds), into.count, 1)
        self.steps.store_shards(into.artifact, job, is_small=self._has_few)
        firsts = np.arange(self._num_kept, dtype=np.int32)
        is_first = np.ones(self._num_kept, bool)
        for number in range(num_partitions):
            later = into.read(kinds.index(kind) * num_partitions + number)
            ids = later.column("id").to_numpy()
            firsts[ids] = later.column("first").to_numpy()
            is_first[ids] = False
        numbers = np.cumsum(is_first, dtype=np.int32) - np.int32(1)
        groups: npt.NDArray[np.int32] = numbers[firsts]
        return groups

    def _carve_dev(self, rows: _Rows) -> None:
        """Move some rows from train to dev and leave others out of train."""
        is_train = rows.is_in("train")
        num_train = int(is_train.sum())  # training rows come first, so their positions are their ids
        carving = carve(
            rows.labels[:num_train],
            self._groups("words")[:num_train],
            self._containment(is_train),
            fraction=self.data.dev_fraction,
            max_rows=self.data.max_dev,
            seed=self.seed,
        )
        if not carving.is_dev.any():
            raise InputError(f"{sources.shown(self.data.train)}: {_why_no_dev(rows.labels[:num_train])}")
        rows.splits[:num_train][carving.is_dev] = SPLITS.index("dev")
        rows.splits[:num_train][carving.is_left_out] = NO_SPLIT

    def _containment(self, is_train: npt.NDArray[np.bool_]) -> Containment:
        """Return the lookup of texts inside training rows, which queries the workers."""

        def ask(phrases: Sequence[str], most: int) -> Iterator[Answer]:
            return self._ask(phrases, most, is_train)

        return Containment(self._take_texts, ask)

    def _ask(self, phrases: Sequence[str], most: int, is_train: npt.NDArray[np.bool_]) -> Iterator[Answer]:
        name = f"question-{self._num_questions}"
        self._num_questions += 1
        place = self.store.working(self.stage.artifact, name)
        question = ShardSet(place, 1)
        texts = pa.array(phrases, pa.string())
        question.write(0, Shard({"text": texts}, {}))
        starts = range(0, len(is_train), ROWS_PER_SHARD)
        marks = [ingest.packed(is_train[start : start + ROWS_PER_SHARD]) for start in starts]
        columns = {"is_train": np.array(marks, object)}
        arguments = (self._shards, ROWS_PER_SHARD, question, most)
        job = ChunkedJob(ingest.InsideWorker, arguments, self._shards.count, 1, columns)
        for number, answered in enumerate(self.steps.run(job, is_small=self._has_few), 1):
            self.steps.tell(min(number * ROWS_PER_SHARD, self._num_kept))
            yield ingest.as_answer(answered)

    def _take_texts(self, ids: npt.NDArray[np.integer]) -> Iterator[Sequence[str]]:
        """Yield the texts of these ids, in order, in batches."""
        for first in range(0, len(ids), ingest.PART_ROWS):
            some = np.asarray(ids[first : first + ingest.PART_ROWS], np.int64)
            ascending = np.sort(some)
            texts = self._gather_texts(ascending)
            places = np.searchsorted(ascending, some)
            yield texts[places].tolist()

    def _gather_texts(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the texts of these ascending ids."""
        arguments = (self._shards, ROWS_PER_SHARD)
        job = ChunkedJob(ingest.GatherWorker, arguments, len(ids), _GATHERED, {"ids": ids})
        gathered = self.steps.run(job, is_small=self._has_few)
        return np.concatenate([columns["text"] for columns in gathered])

    def _save(self, rows: _Rows, groups: npt.NDArray[np.int32], summary: Summary) -> None:
        self._save_array("labels", rows.labels)
        self._save_array("splits", rows.splits)
        self._save_array("duplicate_groups", groups)
        text = json.dumps(asdict(summary), indent=1)
        self._put("dataset.json", text.encode())

    def _save_array(self, name: str, array: npt.NDArray[Any]) -> None:
        buffer = io.BytesIO()
        np.save(buffer, array)
        self._put(f"{name}.npy", buffer.getvalue())

    def _put(self, name: str, content: bytes) -> None:
        open_folder(self.store.location).put(f"{self.stage.artifact.name}/{name}", content)


def _tell_nobody(num_rows: int) -> None:
    """Ignore progress; on a cluster the stored shards show how far reading has come."""


def _natural(name: str) -> tuple[bool, float, list[str | int], str]:
    """Return a sort key: numbers first and by value, then names with their runs of digits by value."""
    if re.fullmatch(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", name):
        return False, float(name), [], name
    parts = re.split(r"(\d+)", name.casefold())
    return True, 0.0, [int(part[:_MOST_DIGITS]) if i % 2 else part for i, part in enumerate(parts)], name


def _count_labels(rows: _Rows, split: Split, label_names: Sequence[str]) -> dict[str, int]:
    counts = np.bincount(rows.labels[rows.ids(split)], minlength=len(label_names))
    return dict(zip(label_names, counts.tolist(), strict=True))


def _why_no_dev(labels: npt.NDArray[np.int32]) -> str:
    """Return the reason why training rows with these labels, (rows,), allow no dev split."""
    num_of_each = np.unique_counts(labels).counts
    if num_of_each.max() == 1:
        return f"each label has one row ({len(num_of_each)} labels), so none is left for a dev split; give data.dev"
    return f"too few rows ({len(labels)}) to carve a dev split from; give data.dev"


def _count_duplicates(groups: npt.NDArray[np.int32]) -> int:
    return len(groups) - len(np.unique(groups))


def _carving_warnings(rows: _Rows, label_names: Sequence[str]) -> list[str]:
    """Return warnings about side effects of carving dev."""
    warnings = []
    if count := (rows.splits == NO_SPLIT).sum():
        warnings.append(
            f"{count} training texts contain dev texts, word for word, and are left out of train and the pool"
        )
    in_train = np.bincount(rows.labels[rows.ids("train")], minlength=len(label_names))
    in_dev = np.bincount(rows.labels[rows.ids("dev")], minlength=len(label_names))
    absent = [label_names[label] for label in np.flatnonzero((in_train > 1) & (in_dev == 0)).tolist()]
    if absent:
        warnings.append(
            f"dev has no text of {_some_labels(absent, len(label_names))}: their texts all stand in texts that train keeps"
        )
    return warnings


def _missing_labels(split: Split, num_by_label: Mapping[str, int]) -> Iterator[str]:
    """Yield a warning if a given split lacks some of the labels, all of which train has."""
    absent = [label for label, count in num_by_label.items() if not count]
    if absent:
        yield f"{split} has no text of {_some_labels(absent, len(num_by_label))}: its scores say nothing of them"


def _some_labels(labels: Sequence[str], num_labels: int) -> str:
    """Return the number of these labels out of all, and the names of the first few."""
    return f"{len(labels)} of {num_labels} labels ({', '.join(labels[:_NUM_SHOWN])})"
