"""Overlap between train and other splits, including rows that are inside longer training rows.

The rows to search for fit in memory as :class:`Phrases`. Workers search blocks of training rows for these phrases.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from raysweep.data.dataset import Split
from raysweep.data.phrases import Phrases

# total characters of the rows searched for at once
BATCH_CHARACTERS = 2**23
# maximum number of rows per split to search for; larger splits are sampled
MAX_SEARCHED = 10_000

Ids = npt.NDArray[np.integer]

Integers = npt.NDArray[np.int64]


class Matches(NamedTuple):
    """Occurrences of phrases in a block of training rows. Phrases are identified by position."""

    present: Integers  # phrases inside at least one row of the block
    counts: Integers  # for each of these phrases, the number of rows that contain it
    rows: Integers  # rows that contain a rare phrase, one entry per match
    phrases: Integers  # the rare phrase of each match


FindPhrases = Callable[[Sequence[str], int], Iterable[Matches]]
"""Function that searches all blocks for phrases. Rare phrases are those in at most the given number of rows per block."""


TakeTexts = Callable[[Ids], Iterable[Sequence[str]]]
"""Function that yields the texts of rows, in order, in batches."""


class Containment:
    """Search for rows inside training rows. Each call scans all blocks once per batch of rows to search for."""

    def __init__(self, take_texts: TakeTexts, find_phrases: FindPhrases) -> None:
        self._take_texts = take_texts
        self._find_phrases = find_phrases

    def is_inside(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Return whether each of these rows is inside a training row, (ids,)."""
        parts = [np.zeros(0, bool)]
        for batch in self._batches(ids):
            is_inside = np.zeros(len(batch), bool)
            for matches in self._find_phrases(batch, 0):
                is_inside[matches.present] = True
            parts.append(is_inside)
        return np.concatenate(parts)

    def containing(self, ids: Ids, max_rows: int) -> list[Ids | None]:
        """Return the training rows that contain each row, ascending, or None if there are more than ``max_rows``."""
        containing: list[Ids | None] = []
        for batch in self._batches(ids):
            counts = np.zeros(len(batch), np.int64)
            phrases = np.zeros(0, np.int64)
            rows = np.zeros(0, np.int64)
            for matches in self._find_phrases(batch, max_rows):
                counts[matches.present] += matches.counts
                phrases = np.concatenate([phrases, matches.phrases])
                rows = np.concatenate([rows, matches.rows])
                is_rare = counts[phrases] <= max_rows
                phrases = phrases[is_rare]
                rows = rows[is_rare]
            order = np.lexsort((rows, phrases))
            starts = np.searchsorted(phrases[order], np.arange(len(batch)))
            rows_by_phrase = np.split(rows[order], starts[1:])
            for count, rows_of_phrase in zip(counts.tolist(), rows_by_phrase, strict=True):
                containing.append(rows_of_phrase if count <= max_rows else None)
        return containing

    def _batches(self, ids: Ids) -> Iterator[list[str]]:
        """Yield the texts of these rows in batches that fit in memory."""
        batch: list[str] = []
        num_characters = 0
        for texts in self._take_texts(ids):
            for text in texts:
                batch.append(text)
                num_characters += len(text)
                if num_characters >= BATCH_CHARACTERS:
                    yield batch
                    batch, num_characters = [], 0
        if batch:
            yield batch


def match_phrases(phrases: Phrases, rows: Ids, texts: Sequence[str], max_rows: int) -> Matches:
    """Return the matches in a block of training rows. ``rows`` are their numbers, in ascending order."""
    places, ends = phrases.inside(texts)
    pairs, positions = _join(ends, phrases.ends)  # phrases with the same words share an end
    counts = np.bincount(positions, minlength=len(phrases.ends))
    present = np.flatnonzero(counts)
    is_rare = counts[positions] <= max_rows
    rare_phrases = positions[is_rare]
    rare_places = places[pairs[is_rare]]
    rare_rows = rows[rare_places].astype(np.int64)
    return Matches(present, counts[present], rare_rows, rare_phrases)


def _join(left: Integers, right: Integers) -> tuple[Integers, Integers]:
    """Return the positions of all pairs of equal values in both arrays, ordered by position in ``left``."""
    order = np.argsort(right, kind="stable")
    sorted_right = right[order]
    starts = np.searchsorted(sorted_right, left)
    stops = np.searchsorted(sorted_right, left, side="right")
    counts = stops - starts
    left_positions = np.repeat(np.arange(len(left)), counts)
    num_before = np.cumsum(counts) - counts
    offsets = np.arange(len(left_positions)) - num_before[left_positions]
    right_positions = order[starts[left_positions] + offsets]
    return left_positions, right_positions


@dataclass(frozen=True)
class TrainOverlap:
    """The overlap of one split with train."""

    split: Split
    num_rows: int
    num_also_in_train: int  # rows whose duplicate group also occurs in train
    num_searched: int
    # searched rows whose words occur consecutively in a longer training row
    num_inside_train: int

    @property
    def warnings(self) -> list[str]:
        """Return one warning for each kind of overlap found."""
        warnings = []
        if self.num_also_in_train:
            warnings.append(
                f"{self.split}: {self.num_also_in_train} of {self.num_rows} texts also occur in train (ignoring case "
                "and spacing)"
            )
        if self.num_inside_train:
            is_sample = self.num_searched < self.num_rows
            searched = f"a sample of {self.num_searched}" if is_sample else f"{self.num_searched}"
            warnings.append(
                f"{self.split}: {self.num_inside_train} of {searched} texts occur word for word inside longer "
                "train texts"
            )
        return warnings


def measure_overlaps(
    ids: Mapping[Split, npt.NDArray[np.intp]],
    groups: npt.NDArray[np.int32],
    containment: Containment,
    *,
    seed: int,
) -> dict[Split, TrainOverlap]:
    """Return the overlap of each split except train.

    ``ids`` maps each split to its rows; ``groups`` (rows,) are the duplicate groups.
    """
    rng = np.random.default_rng(seed)
    others: list[Split] = [split for split in ids if split != "train"]
    searched = {}
    for split in others:
        rows = ids[split]
        num_searched = min(len(rows), MAX_SEARCHED)
        sample = rng.choice(rows, num_searched, replace=False)
        searched[split] = np.sort(sample)
    all_searched = np.concatenate([searched[split] for split in others])
    is_inside = containment.is_inside(all_searched)
    train_groups = groups[ids["train"]]
    overlaps: dict[Split, TrainOverlap] = {}
    for split in others:
        groups_of_split = groups[ids[split]]
        is_in_train = np.isin(groups_of_split, train_groups)
        is_of_split = np.isin(all_searched, searched[split])
        num_in_train = is_in_train.sum()
        num_inside = is_inside[is_of_split].sum()
        overlaps[split] = TrainOverlap(
            split=split,
            num_rows=len(groups_of_split),
            num_also_in_train=int(num_in_train),
            num_searched=len(searched[split]),
            num_inside_train=int(num_inside),
        )
    return overlaps
