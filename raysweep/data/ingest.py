"""From sources to the files of a dataset: reading, conflicts, duplicates and the dev split."""

import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raysweep.data import sources
from raysweep.data.dataset import HUB_SPLITS, SPLITS, Summary, _Texts
from raysweep.data.dev_split import carve, extremes
from raysweep.errors import InputError

_SCHEMA = pa.schema([("text", pa.string())])


_DIGEST_BYTES = 16


_NUM_SHOWN = 5


def build(
    folder: Path,
    train: str,
    dev: str | None = None,
    test: str | None = None,
    *,
    subset: str | None = None,
    text_column: str = "text",
    label_column: str = "label",
    dev_fraction: float = 0.1,
    max_dev: int = 1000,
    seed: int = 0,
    progress: Callable[[int], None] = lambda rows: None,
) -> Summary:
    """Stream the sources into ``folder``, which exists, and carve dev from train if none is given.

    ``progress`` is told the rows read so far of the source that is being read.

    Without ``test`` there are no test rows, but ``train="demo"`` brings its own. Memory peaks below 200 bytes a row.
    Raises InputError for what :func:`raysweep.data.sources.read` refuses, fewer than two classes, labels that train lacks,
    and a label column that holds something else.
    """
    given = {"train": train, "dev": dev, "test": test or ("demo" if train == "demo" else None)}
    used = {split: source for split, source in given.items() if source}
    path = folder / "sentences.arrow"
    parts: list[_Part] = []
    names: list[str] = []  # of train's labels, in order of their numbers; empty while train is read
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        for split, source in used.items():
            batches = sources.read(source, text_column, label_column, subset=subset, split=HUB_SPLITS[split])
            part, names = _read(split, source, _counted(batches, progress), names, writer)
            parts.append(part)
            if len(names) == 1:
                raise InputError(f"{source}: every row has the label {names[0]!r}; at least two classes are needed")
    keep = np.concatenate([part.keep for part in parts])
    conflicts, warnings = _conflicts(parts, path)
    if not keep.all():
        _drop(path, keep)
    labels = np.concatenate([part.labels for part in parts])[keep]
    splits = np.concatenate([np.full(len(part.labels), SPLITS.index(part.split), np.int8) for part in parts])[keep]
    groups = _codes(np.concatenate([part.folded for part in parts])[keep])
    if not dev:
        of_train = np.flatnonzero(splits == 0)
        carved = carve(labels[of_train], groups[of_train], fraction=dev_fraction, most=max_dev, seed=seed)
        if not carved.any():
            raise InputError(f"{train}: too few rows ({len(carved)}) to carve a dev split from; give one")
        splits[of_train[carved]] = SPLITS.index("dev")

    rows = {split: np.flatnonzero(splits == number) for number, split in enumerate(SPLITS)}
    also_in_train = {s: int(np.isin(groups[rows[s]], groups[rows["train"]]).sum()) for s in SPLITS[1:]}
    warnings += [
        f"{count} of {len(rows[split])} {split} texts also stand in train, case and spacing aside"
        for split, count in also_in_train.items()
        if count
    ]
    counts = {split: np.bincount(labels[where], minlength=len(names)).tolist() for split, where in rows.items()}
    summary = Summary(
        sources=used,
        label_names=names,
        num_sentences={split: len(where) for split, where in rows.items()},
        num_by_label={split: dict(zip(names, count, strict=True)) for split, count in counts.items()},
        num_dropped_conflicting=int((~keep).sum()),
        conflicts=conflicts,
        num_duplicates={split: len(where) - len(np.unique(groups[where])) for split, where in rows.items()},
        num_also_in_train=also_in_train,
        warnings=warnings,
    )
    np.save(folder / "labels.npy", labels)
    np.save(folder / "splits.npy", splits)
    np.save(folder / "duplicate_groups.npy", groups)
    (folder / "dataset.json").write_text(json.dumps(asdict(summary), indent=1), encoding="utf-8")
    return summary


@dataclass(frozen=True)
class _Part:
    """The rows of one source, in order; ``labels``, ``texts``, ``folded`` and ``keep`` have one entry a row."""

    split: str
    source: str
    labels: npt.NDArray[np.int32]  # -1 where the row is dropped and its label with it
    folded: npt.NDArray[np.uint8]  # (rows, 16): digests of the texts less case, spacing and Unicode form
    keep: npt.NDArray[np.bool_]  # False: the text carries different labels
    conflicts: list[tuple[int, list[str]]]  # first row and labels of such texts, some of them
    num_conflicts: int  # all of them


def _counted(batches: Iterable[sources.Batch], progress: Callable[[int], None]) -> Iterator[sources.Batch]:
    for batch in batches:
        yield batch
        progress(batch.first_row + len(batch.texts) - 1)


def _read(
    split: str, source: str, batches: Iterable[sources.Batch], names: list[str], writer: Any
) -> tuple[_Part, list[str]]:
    """Write the texts and note the rest; with no ``names`` yet, whatever labels come are the names."""
    numbers = {name: number for number, name in enumerate(names)}
    collected, exact, folded = array("i"), bytearray(), bytearray()
    for batch in batches:
        for row, (text, label) in enumerate(zip(batch.texts, batch.labels, strict=True), batch.first_row):
            if label not in numbers:
                if names:
                    known = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")
                    raise InputError(f"{source}: row {row}: label {label!r} does not occur in train, which has {known}")
                numbers[label] = len(numbers)
            collected.append(numbers[label])
            exact += blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()
            folded += blake2b(_folded(text).encode(), digest_size=_DIGEST_BYTES).digest()
        writer.write_batch(pa.record_batch([pa.array(batch.texts, pa.string())], schema=_SCHEMA))
    labels = np.frombuffer(collected, np.int32)
    if len(numbers) > 1000 and len(numbers) > len(labels) / 2:
        raise InputError(f"{source}: {len(numbers)} different labels in {len(labels)} rows; is label_column right?")
    texts = _codes(np.frombuffer(exact, np.uint8).reshape(-1, _DIGEST_BYTES))
    lowest, highest = extremes(texts, labels)
    keep = (lowest == highest)[texts]
    if not keep.any():
        raise InputError(f"{source}: nothing is left, as every text carries different labels")
    found = list(numbers)
    conflicting = np.flatnonzero(lowest != highest)
    shown = [np.flatnonzero(texts == code) for code in conflicting[:_NUM_SHOWN]]
    conflicts = [(int(rows[0]), sorted({found[i] for i in labels[rows]}, key=_natural)) for rows in shown]
    if not names:
        names = sorted((found[i] for i in np.unique(labels[keep])), key=_natural)
        settled = {name: number for number, name in enumerate(names)}
        labels = np.array([settled.get(name, -1) for name in found], np.int32)[labels]
    digests = np.frombuffer(folded, np.uint8).reshape(-1, _DIGEST_BYTES)
    return _Part(split, source, labels, digests, keep, conflicts, len(conflicting)), names


def _conflicts(parts: Sequence[_Part], path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The first few conflicting texts, and a warning for each source that has any."""
    stored = _Texts(path)
    found, warnings, start = [], [], 0
    for part in parts:
        texts = stored.take([start + row for row, _ in part.conflicts])
        for text, (_, labels) in zip(texts, part.conflicts, strict=True):
            found.append({"split": part.split, "text": text, "labels": labels})
        if part.num_conflicts:
            problem = f"{part.num_conflicts} texts carry different labels; their {(~part.keep).sum()} rows are dropped"
            such = f"such as {texts[0][:80]!r} ({', '.join(part.conflicts[0][1])})"
            warnings.append(f"{part.source}: {problem}, {such}")
        start += len(part.keep)
    return found[:_NUM_SHOWN], warnings


def _drop(path: Path, keep: npt.NDArray[np.bool_]) -> None:
    whole = path.rename(path.with_name("rows.arrow"))
    start = 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        for batch in _Texts(whole).batches:
            if (kept := keep[start : start + len(batch)]).any():
                writer.write_batch(batch.filter(pa.array(kept)))
            start += len(batch)
    whole.unlink()


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
