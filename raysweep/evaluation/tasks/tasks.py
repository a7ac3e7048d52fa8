"""What models are compared on: labelled sentences that are classified, and scored pairs of sentences.

A task is spelled ``[NAME=]SOURCE``; where its split is given ``[NAME=]TRAIN,TEST`` or ``[NAME=]TRAIN,DEV,TEST``. Each part
is a source as :mod:`raysweep.data.sources` reads it. Which kind of task it is shows in its columns.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from raysweep.data import sources
from raysweep.data.dataset import HUB_SPLITS
from raysweep.data.source_files import format_of, without_options
from raysweep.errors import InputError
from raysweep.evaluation.tasks import scored_pairs
from raysweep.evaluation.tasks.classification import NUM_INNER_FOLDS
from raysweep.evaluation.tasks.scored_pairs import PairColumns, ScoredPairs

_NAMED = re.compile(r"(?P<name>[\w .+-]+)=(?P<parts>.+)", re.DOTALL)


_PARTS = {1: ("all",), 2: ("train", "test"), 3: ("train", "dev", "test")}
_SPLITS = {"all": "train"} | {str(part): split for part, split in HUB_SPLITS.items()}


@dataclass(frozen=True)
class Columns:
    """What columns are called: of labelled sentences, and of scored pairs."""

    text: str = "text"
    label: str = "label"
    pairs: PairColumns = field(default_factory=PairColumns)


@dataclass(frozen=True)
class Labelled:
    """Sentences and the names of their classes, of equal length."""

    texts: list[str]
    labels: list[str]


@dataclass(frozen=True)
class Classification:
    """Labelled sentences: ``train`` and ``test``, perhaps ``dev``, or ``all`` where they are tested by cross-validation.

    ``merged`` reports labels that are spelled in several ways.
    """

    name: str
    parts: Mapping[str, Labelled]
    merged: str = ""

    @property
    def is_split(self) -> bool:
        return "test" in self.parts

    @property
    def tested(self) -> Labelled:
        return self.parts["test" if self.is_split else "all"]

    @property
    def sentences(self) -> Mapping[str, list[str]]:
        """The sentences of each part."""
        return {part: rows.texts for part, rows in self.parts.items()}


Task = Classification | ScoredPairs


def read(spelled: Sequence[str], columns: Columns, num_folds: int) -> list[Task]:
    """Read the tasks, which get different names. Raises InputError where one of them cannot be read or scored."""
    found = [_read(each, columns, num_folds) for each in spelled]
    for name, count in Counter(task.name for task in found).items():
        if count > 1:
            raise InputError(f"--tasks: {count} tasks are called {name!r}; give them names, as in NAME=FILE")
    return found


def sources_of(spelled: str) -> list[str]:
    """Return the sources that a task names, without its own name."""
    match = _NAMED.fullmatch(spelled)
    return (match["parts"] if match else spelled).split(",")


def _read(spelled: str, columns: Columns, num_folds: int) -> Task:
    match = _NAMED.fullmatch(spelled)
    listed = sources_of(spelled)
    if len(listed) not in _PARTS or "" in listed:
        raise InputError(
            f"--tasks: {spelled!r} is none; allowed: [NAME=]FILE, [NAME=]TRAIN,TEST and [NAME=]TRAIN,DEV,TEST"
        )
    pieces = {part: _pieces(source, part) for part, source in zip(_PARTS[len(listed)], listed, strict=True)}
    name = match["name"].strip() if match else _name_of(listed[0])
    kinds = {part: _holds_pairs(pieces[part][0], columns) for part in pieces}
    if not any(kinds.values()):
        spellings: set[tuple[str, str]] = set()
        parts = {part: _labelled(pieces[part], columns, spellings) for part in pieces}
        task = Classification(name, parts, sources.merged_labels(sorted(spellings)))
        _check(task, num_folds)
        return task
    if len(listed) > 1:
        raise InputError(f"--tasks: {spelled!r}: scored pairs have no split; give each file as a task of its own")
    return scored_pairs.read(name, pieces["all"], columns.pairs)


def _pieces(source: str, part: str) -> list[sources.Piece]:
    """What a source is made of. One with splits of its own is asked for that of the part."""
    return sources.pieces(source, split=_SPLITS[part])


def _name_of(source: str) -> str:
    """The file's name without its format's suffixes, such as ``2012.OnWN`` for ``sts/2012.OnWN.tsv.gz``."""
    path = PurePosixPath(without_options(source).removeprefix("hub:"))
    found = format_of(path.name)
    if found and found.compression:
        path = path.with_suffix("")
    return path.stem if found else path.name.partition(":")[0]


def _holds_pairs(piece: sources.Piece, columns: Columns) -> bool:
    """Whether a piece holds scored pairs, and not labelled sentences. InputError where it holds neither."""
    if scored_pairs.is_without_header(piece):
        return True
    present = sources.column_names(piece)
    is_labelled = {columns.text, columns.label} <= set(present)
    has_pairs = set(columns.pairs.names) <= set(present)
    if is_labelled != has_pairs:
        return has_pairs
    if not present:
        raise InputError(f"{piece.name}: holds no rows")
    both, joined_by = ("both", "and") if is_labelled else ("neither", "nor")
    labelled = f"the columns of labelled sentences ({columns.text!r}, {columns.label!r})"
    pairs = f"those of scored pairs ({', '.join(map(repr, columns.pairs.names))})"
    listed = ", ".join(map(repr, present))
    raise InputError(f"{piece.name}: has {both} {labelled} {joined_by} {pairs}; the columns are {listed}")


def _labelled(pieces: Sequence[sources.Piece], columns: Columns, spellings: set[tuple[str, str]]) -> Labelled:
    """Read labelled sentences, and add their labels to ``spellings``, each with its own."""
    rows = Labelled([], [])
    for batch in sources.read_pieces(pieces, columns.text, columns.label):
        rows.texts.extend(batch.texts)
        rows.labels.extend(batch.labels)
        spellings.update(zip(batch.labels, batch.spellings, strict=True))
    return rows


def _check(task: Classification, num_folds: int) -> None:
    """InputError where there are too few rows or classes to fit regressions on, and to choose among them."""
    fitted = task.parts["train" if task.is_split else "all"]
    counts = Counter(fitted.labels).most_common()
    if len(counts) == 1:
        raise InputError(f"{task.name}: every row has the label {counts[0][0]!r}; a classifier needs two classes")
    if not task.is_split and len(fitted.labels) < num_folds:
        raise InputError(f"{task.name}: has {len(fitted.labels)} rows, fewer than the {num_folds} folds")
    least = _least_rows(task, num_folds)
    second, num_rows = counts[1]
    if num_rows < least:
        raise InputError(
            f"{task.name}: two classes need {least} rows each to be put into folds; {second!r}, the second largest, has "
            f"{num_rows}"
        )
    if not set(task.tested.labels) & set(fitted.labels):
        raise InputError(f"{task.name}: no row of test has a label of train: {task.tested.labels[0]!r}")


def _least_rows(task: Classification, num_folds: int) -> int:
    """How many rows two classes need, so that each inner fold's other rows have both."""
    if not task.is_split:
        return max(num_folds, 2 * NUM_INNER_FOLDS)
    return 1 if "dev" in task.parts else NUM_INNER_FOLDS
