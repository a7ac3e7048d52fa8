"""Concatenation of several data sets into one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from raysweep.data.dataset import Sentences, Split
from raysweep.data.shards import Rows, ShardedArray


class SentenceSequence(Sentences):
    """The concatenated sentences of several data sets.

    The ids and labels of each data set continue those of the previous one. Label names have the form ``DATA SET/LABEL``.

    Attributes:
        names: The names of the data sets.
        starts: The first id of each data set, and then the total number of sentences, (data sets + 1,).
        num_classes: The number of classes of each data set.
    """

    def __init__(self, parts: Mapping[str, Sentences]) -> None:
        self.names = tuple(parts)
        self._parts = list(parts.values())
        num_sentences = [len(part) for part in self._parts]
        self.num_classes = [len(part.label_names) for part in self._parts]
        self.starts = np.cumsum([0, *num_sentences])
        self._first_labels = np.cumsum([0, *self.num_classes])
        label_names = []
        for name, part in parts.items():
            label_names += [f"{name}/{label}" for label in part.label_names]
        first, *_ = self._parts
        self.summary = replace(first.summary, label_names=label_names)
        labels = [part.labels for part in self._parts]
        self.labels = _concatenate_shifted(labels, self._first_labels)
        self.splits = np.concatenate([part.splits for part in self._parts])
        groups = [part.duplicate_groups for part in self._parts]
        self.duplicate_groups = _concatenate_shifted(groups, self.starts)

    @property
    def are_related(self) -> bool:
        return False

    def texts(self, ids: Sequence[int] | npt.NDArray[np.integer[Any]]) -> list[str]:
        requested = np.asarray(ids, np.int64)
        texts = np.empty(len(requested), object)
        numbers = self.data_sets_of(requested)
        for number in np.unique(numbers):
            positions = np.flatnonzero(numbers == number)
            texts[positions] = self._parts[number].texts(requested[positions] - self.starts[number])
        in_order: list[str] = texts.tolist()
        return in_order

    def num_queries(self, split: Split) -> int:
        """Return the number of queries. All data sets contribute the same number."""
        return len(self._parts) * self.queries_per_data_set(split)

    def queries_per_data_set(self, split: Split) -> int:
        """Return the number of sentences that the smallest data set has in a split."""
        return min(len(part.ids(split)) for part in self._parts)

    def data_sets_of(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
        """Return each sentence's data set number, (len(ids),)."""
        return np.searchsorted(self.starts, ids, side="right") - 1

    def local_labels(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
        """Return each sentence's label number within its own data set, (len(ids),)."""
        first_labels = self._first_labels[self.data_sets_of(ids)]
        labels: npt.NDArray[np.int64] = self.labels[ids] - first_labels
        return labels


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Concatenate several arrays lazily: each part is opened on first use."""
    return ShardedArray([len(part) for part in parts], lambda number: np.asarray(parts[number]))


def _concatenate_shifted(
    parts: Sequence[npt.NDArray[Any]], offsets: npt.NDArray[np.integer[Any]]
) -> npt.NDArray[Any]:
    """Add an offset to each part and concatenate the parts. The last offset is not used."""
    shifted = [
        part + np.asarray(offset, part.dtype)
        for part, offset in zip(parts, offsets[:-1], strict=True)
    ]
    return np.concatenate(shifted)
