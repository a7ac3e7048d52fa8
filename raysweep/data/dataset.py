"""A sweep's sentences, identified by integer ids and stored in memory-mapped files.

``00000-of-00002.arrow``    shards of the columns ``text`` and ``label``
``labels.npy``              int32, indices into ``label_names``
``splits.npy``              int8, indices into ``SPLITS``, or ``NO_SPLIT``
``duplicate_groups.npy``    int32, equal for texts that are identical apart from case, spacing and Unicode form (NFKC)
``dataset.json``            the :class:`DatasetSummary`
``pairs-train.npy``         int64 (pairs, 4), a :attr:`.GroupedPairs.table`; one file per split, only for retrieval
                            data and pairs

Ids are consecutive and start at 0: first train, then dev, then test, each in source order. If dev was carved from train,
its rows keep their ids. Rows that were removed from train because they contain dev rows also keep their ids, but belong
to no split.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raysweep.data.artifacts import damaged
from raysweep.data.equal_rows import rows_by_value
from raysweep.data.relations import GroupedPairs
from raysweep.data.shards import OpenShards, open_npy

Split = Literal["train", "dev", "test"]

SPLITS: tuple[Split, ...] = get_args(Split)
NO_SPLIT = -1
# default split names of Hub datasets
HUB_SPLITS: dict[Split, str] = {
    "train": "train",
    "dev": "validation",
    "test": "test",
}


@dataclass(frozen=True)
class DatasetSummary:
    """The sources, sizes and data problems of a dataset. Dictionaries are keyed by split."""

    sources: Mapping[Split, str | Sequence[str]]
    label_names: list[str]  # in natural sort order: "2" before "10"
    num_sentences: dict[str, int]
    num_by_label: dict[str, dict[str, int]]
    num_dropped_conflicting: int  # rows whose exact text has several labels within one split
    conflicts: list[dict[str, Any]]  # up to five such texts: split, text, labels
    num_duplicates: dict[str, int]  # rows whose duplicate group occurs earlier in the same split
    num_also_in_train: dict[str, int]  # rows whose duplicate group also occurs in train
    warnings: list[str]
    # rows inside longer training rows, among at most 10,000 sampled rows of the split
    num_inside_train: dict[str, int]
    # training rows that contain rows of the carved dev split; they belong to no split
    num_left_out: int


def pairs_file(split: Split) -> str:
    return f"pairs-{split}.npy"


class Sentences:
    """A memory-mapped dataset."""

    def __init__(self, folder: Path) -> None:
        summary_file = folder / "dataset.json"
        try:
            values = json.loads(summary_file.read_text(encoding="utf-8"))
            self.summary = DatasetSummary(**values)
        except (FileNotFoundError, ValueError, TypeError, RecursionError):
            raise damaged(summary_file) from None
        self._folder = folder
        self.labels: npt.NDArray[np.int32] = open_npy(folder / "labels.npy")
        self.splits: npt.NDArray[np.int8] = open_npy(folder / "splits.npy")
        self.duplicate_groups: npt.NDArray[np.int32] = open_npy(folder / "duplicate_groups.npy")
        self._texts = Texts(OpenShards(folder).columns("text"))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def are_related(self) -> bool:
        """Return whether the sentences come from retrieval data or pairs, which have no labels."""
        return (self._folder / pairs_file("train")).is_file()

    def pairs(self, split: Split) -> GroupedPairs:
        """Return the pairs of a split. Labeled data has no pairs."""
        return GroupedPairs.of_table(open_npy(self._folder / pairs_file(split)))

    def num_queries(self, split: Split) -> int:
        """Return the number of scored queries or groups; in labeled data, every sentence is a query."""
        return (
            int(self.pairs(split).are_measured.sum()) if self.are_related else len(self.ids(split))
        )

    @property
    def label_names(self) -> list[str]:
        return self.summary.label_names

    def texts(self, ids: Sequence[int] | npt.NDArray[np.integer[Any]]) -> list[str]:
        """Return the texts of ``ids``, in that order."""
        return self._texts.take(ids)

    def ids(self, split: Split) -> npt.NDArray[np.int32]:
        """Return the ids of one split, ascending."""
        is_in_split = self.splits == SPLITS.index(split)
        return np.flatnonzero(is_in_split).astype(np.int32)


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
        requested = np.asarray(ids, np.int64)
        if not len(requested):
            return []
        lowest, highest = requested.min(), requested.max()
        last = self._starts[-1] - 1
        if not 0 <= lowest <= highest <= last:
            raise IndexError(f"ids range from {lowest} to {highest}; allowed: 0 to {last}")
        numbers = np.searchsorted(self._starts, requested, side="right") - 1
        texts = np.empty(len(requested), object)
        # pyarrow's take on a chunked column copies all chunks first, so take from each column separately.
        for positions in rows_by_value(numbers):
            number = numbers[positions[0]]
            rows = requested[positions] - self._starts[number]
            column = self._columns[number].take(pa.array(rows))
            texts[positions] = column.to_pylist()
        taken: list[str] = texts.tolist()
        return taken
