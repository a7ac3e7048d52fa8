"""Which rows of a dataset stand inside which of its training rows.

No two rows are compared. The rows that are asked about are few enough to be held in memory as :class:`Phrases`. They travel
to wherever blocks of the training rows are read, and each block gives an answer.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from raysweep.data.phrases import Phrases

BATCH_CHARACTERS = 2**23  # of the rows that are looked for at a time; they take about as many words as a fifth of that


Ids = npt.NDArray[np.integer]


Integers = npt.NDArray[np.int64]


class Answer(NamedTuple):
    """What a block of training rows has of the phrases that were asked for, which go by their positions."""

    found: Integers  # the phrases that stand inside any of its rows
    counts: Integers  # inside how many
    rows: Integers  # those that contain phrases that few contain, each with
    phrases: Integers  # the phrase


Ask = Callable[[Sequence[str], int], Iterable[Answer]]
"""Asks every block about some phrases, whose containing rows are told where they are at most so many."""


TakeTexts = Callable[[Ids], Iterable[Sequence[str]]]
"""The texts of rows, in order, some at a time."""


class Containment:
    """Which rows stand inside training rows. Each question asks all blocks once for every eight million characters."""

    def __init__(self, take_texts: TakeTexts, ask: Ask) -> None:
        self._take_texts = take_texts
        self._ask = ask

    def is_inside(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Which of these rows stand inside a training row, (ids,)."""
        parts = [np.zeros(0, bool)]
        for batch in self._batches(ids):
            is_inside = np.zeros(len(batch), bool)
            for answer in self._ask(batch, 0):
                is_inside[answer.found] = True
            parts.append(is_inside)
        return np.concatenate(parts)

    def containing(self, ids: Ids, most: int) -> list[Ids | None]:
        """The training rows that contain each of these rows, ascending; None where there are more than ``most``."""
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
        """The texts of these rows, in as many batches as memory asks for."""
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
    """The answer of a block of training rows, ascending, of these texts."""
    places, ends = phrases.inside(texts)
    by_end = np.argsort(phrases.ends, kind="stable")
    sorted_ends = phrases.ends[by_end]
    first = np.searchsorted(sorted_ends, ends)
    sharing = np.searchsorted(sorted_ends, ends, side="right") - first  # phrases of the same words share an end
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
