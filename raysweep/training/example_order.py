"""The order in which a trial reads its training examples."""

from typing import Any

import numpy as np
import numpy.typing as npt

from raysweep.config.losses import LossExamples
from raysweep.data.prepared import Prepared


class ExampleOrder:
    """Examples of one kind in a seeded order without replacement, reshuffled for each pass.

    ``ids`` (examples, columns) are sentence ids; ``targets`` (examples,) is None for kinds without targets.
    ``remaining`` holds the positions that are drawn but not yet taken; together with ``rng`` it is the state of the
    order.

    With ``no_duplicates``, an example that shares a sentence with its batch waits for the next one, as in
    sentence-transformers' ``BatchSamplers.NO_DUPLICATES``. Waiting examples fill up a batch that this pass and the next
    cannot complete without duplicates.
    """

    def __init__(self, prepared: Prepared, kind: LossExamples, seed: int, *, no_duplicates: bool = False) -> None:
        self.ids, self.targets = prepared.examples(kind)
        self.no_duplicates = no_duplicates
        self.rng = np.random.default_rng(seed)
        self.remaining = np.empty(0, np.int64)

    @property
    def num_columns(self) -> int:
        """Return the number of sentences per example."""
        return int(self.ids.shape[1])

    def restart(self) -> None:
        """Discard the remaining positions, so that the next examples come from a new shuffle."""
        self.remaining = self.remaining[:0]

    def take(self, count: int) -> tuple[npt.NDArray[np.integer], npt.NDArray[Any] | None]:
        """Return the next batch: ids (count, columns), and targets (count,) if the kind has targets."""
        places = self._distinct_places(count) if self.no_duplicates else self._first_places(count)
        taken = self.remaining[places]
        self.remaining = np.delete(self.remaining, places)
        targets = None if self.targets is None else self.targets[taken]
        return np.asarray(self.ids[taken]), targets

    def _first_places(self, count: int) -> slice:
        self._draw(count)
        return slice(count)

    def _distinct_places(self, count: int) -> list[int]:
        """Return the places in ``remaining`` of the first ``count`` examples whose sentences all differ."""
        self._draw(count + len(self.ids))
        distinct: list[int] = []
        waiting: list[int] = []
        in_batch: set[int] = set()
        for place, position in enumerate(self.remaining):
            sentences = self.ids[position].tolist()
            if in_batch.isdisjoint(sentences):
                distinct.append(place)
                in_batch.update(sentences)
            else:
                waiting.append(place)
            if len(distinct) == count:
                return distinct
        missing = count - len(distinct)
        return distinct + waiting[:missing]

    def _draw(self, count: int) -> None:
        """Draw passes until at least ``count`` positions remain."""
        while len(self.remaining) < count:
            next_pass = self.rng.permutation(len(self.ids))
            self.remaining = np.concatenate([self.remaining, next_pass])
