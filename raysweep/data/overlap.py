"""Overlap of the other splits with train: texts that are also in train, and texts inside training texts."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from raysweep.data.containment import Containment
from raysweep.data.dataset import Split

MOST_LOOKED_FOR = 10_000  # rows of a split to look for inside training rows; larger splits are sampled


Ids = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Overlap:
    """The overlap of one split with train."""

    split: Split
    num_rows: int
    num_also_in_train: int  # rows whose duplicate group also occurs in train
    num_looked_for: int
    num_inside_train: int  # rows looked for whose words are a contiguous run of a longer training row's words

    @property
    def warnings(self) -> list[str]:
        """Return one line for each kind of overlap found."""
        found = []
        if count := self.num_also_in_train:
            found.append(f"{count} of {self.num_rows} {self.split} texts also stand in train, case and spacing aside")
        if count := self.num_inside_train:
            is_sample = self.num_looked_for < self.num_rows
            total = f"a sample of {self.num_looked_for}" if is_sample else f"{self.num_looked_for}"
            found.append(f"{count} of {total} {self.split} texts stand inside training texts, word for word")
        return found


def overlaps(
    ids: Mapping[Split, Ids], groups: npt.NDArray[np.int32], containment: Containment, *, seed: int
) -> dict[Split, Overlap]:
    """Return the overlap of each split except train.

    ``ids`` are the rows by split, ``groups`` (rows,) the duplicate groups.
    """
    others: list[Split] = [split for split in ids if split != "train"]
    looked_for = _sample(ids, others, seed)
    asked = np.concatenate([looked_for[split] for split in others])
    is_inside = containment.is_inside(asked)
    found: dict[Split, Overlap] = {}
    for split in others:
        is_in_train = np.isin(groups[ids[split]], groups[ids["train"]])
        is_of_split = np.isin(asked, looked_for[split])
        found[split] = Overlap(
            split=split,
            num_rows=len(ids[split]),
            num_also_in_train=int(is_in_train.sum()),
            num_looked_for=len(looked_for[split]),
            num_inside_train=int(is_inside[is_of_split].sum()),
        )
    return found


def _sample(ids: Mapping[Split, Ids], splits: list[Split], seed: int) -> dict[Split, Ids]:
    """Return the rows of these splits, ascending; large splits are sampled."""
    rng = np.random.default_rng(seed)
    found: dict[Split, Ids] = {}
    for split in splits:
        num_rows = min(len(ids[split]), MOST_LOOKED_FOR)
        drawn = rng.choice(ids[split], num_rows, replace=False)
        found[split] = np.sort(drawn)
    return found
