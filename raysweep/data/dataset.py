"""The sentences of a sweep, each with an integer id, in files that every process memory-maps.

``00000-of-00002.arrow``    shards of the columns ``text`` and ``label``
``labels.npy``              int32, an index into ``label_names``
``splits.npy``              int8, an index into ``SPLITS``, or ``NO_SPLIT``
``duplicate_groups.npy``    int32, equal for texts that differ at most in case, spacing and Unicode form (NFKC)
``dataset.json``            the :class:`Summary`

Ids run from 0 without gaps: the rows of train in source order, then those of dev, then those of test. If dev was split
off train, its rows keep their positions among the training rows. So do training rows that had to leave train because
they contain dev rows; these belong to no split.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raysweep.data.artifacts import damaged
from raysweep.data.shards import OpenShards, open_npy

Split = Literal["train", "dev", "test"]


SPLITS: tuple[Split, ...] = get_args(Split)


NO_SPLIT = -1


HUB_SPLITS: dict[Split, str] = {
    "train": "train",
    "dev": "validation",
    "test": "test",
}  # default split names of a hub dataset


@dataclass(frozen=True)
class Summary:
    """The sources, sizes and data problems of a dataset. Dictionaries are by split."""

    sources: Mapping[Split, str | Sequence[str]]
    label_names: list[str]  # in natural sort order: "2" before "10"
    num_sentences: dict[str, int]
    num_by_label: dict[str, dict[str, int]]
    num_dropped_conflicting: int  # rows whose exact text has different labels in one split
    conflicts: list[dict[str, Any]]  # up to five such texts: split, text, labels
    num_duplicates: dict[str, int]  # rows whose duplicate group occurs earlier in the same split
    num_also_in_train: dict[str, int]  # rows whose duplicate group also occurs in train
    warnings: list[str]
    num_inside_train: dict[str, int]  # rows contained in longer training rows, counted in a
    # sample of 10,000 rows if the split is larger
    num_left_out: int  # training rows that contain rows of the carved dev split; they belong to no split


class Sentences:
    """A dataset written by :mod:`raysweep.prepare.ingest`, opened as memory maps; data is read on access."""

    def __init__(self, folder: Path) -> None:
        self.summary = _read_summary(folder / "dataset.json")
        self.labels: npt.NDArray[np.int32] = open_npy(folder / "labels.npy")
        self.splits: npt.NDArray[np.int8] = open_npy(folder / "splits.npy")
        self.duplicate_groups: npt.NDArray[np.int32] = open_npy(folder / "duplicate_groups.npy")
        self._texts = open_texts(folder)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def label_names(self) -> list[str]:
        return self.summary.label_names

    def texts(self, ids: Sequence[int] | npt.NDArray[np.integer[Any]]) -> list[str]:
        """Return the texts of ``ids``, in that order. The cost does not depend on the dataset's size."""
        return self._texts.take(ids)

    def ids(self, split: Split) -> npt.NDArray[np.int32]:
        """Return the ids of one split, ascending."""
        return np.flatnonzero(self.splits == SPLITS.index(split)).astype(np.int32)


def _read_summary(file: Path) -> Summary:
    try:
        return Summary(**json.loads(file.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError, RecursionError):
        raise damaged(file) from None


def open_texts(folder: Path) -> "Texts":
    """Open the texts of a dataset as memory maps."""
    return Texts(OpenShards(folder).columns("text"))


class Texts:
    """Random access to the string columns of memory-mapped Arrow files, treated as one concatenated column."""

    def __init__(self, columns: Sequence[pa.StringArray]) -> None:
        self._columns = columns
        self._starts = np.cumsum([0, *map(len, columns)])

    def take(self, ids: Sequence[int] | npt.NDArray[np.integer[Any]]) -> list[str]:
        """Return the texts of ``ids``, in that order.

        Raises:
            IndexError: If an id does not exist.
        """
        wanted = np.asarray(ids, np.int64)
        if not len(wanted):
            return []
        lowest = wanted.min()
        highest = wanted.max()
        last = self._starts[-1] - 1
        if not 0 <= lowest <= highest <= last:
            raise IndexError(f"ids from {lowest} to {highest}, but only 0 to {last} exist")
        # pyarrow's take on a chunked column copies all chunks first, so take from each column separately.
        texts = np.empty(len(wanted), object)
        for number, positions in self._by_column(wanted):
            rows = wanted[positions] - self._starts[number]
            taken = self._columns[number].take(pa.array(rows))
            texts[positions] = taken.to_pylist()
        found: list[str] = texts.tolist()
        return found

    def _by_column(self, ids: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Yield the number of each column that holds any of the ``ids``, and the positions of those ids."""
        column_numbers = np.searchsorted(self._starts, ids, side="right") - 1
        by_column = np.argsort(column_numbers, kind="stable")
        changes = np.flatnonzero(np.diff(column_numbers[by_column])) + 1
        for positions in np.split(by_column, changes):
            yield column_numbers[positions[0]], positions
