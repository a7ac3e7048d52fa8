"""Build a sweep's sentences: read the sources, drop label conflicts, number labels, find duplicates and carve dev.

Workers read and write all texts. This process holds only numbers for each row, such as its label and split, which take
at most about 60 bytes per row.
"""

import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raysweep.data import bad_rows, sources
from raysweep.data.artifacts import Artifact, Store
from raysweep.data.class_labels import check_classes
from raysweep.data.containment import Containment, Matches, measure_overlaps
from raysweep.data.dataset import NO_SPLIT, SPLITS, DatasetSummary, Sentences, Split
from raysweep.data.dev_split import carve
from raysweep.data.shards import Report, Shard, ShardSet
from raysweep.errors import InputError
from raysweep.prepare import ingest
from raysweep.prepare.chunks import ChunkedJob
from raysweep.prepare.ingest import Integers, Layout, PieceOfSplit
from raysweep.prepare.plan import SentencesStage
from raysweep.prepare.workers import Columns
from raysweep.storage.folder import open_folder

ROWS_PER_SHARD = 2**16
ROWS_PER_PARTITION = 2**17  # approximate
FEW_ROWS = 2**17  # after reading, up to this many rows are processed in this process
FEW_BYTES = 2**25
FEW_PIECES = 8
FOOTERS_AT_ONCE = 16  # footers of large Parquet files read at a time
TEXTS_PER_CHUNK = 2**13  # texts returned at a time
MAX_SHOWN = 5  # conflicting texts in the summary, and labels in warnings
MAX_LABELS_LISTED = 10
MAX_LABELS = 1000  # more labels than this, with fewer than two rows each on average, suggest the wrong column

_MAX_DIGITS = 4000  # digits compared per number in a label's name; Python parses at most 4,300


class JobRunner(Protocol):
    """Interface that runs a stage's jobs on a cluster or, if ``is_small``, in this process."""

    def store_shards(self, artifact: Artifact, job: ChunkedJob, *, is_small: bool) -> list[Report]:
        """Build an artifact's missing shards, one per chunk, and return the reports of all its shards."""

    def run(self, job: ChunkedJob, *, is_small: bool) -> Iterator[Columns]:
        """Yield the results of the job's workers."""

    def report_rows(self, num_rows: int) -> None:
        """Report the number of rows that the current step has processed."""


@dataclass
class _Conflicts:
    """Label conflicts in one split. ``shown`` contains the first row and label keys of a few conflicting texts."""

    num_texts: int
    shown: list[tuple[int, list[int]]]
    num_rows: int


@dataclass
class DatasetRows:
    """The labels and splits of the dataset's rows, ordered by id, (rows,) each."""

    labels: npt.NDArray[np.int32]
    splits: npt.NDArray[np.int8]

    def is_in(self, split: Split) -> npt.NDArray[np.bool_]:
        is_in: npt.NDArray[np.bool_] = self.splits == SPLITS.index(split)
        return is_in

    def ids(self, split: Split) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self.is_in(split))

    def count_labels(self, split: Split, num_labels: int) -> npt.NDArray[np.intp]:
        """Return the split's number of rows with each label, (num_labels,)."""
        return np.bincount(self.labels[self.ids(split)], minlength=num_labels)


class SentencesBuilder:
    """Builds a stage's sentences and reuses the results of earlier attempts."""

    def __init__(self, stage: SentencesStage, store: Store, runner: JobRunner) -> None:
        self.stage = stage
        self.store = store
        self.runner = runner
        self.data = stage.data
        self.seed = stage.parameters.get("seed", 0)
        self.sources = ingest.sources_by_split(stage.data)
        self.work = store.working(stage.artifact)
        self.pieces: list[PieceOfSplit] = []
        with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
            for split, pieces in stage.pieces.items():
                for shares in pool.map(sources.share_out, pieces):
                    self.pieces += [PieceOfSplit(split, share) for share in shares]
        self._num_searches = 0

    def build(self) -> tuple[DatasetSummary, list[Report]]:
        """Build the dataset, except for the manifest, and return its summary and the shards' reports.

        If a dev or test source overlaps with train, its rows are kept, and the summary contains warnings.

        Raises:
            InputError: If :func:`raysweep.data.sources.read_piece` rejects a source, train has fewer than two labels,
                a split has labels that train lacks, the label column does not seem to contain labels, or dev cannot be
                split off from train.
        """
        self._read()
        conflicts = self._find_conflicts()
        self._num_conflicting = conflicts["train"].num_rows if "train" in conflicts else 0
        label_names = self._name_labels()
        shown, warnings = self._describe_conflicts(conflicts)
        warnings += self._bad_rows
        spellings: list[tuple[str, str]] = []
        for labels_of_piece in self._labels_of_pieces:
            spellings += zip(labels_of_piece["name"], labels_of_piece["spelling"], strict=True)
        if merged_labels := sources.describe_merged_labels(spellings):
            warnings.append(merged_labels)
        reports = self._write_texts(label_names)
        rows = self._open_rows()
        groups = self._groups("folded")
        if not self.data.dev:
            self._carve_dev(rows, label_names)
            warnings += _carving_warnings(rows, label_names)
        ids = {split: rows.ids(split) for split in SPLITS}
        containment = self._containment(rows.is_in("train"))
        overlaps = measure_overlaps(ids, groups, containment, seed=self.seed)
        for overlap in overlaps.values():
            warnings += overlap.warnings
        num_by_label: dict[str, dict[str, int]] = {}
        num_duplicates: dict[str, int] = {}
        for split in SPLITS:
            counts = rows.count_labels(split, len(label_names)).tolist()
            num_by_label[split] = dict(zip(label_names, counts, strict=True))
            groups_of_split = groups[ids[split]]
            num_different = len(np.unique(groups_of_split))
            num_duplicates[split] = len(groups_of_split) - num_different
        for split in self.sources:
            absent = [label for label, count in num_by_label[split].items() if not count]
            if absent:
                labels = _list_labels(absent, len(label_names))
                warnings.append(
                    f"{split}: no texts for {labels}; scores on {split} do not cover these labels"
                )
        summary = DatasetSummary(
            sources=self.sources,
            label_names=label_names,
            num_sentences={split: len(ids[split]) for split in SPLITS},
            num_by_label=num_by_label,
            num_dropped_conflicting=self.layout.num_rows - self._num_kept,
            conflicts=shown,
            num_duplicates=num_duplicates,
            num_also_in_train={
                split: overlap.num_also_in_train for split, overlap in overlaps.items()
            },
            num_inside_train={
                split: overlap.num_inside_train for split, overlap in overlaps.items()
            },
            num_left_out=int((rows.splits == NO_SPLIT).sum()),
            warnings=warnings,
        )
        _save(self.stage.artifact, rows, groups, summary)
        return summary, reports

    def _read(self) -> None:
        """Read all pieces, record their layout and check the label column.

        Raises:
            InputError: If a source has no rows, or the label column does not seem to contain labels.
        """
        reports = self._read_pieces()
        num_by_split = dict.fromkeys(SPLITS, 0)
        rows_of_parts: list[tuple[int, ...]] = []
        self._bad_rows: list[str] = []
        for (split, piece), report in zip(self.pieces, reports, strict=True):
            if report["num_bad_rows"]:
                rows = bad_rows.shown(report["num_bad_rows"], report["bad_rows"])
                self._bad_rows.append(
                    f"{piece.name}: left out {rows} without a valid text or label"
                )
            num_by_split[split] += report["num_rows"]
            rows_of_parts.append(tuple(report["rows_of_parts"]))
        for split, source in self.sources.items():
            if not num_by_split[split]:
                raise sources.no_rows(source)
        self.first_rows = tuple(itertools.accumulate(num_by_split.values(), initial=0))
        num_rows = self.first_rows[-1]
        num_partitions = -(-num_rows // ROWS_PER_PARTITION)
        self.layout = Layout(self.work, tuple(rows_of_parts), num_by_split["train"], num_partitions)
        num_labels = len(self._train_labels)
        num_train = self.layout.num_train
        if num_labels > MAX_LABELS and num_labels > num_train / 2:
            raise InputError(
                f"{sources.shown(self.data.train)}: column {self.data.label_column!r} has {num_labels} different labels in "
                f"{num_train} rows, too many to be classes; set data.label_column to the column that contains labels"
            )

    def _read_pieces(self) -> list[Report]:
        """Store the rows of all pieces and return one report per piece."""
        num_pieces = len(self.pieces)
        files = [piece.file for _, piece in self.pieces if piece.file]
        num_bytes = sum(file.num_bytes for file in files)
        has_few_bytes = num_pieces <= FEW_PIECES and num_bytes <= FEW_BYTES
        is_small = num_pieces == 1 or has_few_bytes  # a single piece cannot be split among workers
        report_progress = None
        if is_small:  # on a cluster, the stored shards are counted as progress
            report_progress = self.runner.report_rows
        text_and_label = (self.data.text_column, self.data.label_column)
        is_carved = not self.data.dev
        drops_bad_rows = self.data.on_bad_row == "drop"
        arguments = (self.work, text_and_label, is_carved, drops_bad_rows, report_progress)
        pieces = [piece.to_json() for piece in self.pieces]
        columns = {"piece": np.array(pieces, object)}
        job = ChunkedJob(ingest.ReadWorker, arguments, num_pieces, 1, columns)
        artifact = self._read_shards.artifact
        return self.runner.store_shards(artifact, job, is_small=is_small)

    @property
    def _read_shards(self) -> ShardSet:
        return self._working_shards("read", len(self.pieces))

    def _working_shards(self, name: str, count: int) -> ShardSet:
        """Return shards that are deleted when the stage is finished."""
        return ShardSet(self.store.working(self.stage.artifact, name), count)

    def _run(self, job: ChunkedJob) -> Iterator[Columns]:
        return self.runner.run(job, is_small=self._has_few)

    def _store(self, artifact: Artifact, job: ChunkedJob) -> list[Report]:
        return self.runner.store_shards(artifact, job, is_small=self._has_few)

    @property
    def _has_few(self) -> bool:
        return self.layout.num_rows <= FEW_ROWS

    @cached_property
    def _dropped(self) -> Integers:
        return self.layout.read_dropped()

    @property
    def _num_kept(self) -> int:
        return self.layout.num_rows - len(self._dropped)

    @cached_property
    def _labels_of_pieces(self) -> list[dict[str, Any]]:
        """Return each piece's labels as lists of spellings, names, keys, counts and first rows."""
        shards = [self._read_shards.read(number) for number in range(len(self.pieces))]
        return [shard.to_pydict() for shard in shards]

    @cached_property
    def _name_of_key(self) -> dict[int, str]:
        names: dict[int, str] = {}
        for labels in self._labels_of_pieces:
            names.update(zip(labels["label_key"], labels["name"], strict=True))
        return names

    @cached_property
    def _train_labels(self) -> Counter[str]:
        """Return the number of training rows with each label."""
        counts: Counter[str] = Counter()
        for (split, _), labels in zip(self.pieces, self._labels_of_pieces, strict=True):
            if split == "train":
                for name, count in zip(labels["name"], labels["count"], strict=True):
                    counts[name] += count
        return counts

    @property
    def _kept_bounds(self) -> Integers:
        """Return the first id of each split, followed by the total number of ids."""
        bounds: Integers = self.first_rows - np.searchsorted(self._dropped, self.first_rows)
        return bounds

    def _find_conflicts(self) -> dict[Split, _Conflicts]:
        """Find the texts with conflicting labels, store their rows, and return the conflicts of each split.

        Raises:
            InputError: If a split has only conflicting texts.
        """
        arguments = (self.layout, self.first_rows)
        job = ChunkedJob(ingest.ConflictWorker, arguments, self.layout.num_partitions, 1)
        reports = self._store(self.layout.conflicts.artifact, job)
        num_rows_by_split = np.diff(self.first_rows).tolist()
        num_kept_by_split = np.diff(self._kept_bounds).tolist()
        conflicts: dict[Split, _Conflicts] = {}
        for number, split in enumerate(SPLITS):
            num_texts = 0
            shown: list[tuple[int, list[int]]] = []
            for report in reports:
                num_reported, texts = report["conflicts"][number]
                num_texts += num_reported
                shown += map(tuple, texts)
            num_rows = num_rows_by_split[number]
            num_dropped = num_rows - num_kept_by_split[number]
            if num_dropped and num_dropped == num_rows:
                source = sources.shown(self.sources[split])
                raise InputError(
                    f"{source}: every text occurs with different labels, so no rows are left"
                )
            shown.sort()
            conflicts[split] = _Conflicts(num_texts, shown[:MAX_SHOWN], num_dropped)
        return conflicts

    @property
    def _after_conflicts(self) -> str:
        """Return a note for error messages about training rows dropped for conflicting labels, or an empty string."""
        if not self._num_conflicting:
            return ""
        columns = f"{self.data.text_column!r} and {self.data.label_column!r}"
        return f" (not counting {self._num_conflicting} rows whose text has different labels; columns {columns})"

    def _name_labels(self) -> list[str]:
        """Return the names of the labels that remain in train, in natural sort order.

        Raises:
            InputError: If there is only one label, or another split has a label that train lacks.
        """
        counts = self._train_labels.copy()
        conflicts = self.layout.conflicts
        for number in range(conflicts.count):
            batch = conflicts.read(number)
            rows = batch.column("row").to_numpy()
            label_keys = batch.column("label_key").to_numpy()
            keys_in_train = label_keys[rows < self.layout.num_train]
            for key, num_dropped in Counter(keys_in_train.tolist()).items():
                name = self._name_of_key[key]
                counts[name] -= num_dropped
        names = [name for name, count in counts.items() if count]
        names.sort(key=_natural)
        if len(names) == 1:
            raise InputError(
                f"{sources.shown(self.data.train)}: every row{self._after_conflicts} has the label {names[0]!r}; at "
                "least two labels are needed"
            )
        self._check_labels(names)
        return names

    def _check_labels(self, names: Sequence[str]) -> None:
        """Raise InputError for the first label that train lacks."""
        in_train = set(names)
        for (split, piece), labels in zip(self.pieces, self._labels_of_pieces, strict=True):
            if split == "train":
                continue
            rows_and_names = zip(labels["first_row"], labels["name"], strict=True)
            unknown = [(row, name) for row, name in rows_and_names if name not in in_train]
            if not unknown:
                continue
            row, label = min(unknown)
            listed = ", ".join(map(repr, names[:MAX_LABELS_LISTED]))
            more = ", ..." if len(names) > MAX_LABELS_LISTED else ""
            raise InputError(
                f"{piece.name}: row {row}: column {self.data.label_column!r} is {label!r}, a label that train lacks; "
                f"train has {listed}{more}"
            )

    def _describe_conflicts(
        self, by_split: Mapping[Split, _Conflicts]
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the first few conflicting texts, and a warning for each split that has any."""
        shown: list[dict[str, Any]] = []
        warnings = []
        for split, conflicts in by_split.items():
            entries: list[dict[str, Any]] = []
            for row, label_keys in conflicts.shown:
                part = next(part for part in self.layout.parts if row < part.stop_row)
                texts = self.layout.texts(part).column("text")
                text = texts[row - part.first_row].as_py()
                names = [self._name_of_key[key] for key in label_keys]
                names.sort(key=_natural)
                entries.append({"split": split, "text": text, "labels": names})
            if not entries:
                continue
            shown += entries
            source = sources.shown(self.sources[split])
            example = entries[0]["text"][:80]
            labels = ", ".join(entries[0]["labels"])
            occurrences = "text occurs" if conflicts.num_texts == 1 else "texts occur"
            warnings.append(
                f"{source}: {conflicts.num_texts} {occurrences} with different labels, such as {example!r} ({labels}); "
                f"dropped {conflicts.num_rows} rows"
            )
        return shown[:MAX_SHOWN], warnings

    @cached_property
    def _shards(self) -> ShardSet:
        return ShardSet(self.stage.artifact, -(-self._num_kept // ROWS_PER_SHARD))

    def _write_texts(self, label_names: Sequence[str]) -> list[Report]:
        """Store the texts and label numbers by id and return the shards' reports."""
        keys_of_names = [ingest.label_key(name) for name in label_names]
        keys = np.array(keys_of_names, np.uint64)
        by_key = np.argsort(keys)
        columns = {"label_key": keys[by_key], "number": by_key.astype(np.int32)}
        label_numbers = self._working_shards("labels", 1)
        label_numbers.write(0, Shard(columns, {}))
        arguments = (self.layout, label_numbers)
        job = ChunkedJob(ingest.TextWorker, arguments, self._num_kept, ROWS_PER_SHARD)
        return self._store(self.stage.artifact, job)

    def _open_rows(self) -> DatasetRows:
        """Return the rows, each in the split of its source."""
        labels = []
        for number in range(self._shards.count):
            batch = self._shards.read(number)
            labels.append(batch.column("label").to_numpy())
        split_numbers = np.arange(len(SPLITS), dtype=np.int8)
        splits = np.repeat(split_numbers, np.diff(self._kept_bounds))
        return DatasetRows(np.concatenate(labels), splits)

    def _groups(self, kind: str) -> npt.NDArray[np.int32]:
        """Return the group number of each row.

        Rows with equal digests of this ``kind`` form a group. Groups are numbered in order of first appearance.
        """
        kinds = ("folded",) if self.data.dev else ("folded", "words")
        num_partitions = self.layout.num_partitions
        shards = self._working_shards("duplicates", len(kinds) * num_partitions)
        arguments = (self.layout, kinds)
        job = ChunkedJob(ingest.DuplicateWorker, arguments, shards.count, 1)
        self._store(shards.artifact, job)
        first_ids = np.arange(self._num_kept, dtype=np.int32)
        is_first = np.ones(self._num_kept, bool)
        first_number = kinds.index(kind) * num_partitions
        for number in range(first_number, first_number + num_partitions):
            duplicates = shards.read(number)
            duplicate_ids = duplicates.column("id").to_numpy()
            first_ids[duplicate_ids] = duplicates.column("first").to_numpy()
            is_first[duplicate_ids] = False
        numbers = np.cumsum(is_first, dtype=np.int32) - np.int32(1)
        groups: npt.NDArray[np.int32] = numbers[first_ids]
        return groups

    def _carve_dev(self, rows: DatasetRows, label_names: Sequence[str]) -> None:
        """Move some rows from train to dev, and drop training rows that contain a dev text.

        Raises:
            InputError: If no row can be moved.
        """
        is_train = rows.is_in("train")
        # training rows come first, so their positions are their ids
        num_train = int(is_train.sum())
        labels = rows.labels[:num_train]
        carving = carve(
            labels,
            self._groups("words")[:num_train],
            self._containment(is_train),
            fraction=self.data.dev_fraction,
            max_rows=self.data.max_dev,
            seed=self.seed,
        )
        if not carving.is_dev.any():
            check_classes(self.data, label_names)
            is_single = np.bincount(labels).max() == 1
            rows_left = (
                "every label has only one row" if is_single else f"{num_train} rows are too few"
            )
            raise InputError(
                f"{sources.shown(self.data.train)}: dev cannot be split off from train, because "
                f"{rows_left}{self._after_conflicts}; set data.dev or add rows"
            )
        rows.splits[:num_train][carving.is_dev] = SPLITS.index("dev")
        rows.splits[:num_train][carving.is_left_out] = NO_SPLIT

    def _containment(self, is_train: npt.NDArray[np.bool_]) -> Containment:
        """Return a search for texts inside training rows."""
        columns = {"is_train": ingest.pack_masks(is_train, ROWS_PER_SHARD)}

        def find_phrases(phrases: Sequence[str], max_rows: int) -> Iterator[Matches]:
            stored_phrases = self._working_shards(f"question-{self._num_searches}", 1)
            self._num_searches += 1
            texts = {"text": pa.array(phrases, pa.string())}
            stored_phrases.write(0, Shard(texts, {}))
            arguments = (self._shards, ROWS_PER_SHARD, stored_phrases, max_rows)
            job = ChunkedJob(ingest.InsideWorker, arguments, self._shards.count, 1, columns)
            for number, matches in enumerate(self._run(job), 1):
                num_searched = min(number * ROWS_PER_SHARD, self._num_kept)
                self.runner.report_rows(num_searched)
                yield ingest.as_matches(matches)

        return Containment(self._take_texts, find_phrases)

    def _take_texts(self, ids: npt.NDArray[np.integer]) -> Iterator[Sequence[str]]:
        """Yield the texts with these ids in batches, in order."""
        for first in range(0, len(ids), ingest.PART_ROWS):
            batch = ids[first : first + ingest.PART_ROWS].astype(np.int64)
            ascending, places = np.unique(batch, return_inverse=True)
            arguments = (self._shards, ROWS_PER_SHARD)
            columns = {"ids": ascending}
            job = ChunkedJob(
                ingest.GatherWorker, arguments, len(ascending), TEXTS_PER_CHUNK, columns
            )
            blocks = [block["text"] for block in self._run(job)]
            texts = np.concatenate(blocks)
            yield texts[places].tolist()


def write_joined(
    given: Sentences, pairs: npt.NDArray[np.integer], artifact: Artifact
) -> list[Report]:
    """Store the sentences, followed by the concatenation of each pair, and return the shards' reports.

    ``pairs``, (m, 2), are pairs of ids of the same class. The concatenations belong to no split.
    """
    num_pairs = len(pairs)
    texts = given.texts(np.arange(len(given)))
    texts += [f"{texts[first]} {texts[second]}" for first, second in pairs.tolist()]
    first_of_pairs = pairs[:, 0]
    labels_of_pairs = given.labels[first_of_pairs]
    splits_of_pairs = np.full(num_pairs, NO_SPLIT, np.int8)
    first_group = int(given.duplicate_groups.max()) + 1
    groups_of_pairs = np.arange(first_group, first_group + num_pairs, dtype=np.int32)
    labels = np.concatenate([given.labels, labels_of_pairs])
    splits = np.concatenate([given.splits, splits_of_pairs])
    groups = np.concatenate([given.duplicate_groups, groups_of_pairs])
    rows = DatasetRows(labels, splits)
    return write_rows(artifact, texts, rows, groups, given.summary)


def write_rows(
    artifact: Artifact,
    texts: Sequence[str],
    rows: DatasetRows,
    groups: npt.NDArray[np.int32],
    summary: DatasetSummary,
) -> list[Report]:
    """Store in-memory sentences and their duplicate groups, and return the shards' reports."""
    num_shards = -(-len(texts) // ROWS_PER_SHARD)
    shards = ShardSet(artifact, num_shards)
    reports = []
    for number in range(num_shards):
        start = number * ROWS_PER_SHARD
        part = slice(start, start + ROWS_PER_SHARD)
        column = pa.array(texts[part], pa.string())
        shard = Shard({"text": column, "label": rows.labels[part]}, {})
        reports.append(shards.write(number, shard))
    _save(artifact, rows, groups, summary)
    return reports


def _save(
    artifact: Artifact, rows: DatasetRows, groups: npt.NDArray[np.int32], summary: DatasetSummary
) -> None:
    folder = open_folder(artifact.location).within(artifact.name)
    arrays: dict[str, npt.NDArray[Any]] = {
        "labels": rows.labels,
        "splits": rows.splits,
        "duplicate_groups": groups,
    }
    for name, array in arrays.items():
        file = io.BytesIO()
        np.save(file, array)
        folder.put(f"{name}.npy", file.getvalue())
    text = json.dumps(asdict(summary), indent=1)
    folder.put("dataset.json", text.encode())


def _natural(name: str) -> tuple[bool, float, list[str | int], str]:
    """Return a sort key that puts numbers first, by value, and compares digits in names by value."""
    if re.fullmatch(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", name):
        return False, float(name), [], name
    parts = re.split(r"(\d+)", name.casefold())
    keys = [int(part[:_MAX_DIGITS]) if number % 2 else part for number, part in enumerate(parts)]
    return True, 0.0, keys, name


def _carving_warnings(rows: DatasetRows, label_names: Sequence[str]) -> list[str]:
    """Return warnings about side effects of carving dev."""
    warnings = []
    num_left_out = np.count_nonzero(rows.splits == NO_SPLIT)
    if num_left_out:
        warnings.append(
            f"train: texts that contain dev texts word for word are left out of train and the pool (texts={num_left_out})"
        )
    in_train = rows.count_labels("train", len(label_names))
    in_dev = rows.count_labels("dev", len(label_names))
    is_absent = (in_train > 1) & (in_dev == 0)
    absent = [label_names[label] for label in np.flatnonzero(is_absent).tolist()]
    if absent:
        labels = _list_labels(absent, len(label_names))
        warnings.append(
            f"dev: no texts for {labels}; all texts with these labels occur inside texts that stay in train"
        )
    return warnings


def _list_labels(labels: Sequence[str], num_labels: int) -> str:
    """Return the number of labels, out of the total, and the first few names."""
    more = ", ..." if len(labels) > MAX_SHOWN else ""
    return f"{len(labels)} of {num_labels} labels ({', '.join(labels[:MAX_SHOWN])}{more})"
