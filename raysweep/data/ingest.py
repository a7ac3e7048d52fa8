"""From sources to the files of a dataset: reading, conflicting labels, duplicates and the dev split."""

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raysweep.config.sweep import DataConfig
from raysweep.data import sources
from raysweep.data.containment import Containment, Progress
from raysweep.data.dataset import HUB_SPLITS, NO_SPLIT, SPLITS, Split, Summary, Texts
from raysweep.data.dev_split import carve, extremes
from raysweep.data.overlap import overlaps
from raysweep.data.phrases import words
from raysweep.data.sources import Piece
from raysweep.errors import InputError

_SCHEMA = pa.schema([("text", pa.string())])


_DIGEST_BYTES = 16


_NUM_SHOWN = 5  # conflicting texts that the summary shows


Listed = Mapping[Split, Sequence[Piece]]
"""What the source of each split that has one is made of."""


def list_pieces(data: DataConfig) -> Listed:
    """List the sources once. Raises InputError as :func:`raysweep.data.sources.pieces` does."""
    return {
        split: sources.pieces(source, subset=data.subset, split=HUB_SPLITS[split])
        for split, source in _sources(data).items()
    }


def build(
    folder: Path, data: DataConfig, listed: Listed, *, seed: int = 0, progress: Progress = lambda rows: None
) -> Summary:
    """Stream what is ``listed`` of the sources into ``folder``, which exists, and carve dev from train if none is given.

    ``progress`` is told the rows read so far of the source that is being read, then of all texts, each time they are gone
    through to find what stands inside train.

    Without ``data.test`` there are no test rows, but the source ``demo`` as train brings its own. A split that is given is
    never changed; warnings tell how many of its rows stand in train, or inside training rows. Memory peaks below 200 bytes
    a row, and some 50 MiB for the rows that are looked for inside others. Raises InputError for what
    :func:`raysweep.data.sources.read` refuses, fewer than two classes, labels that train lacks, and a label column that
    holds something else.
    """
    path = folder / "sentences.arrow"
    used = _sources(data)
    parts, label_names = _read_all(used, listed, data, path, progress)
    conflicts, warnings = _report_conflicts(parts, path)
    keep = np.concatenate([part.keep for part in parts])
    if not keep.all():
        _drop_rows(path, keep)
    rows = _kept_rows(parts, keep)
    texts = Texts(path)
    if not data.dev:
        rows = _carve_dev(rows, texts, data, seed, progress)
        warnings += _carving_warnings(rows, label_names)
    ids = {split: rows.ids(split) for split in SPLITS}
    containment = Containment(texts, rows.is_in("train"), progress)
    shared = overlaps(ids, rows.groups, containment, seed=seed)
    for overlap in shared.values():
        warnings += overlap.warnings
    summary = Summary(
        sources=used,
        label_names=label_names,
        num_sentences={split: len(ids[split]) for split in SPLITS},
        num_by_label={split: _count_labels(rows, split, label_names) for split in SPLITS},
        num_dropped_conflicting=int((~keep).sum()),
        conflicts=conflicts,
        num_duplicates={split: _count_duplicates(rows, split) for split in SPLITS},
        num_also_in_train={split: overlap.num_also_in_train for split, overlap in shared.items()},
        num_inside_train={split: overlap.num_inside_train for split, overlap in shared.items()},
        num_left_out=int((rows.splits == NO_SPLIT).sum()),
        warnings=warnings,
    )
    _save(folder, rows, summary)
    return summary


def _sources(data: DataConfig) -> dict[Split, sources.Source]:
    """The source of each split that has one. The demo brings its own test split."""
    test = data.test or ("demo" if data.train == "demo" else None)
    given: dict[Split, sources.Source | None] = {"train": data.train, "dev": data.dev, "test": test}
    return {split: source for split, source in given.items() if source}


@dataclass(frozen=True)
class _Conflict:
    """A text that stands under different labels: where it stands first, counted from 0 in its source, and the labels."""

    row: int
    labels: list[str]


@dataclass(frozen=True)
class _Part:
    """The rows of one source, in order; ``labels``, ``folded`` and ``keep`` have one entry a row."""

    split: Split
    source: str
    labels: npt.NDArray[np.int32]  # -1 where the row is dropped and its label with it
    folded: npt.NDArray[np.uint8]  # (rows, 16): digests of the texts less case, spacing and Unicode form
    keep: npt.NDArray[np.bool_]  # False: the text carries different labels
    conflicts: list[_Conflict]  # the first few
    num_conflicts: int  # all of them


def _read_all(
    used: Mapping[Split, sources.Source], listed: Listed, data: DataConfig, path: Path, progress: Progress
) -> tuple[list[_Part], list[str]]:
    """Read every source, train first, and write all texts to ``path``. Also the names of the labels, by number."""
    parts: list[_Part] = []
    label_names: list[str] = []
    with _sentence_writer(path) as writer:
        for split, source in used.items():
            name = sources.shown(source)
            batches = sources.read_pieces(listed[split], data.text_column, data.label_column)
            streamed = _stream(name, _counted(batches, progress), label_names, writer)
            part = _drop_conflicting(split, name, streamed)
            if split == "train":
                part, label_names = _settle_labels(part, streamed.label_names)
                if len(label_names) == 1:
                    raise InputError(
                        f"{name}: every row has the label {label_names[0]!r}; at least two classes are needed"
                    )
            parts.append(part)
    return parts, label_names


@contextmanager
def _sentence_writer(path: Path) -> Iterator[Any]:
    """A writer of record batches of texts."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        yield writer


def _counted(batches: Iterable[sources.Batch], progress: Progress) -> Iterator[sources.Batch]:
    num_rows = 0
    for batch in batches:
        yield batch
        num_rows += len(batch.texts)
        progress(num_rows)


@dataclass(frozen=True)
class _Streamed:
    """What is remembered of a source's rows once their texts are written."""

    label_names: list[str]
    labels: npt.NDArray[np.int32]  # (rows,): an index into label_names
    text_codes: npt.NDArray[np.int32]  # (rows,): equal where the texts are
    folded: npt.NDArray[np.uint8]  # (rows, 16): as in _Part


def _stream(source: str, batches: Iterable[sources.Batch], label_names: Sequence[str], writer: Any) -> _Streamed:
    """Write the texts and note the rest. Labels that occur are numbered as they come unless ``label_names`` are given."""
    numbers = {name: number for number, name in enumerate(label_names)}
    labels = array("i")
    exact = bytearray()
    folded = bytearray()
    for batch in batches:
        if label_names:
            _check_known(batch, numbers)
        for label in batch.labels:
            number = numbers.setdefault(label, len(numbers))
            labels.append(number)
        for text in batch.texts:
            exact += _digest(text)
            folded += _digest(_folded(text))
        texts = pa.array(batch.texts, pa.string())
        writer.write_batch(pa.record_batch([texts], schema=_SCHEMA))
    num_labels = len(numbers)
    num_rows = len(labels)
    if not label_names and num_labels > 1000 and num_labels > num_rows / 2:
        raise InputError(f"{source}: {num_labels} different labels in {num_rows} rows; is label_column right?")
    text_codes = _codes(_digest_rows(exact))
    return _Streamed(
        label_names=list(numbers),
        labels=np.frombuffer(labels, np.int32),
        text_codes=text_codes,
        folded=_digest_rows(folded),
    )


def _check_known(batch: sources.Batch, numbers: dict[str, int]) -> None:
    """InputError for the first label that train lacks."""
    for row, label in enumerate(batch.labels, batch.first_row):
        if label not in numbers:
            names = list(numbers)
            known = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")
            raise InputError(f"{batch.name}: row {row}: label {label!r} does not occur in train, which has {known}")


def _drop_conflicting(split: Split, source: str, streamed: _Streamed) -> _Part:
    """The rows of a source, those marked whose very text carries different labels."""
    lowest, highest = extremes(streamed.text_codes, streamed.labels)
    agrees = lowest == highest
    keep = agrees[streamed.text_codes]
    if not keep.any():
        raise InputError(f"{source}: nothing is left, as every text carries different labels")
    conflicting = np.flatnonzero(~agrees)
    conflicts = [_conflict(streamed, code) for code in conflicting[:_NUM_SHOWN]]
    return _Part(
        split=split,
        source=source,
        labels=streamed.labels,
        folded=streamed.folded,
        keep=keep,
        conflicts=conflicts,
        num_conflicts=len(conflicting),
    )


def _conflict(streamed: _Streamed, text_code: int) -> _Conflict:
    rows = np.flatnonzero(streamed.text_codes == text_code)
    labels = {streamed.label_names[label] for label in streamed.labels[rows]}
    return _Conflict(int(rows[0]), sorted(labels, key=_natural))


def _settle_labels(train: _Part, found: Sequence[str]) -> tuple[_Part, list[str]]:
    """Number the labels of train that are left in the order in which people sort their names."""
    left = [found[label] for label in np.unique(train.labels[train.keep])]
    names = sorted(left, key=_natural)
    settled = {name: number for number, name in enumerate(names)}
    renumbered = np.array([settled.get(name, -1) for name in found], np.int32)
    return replace(train, labels=renumbered[train.labels]), names


def _report_conflicts(parts: Sequence[_Part], path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The first few conflicting texts, and a warning for each source that has any."""
    stored = Texts(path)
    shown: list[dict[str, Any]] = []
    warnings = []
    first_id = 0
    for part in parts:
        ids = [first_id + conflict.row for conflict in part.conflicts]
        texts = stored.take(ids)
        for text, conflict in zip(texts, part.conflicts, strict=True):
            entry = {
                "split": part.split,
                "text": text,
                "labels": conflict.labels,
            }
            shown.append(entry)
        if part.conflicts:
            warnings.append(_conflict_warning(part, texts[0]))
        first_id += len(part.keep)
    return shown[:_NUM_SHOWN], warnings


def _conflict_warning(part: _Part, first_text: str) -> str:
    num_rows = (~part.keep).sum()
    problem = f"{part.num_conflicts} texts carry different labels; their {num_rows} rows are dropped"
    labels = ", ".join(part.conflicts[0].labels)
    return f"{part.source}: {problem}, such as {first_text[:80]!r} ({labels})"


def _drop_rows(path: Path, keep: npt.NDArray[np.bool_]) -> None:
    """Write the file of texts anew with the rows that are kept."""
    whole = path.rename(path.with_name("rows.arrow"))
    first_row = 0
    with _sentence_writer(path) as writer:
        for batch in Texts(whole).batches:
            next_row = first_row + len(batch)
            kept = keep[first_row:next_row]
            if kept.any():
                writer.write_batch(batch.filter(pa.array(kept)))
            first_row = next_row
    whole.unlink()


@dataclass(frozen=True)
class _Rows:
    """The rows of the dataset in order of their ids: labels, splits and duplicate groups, each (rows,)."""

    labels: npt.NDArray[np.int32]
    splits: npt.NDArray[np.int8]
    groups: npt.NDArray[np.int32]

    def is_in(self, split: Split) -> npt.NDArray[np.bool_]:
        number = SPLITS.index(split)
        is_in: npt.NDArray[np.bool_] = self.splits == number
        return is_in

    def ids(self, split: Split) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self.is_in(split))


def _kept_rows(parts: Sequence[_Part], keep: npt.NDArray[np.bool_]) -> _Rows:
    labels = np.concatenate([part.labels for part in parts])
    splits = np.concatenate([np.full(len(part.labels), SPLITS.index(part.split), np.int8) for part in parts])
    folded = np.concatenate([part.folded for part in parts])
    return _Rows(labels[keep], splits[keep], _codes(folded[keep]))


def _carve_dev(rows: _Rows, texts: Texts, data: DataConfig, seed: int, progress: Progress) -> _Rows:
    is_train = rows.is_in("train")
    train = np.flatnonzero(is_train)  # the first rows, so that their positions are their ids
    carving = carve(
        rows.labels[train],
        _word_groups(texts)[train],
        Containment(texts, is_train, progress),
        fraction=data.dev_fraction,
        max_rows=data.max_dev,
        seed=seed,
    )
    if not carving.is_dev.any():
        raise InputError(
            f"{sources.shown(data.train)}: too few rows ({len(train)}) to carve a dev split from; give one"
        )
    splits = rows.splits.copy()
    splits[train[carving.is_dev]] = SPLITS.index("dev")
    splits[train[carving.is_left_out]] = NO_SPLIT
    return replace(rows, splits=splits)


def _word_groups(texts: Texts) -> npt.NDArray[np.int32]:
    """Numbers of the rows, equal for texts that have the same words: for duplicates, and where punctuation differs too."""
    digests = bytearray()
    for batch in texts.batches:
        for text in batch.column(0).to_pylist():
            digests += _digest(" ".join(words(text)))
    return _codes(_digest_rows(digests))


def _count_labels(rows: _Rows, split: Split, label_names: Sequence[str]) -> dict[str, int]:
    counts = np.bincount(rows.labels[rows.ids(split)], minlength=len(label_names))
    return dict(zip(label_names, counts.tolist(), strict=True))


def _count_duplicates(rows: _Rows, split: Split) -> int:
    groups = rows.groups[rows.ids(split)]
    return len(groups) - len(np.unique(groups))


def _carving_warnings(rows: _Rows, label_names: Sequence[str]) -> list[str]:
    """What carving dev has cost."""
    warnings = []
    if count := (rows.splits == NO_SPLIT).sum():
        warnings.append(
            f"{count} training texts contain dev texts, word for word, and are left out of train and the pool"
        )
    in_train = np.bincount(rows.labels[rows.ids("train")], minlength=len(label_names))
    in_dev = np.bincount(rows.labels[rows.ids("dev")], minlength=len(label_names))
    absent = np.flatnonzero((in_train > 1) & (in_dev == 0))
    if len(absent):
        some = ", ".join(label_names[label] for label in absent[:_NUM_SHOWN])
        warnings.append(
            f"dev has no text of {len(absent)} labels ({some}): their texts all stand in texts that train keeps"
        )
    return warnings


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


def _digest_rows(digests: bytearray) -> npt.NDArray[np.uint8]:
    return np.frombuffer(digests, np.uint8).reshape(-1, _DIGEST_BYTES)


def _codes(digests: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Numbers of the (rows, 16) digests, equal for equal ones, in order of first appearance."""
    kind = pa.binary(_DIGEST_BYTES)
    values = pa.FixedSizeBinaryArray.from_buffers(kind, len(digests), [None, pa.py_buffer(digests)])
    codes: npt.NDArray[np.int32] = values.dictionary_encode().indices.to_numpy()
    return codes


def _folded(text: str) -> str:
    return " ".join(normalize("NFKC", text).casefold().split())


def _natural(name: str) -> tuple[bool, float, list[str | int], str]:
    """Sort key: numbers by value and first, names with their runs of digits by value."""
    if re.fullmatch(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", name):
        return False, float(name), [], name
    parts = re.split(r"(\d+)", name.casefold())
    return True, 0.0, [int(part) if i % 2 else part for i, part in enumerate(parts)], name


def _save(folder: Path, rows: _Rows, summary: Summary) -> None:
    np.save(folder / "labels.npy", rows.labels)
    np.save(folder / "splits.npy", rows.splits)
    np.save(folder / "duplicate_groups.npy", rows.groups)
    text = json.dumps(asdict(summary), indent=1)
    (folder / "dataset.json").write_text(text, encoding="utf-8")
