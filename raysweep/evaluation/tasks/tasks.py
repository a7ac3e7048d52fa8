"""Tasks of the ``transfer`` command: classification and scored sentence pairs.

A task is specified as ``[NAME=]SOURCE``, ``[NAME=]TRAIN,TEST`` or ``[NAME=]TRAIN,DEV,TEST``. Each part is a source that
:mod:`raysweep.data.sources` can read. The columns determine the kind of task.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from raysweep.data import scored_pairs, sources
from raysweep.data.dataset import HUB_SPLITS
from raysweep.data.scored_pairs import PairColumns, ScoredPairs
from raysweep.data.source_files import format_of, without_options
from raysweep.errors import InputError
from raysweep.evaluation.tasks.classification import NUM_INNER_FOLDS

_NAMED = re.compile(r"(?P<name>[\w .+-]+)=(?P<parts>.+)", re.DOTALL)


_PARTS = {1: ("all",), 2: ("train", "test"), 3: ("train", "dev", "test")}
_SPLITS = {"all": "train"} | {str(part): split for part, split in HUB_SPLITS.items()}


@dataclass(frozen=True)
class Columns:
    """Column names of labeled sentences and of scored pairs."""

    text: str = "text"
    label: str = "label"
    pairs: PairColumns = field(default_factory=PairColumns)


@dataclass(frozen=True)
class Labeled:
    """Sentences and their labels."""

    texts: list[str]
    labels: list[str]


@dataclass(frozen=True)
class Classification:
    """A classification task.

    The keys of ``parts`` are ``train``, ``test`` and optionally ``dev``, or only ``all`` for cross-validation.
    ``merged`` is a message about labels with several spellings, or empty.
    """

    name: str
    parts: Mapping[str, Labeled]
    merged: str = ""

    @property
    def is_split(self) -> bool:
        return "test" in self.parts

    @property
    def tested(self) -> Labeled:
        return self.parts["test" if self.is_split else "all"]

    @property
    def sentences(self) -> Mapping[str, list[str]]:
        return {part: rows.texts for part, rows in self.parts.items()}


Task = Classification | ScoredPairs


def read(specifications: Sequence[str], columns: Columns, num_folds: int) -> list[Task]:
    """Read tasks from their specifications.

    Raises:
        InputError: If a task cannot be read or scored, or if two tasks have the same name.
    """
    tasks = [_read(specification, columns, num_folds) for specification in specifications]
    for name, count in Counter(task.name for task in tasks).items():
        if count > 1:
            raise InputError(
                f"--tasks: {count} tasks are called {name!r}; required: unique names, as in NAME=FILE"
            )
    return tasks


def sources_of(specification: str) -> list[str]:
    """Return the sources in a task's specification."""
    match = _NAMED.fullmatch(specification)
    return (match["parts"] if match else specification).split(",")


def _read(specification: str, columns: Columns, num_folds: int) -> Task:
    match = _NAMED.fullmatch(specification)
    task_sources = sources_of(specification)
    if len(task_sources) not in _PARTS or "" in task_sources:
        raise InputError(
            f"--tasks is {specification!r}; allowed: [NAME=]FILE, [NAME=]TRAIN,TEST or [NAME=]TRAIN,DEV,TEST"
        )
    pieces: dict[str, list[sources.Piece]] = {}
    for part, source in zip(_PARTS[len(task_sources)], task_sources, strict=True):
        pieces[part] = find_pieces(source, part)
    name = match["name"].strip() if match else _name_of(task_sources[0])
    first_pieces = [pieces_of_part[0] for pieces_of_part in pieces.values()]
    has_pairs = [_holds_pairs(piece, columns) for piece in first_pieces]
    if any(has_pairs):
        if len(task_sources) > 1:
            raise InputError(
                f"--tasks is {specification!r}; allowed for scored pairs: one file per task, without a split"
            )
        return scored_pairs.read(name, pieces["all"], columns.pairs)
    parts: dict[str, Labeled] = {}
    spellings: set[tuple[str, str]] = set()
    for part, pieces_of_part in pieces.items():
        rows = Labeled([], [])
        batches = sources.read_pieces(pieces_of_part, columns.text, columns.label)
        for batch in batches:
            rows.texts.extend(batch.texts)
            rows.labels.extend(batch.labels)
            spellings.update(zip(batch.labels, batch.spellings, strict=True))
        parts[part] = rows
    merged = sources.describe_merged_labels(sorted(spellings))
    task = Classification(name, parts, merged)
    _check(task, num_folds)
    return task


def find_pieces(source: str, part: str) -> list[sources.Piece]:
    """Return the pieces of a source. If it has splits, return only the split of this part."""
    return sources.pieces(source, split=_SPLITS[part])


def _name_of(source: str) -> str:
    """Return a source's file name without its suffixes, such as ``2012.OnWN`` for ``sts/2012.OnWN.tsv.gz``."""
    path = PurePosixPath(without_options(source).removeprefix("hub:"))
    file_format = format_of(path.name)
    if file_format and file_format.compression:
        path = path.with_suffix("")
    return path.stem if file_format else path.name.partition(":")[0]


def _holds_pairs(piece: sources.Piece, columns: Columns) -> bool:
    """Return whether a piece contains scored pairs rather than labeled sentences.

    Raises:
        InputError: If the piece has no rows, or has the columns of both kinds or of neither kind.
    """
    if scored_pairs.is_without_header(piece):
        return True
    present = sources.column_names(piece)
    pair_columns = columns.pairs.names
    is_labeled = {columns.text, columns.label} <= set(present)
    has_pairs = set(pair_columns) <= set(present)
    if is_labeled != has_pairs:
        return has_pairs
    if not present:
        raise InputError(f"{piece.name}: has no rows")
    labeled = f"the columns of labeled sentences ({columns.text!r}, {columns.label!r})"
    pairs = f"those of scored pairs ({', '.join(map(repr, pair_columns))})"
    kinds = f"both {labeled} and {pairs}" if is_labeled else f"neither {labeled} nor {pairs}"
    listed = ", ".join(map(repr, present))
    raise InputError(f"{piece.name}: has {kinds}; the columns are {listed}")


def _check(task: Classification, num_folds: int) -> None:
    """Raise InputError if there are too few rows or classes to fit regressions and select C."""
    fitted = task.parts["train" if task.is_split else "all"]
    counts = Counter(fitted.labels).most_common()
    if len(counts) == 1:
        only_label, _ = counts[0]
        raise InputError(
            f"{task.name}: every row has the label {only_label!r}; a classifier needs two classes"
        )
    if not task.is_split and len(fitted.labels) < num_folds:
        raise InputError(
            f"{task.name}: has {len(fitted.labels)} rows, fewer than the {num_folds} folds"
        )
    # minimum size of the second-largest class, so that all inner folds train on at least two classes
    min_rows = max(num_folds, 2 * NUM_INNER_FOLDS)
    if task.is_split:
        min_rows = 1 if "dev" in task.parts else NUM_INNER_FOLDS
    second_label, num_rows = counts[1]
    if num_rows < min_rows:
        raise InputError(
            f"{task.name}: {second_label!r}, the second-largest class, has {num_rows} rows; allowed: at least {min_rows}, "
            "so that each fold has two classes"
        )
    tested_labels = task.tested.labels
    if set(fitted.labels).isdisjoint(tested_labels):
        raise InputError(
            f"{task.name}: no row in test has a label that occurs in train; test has {tested_labels[0]!r}"
        )
