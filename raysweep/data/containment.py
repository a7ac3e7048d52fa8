"""Search for rows of a dataset that are inside its training rows.

Rows are not compared pairwise. The rows in question are few enough to be held in memory as :class:`Phrases`. They are
sent to the workers that read blocks of the training rows, and each block returns an answer.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from raysweep.data.phrases import Phrases

BATCH_CHARACTERS = 2**23  # characters of the rows looked for at once, which have about a fifth as many words


Ids = npt.NDArray[np.integer]


Integers = npt.NDArray[np.int64]


class Answer(NamedTuple):
    """The occurrences of phrases in a block of training rows. Phrases are identified by position."""

    found: Integers  # phrases inside at least one of its rows
    counts: Integers  # the number of rows that contain each
    rows: Integers  # rows that contain a rare phrase
    phrases: Integers  # the rare phrase that each of these rows contains


Ask = Callable[[Sequence[str], int], Iterable[Answer]]
"""Function that looks for phrases in all blocks; rows with a phrase are listed if they are at most a given number."""


TakeTexts = Callable[[Ids], Iterable[Sequence[str]]]
"""Function that yields the texts of rows, in order, in batches."""


class Containment:
    """Search for rows inside training rows. Each query scans all blocks once per eight million characters."""

    def __init__(self, take_texts: TakeTexts, ask: Ask) -> None:
        self._take_texts = take_texts
        self._ask = ask

    def is_inside(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Return which of these rows are inside a training row, (ids,)."""
        parts = [np.zeros(0, bool)]
        for batch in self._batches(ids):
            is_inside = np.zeros(len(batch), bool)
            for answer in self._ask(batch, 0):
                is_inside[answer.found] = True
            parts.append(is_inside)
        return np.concatenate(parts)

    def containing(self, ids: Ids, most: int) -> list[Ids | None]:
        """Return the training rows that contain each of these rows, ascending; None if there are more than ``most``."""
        found: list[Ids | None] = []
        for batch in self._batches(ids):
            found.extend(self._containing(batch, most))
        return found

    def _containing(self, batch: Sequence[str], most: int) -> Iterator[Ids | None]:
        counts = np.zeros(len(batch), np.int64)
        kept = np.zeros((2, 0), np.int64)  # phrases and rows
        for answer in self._ask(batch, most):
            counts[answer.found] += answer.counts
            both = np.concatenate([kept, [answer.phrases, answer.rows]], axis=1)
            are_few = counts[both[0]] <= most
            kept = both[:, are_few]
        order = np.lexsort(kept[::-1])
        phrases, rows = kept[:, order]
        for phrase, count in enumerate(counts.tolist()):
            first = np.searchsorted(phrases, phrase)
            yield rows[first : first + count] if count <= most else None

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


def answer(phrases: Phrases, rows: Ids, texts: Sequence[str], most: int) -> Answer:
    """Return the answer for a block of training rows, ascending, with these texts."""
    places, ends = phrases.inside(texts)
    by_end = np.argsort(phrases.ends, kind="stable")
    sorted_ends = phrases.ends[by_end]
    first = np.searchsorted(sorted_ends, ends)
    sharing = np.searchsorted(sorted_ends, ends, side="right") - first  # phrases with the same words share an end
    pairs = np.repeat(np.arange(len(ends)), sharing)
    pairs_before = np.cumsum(sharing) - sharing
    within = np.arange(len(pairs)) - pairs_before[pairs]
    positions = by_end[first[pairs] + within]
    counts = np.bincount(positions, minlength=len(phrases.ends))
    found = np.flatnonzero(counts)
    are_few = counts[positions] <= most
    places_of_few = places[pairs[are_few]]
    containing = np.asarray(rows, np.int64)[places_of_few]
    return Answer(found, counts[found], containing, positions[are_few])
