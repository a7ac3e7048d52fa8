"""Which rows of a dataset stand inside which of its training rows.

No two rows are compared. The rows that are asked about are few enough to be held in memory as :class:`Phrases`, and the
training rows stream past them, block by block.
"""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from raysweep.data.dataset import Texts
from raysweep.data.files import BLOCK_ROWS
from raysweep.data.phrases import Pairs, Phrases

BATCH_CHARACTERS = 2**23  # of the rows that are looked for at a time; they take about as many words as a fifth of that


Ids = npt.NDArray[np.integer]


Progress = Callable[[int], None]


class Containment:
    """Which rows stand inside training rows, which ``is_train``, (rows,), marks.

    Each question reads the training rows once for every eight million characters that it asks about. It holds these and a
    block of rows. ``progress`` is told the rows of the file that it has read so far, each time from the start.
    """

    def __init__(self, texts: Texts, is_train: npt.NDArray[np.bool_], progress: Progress = lambda rows: None) -> None:
        self._texts = texts
        self._is_train = is_train
        self._progress = progress

    def is_inside(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Which of these rows stand inside a training row, (ids,)."""
        parts = [self._is_inside(phrases) for phrases in self._batches(ids)]
        return np.concatenate([np.zeros(0, bool), *parts])

    def containing(self, ids: Ids, most: int) -> list[Ids | None]:
        """The training rows that contain each of these rows, ascending; None where there are more than ``most``."""
        found: list[Ids | None] = []
        for phrases in self._batches(ids):
            found.extend(self._containing(phrases, most))
        return found

    def _is_inside(self, phrases: Phrases) -> npt.NDArray[np.bool_]:
        is_found = np.zeros(phrases.num_nodes, bool)
        for _, ends in self._pairs(phrases):
            is_found[ends] = True
        inside: npt.NDArray[np.bool_] = is_found[phrases.ends]
        return inside

    def _containing(self, phrases: Phrases, most: int) -> Iterator[Ids | None]:
        counts = np.zeros(phrases.num_nodes, np.int64)
        kept = np.zeros((2, 0), np.int64)  # rows and ends
        for pairs in self._pairs(phrases):
            _, ends = pairs
            counts += np.bincount(ends, minlength=phrases.num_nodes)
            both = np.concatenate([kept, pairs], axis=1)
            are_few = counts[both[1]] <= most
            kept = both[:, are_few]
        by_end = np.argsort(kept[1], kind="stable")
        rows, ends = kept[:, by_end]
        for end in phrases.ends.tolist():
            first = np.searchsorted(ends, end)
            behind = first + counts[end]
            found = rows[first:behind]
            yield found if counts[end] <= most else None

    def _batches(self, ids: Ids) -> Iterator[Phrases]:
        """These rows, in as many batches as memory asks for."""
        batch: list[str] = []
        num_characters = 0
        for first in range(0, len(ids), BLOCK_ROWS):
            for text in self._texts.take(ids[first : first + BLOCK_ROWS]):
                batch.append(text)
                num_characters += len(text)
                if num_characters >= BATCH_CHARACTERS:
                    yield Phrases(batch)
                    batch, num_characters = [], 0
        if batch:
            yield Phrases(batch)

    def _pairs(self, phrases: Phrases) -> Iterator[Pairs]:
        """Training rows, and the ends of phrases that stand inside them, block by block."""
        next_row = 0
        for batch in self._texts.batches:
            is_train = self._is_train[next_row : next_row + len(batch)]
            rows = next_row + np.flatnonzero(is_train)
            next_row += len(batch)
            if len(rows):
                positions, ends = phrases.inside(self._texts.take(rows))
                yield rows[positions], ends
            self._progress(next_row)
