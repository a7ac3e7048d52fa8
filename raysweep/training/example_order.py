"""The order in which a trial takes its training examples."""

from typing import Any

import numpy as np
import numpy.typing as npt

from raysweep.config.losses import LossExamples
from raysweep.data.prepared import Prepared


class ExampleOrder:
    """Examples of one kind in a seeded order without replacement, shuffled anew at each pass.

    ``ids`` (examples, columns) are sentence ids, and ``targets`` (examples,) are there where the kind has any.
    ``remaining`` holds the positions that are drawn and not taken yet; with ``rng`` it is where the order stands.
    """

    def __init__(self, prepared: Prepared, kind: LossExamples, seed: int) -> None:
        self.ids, self.targets = prepared.examples(kind)
        self.rng = np.random.default_rng(seed)
        self.remaining = np.empty(0, np.int64)

    @property
    def num_columns(self) -> int:
        """The number of sentences in an example."""
        return int(self.ids.shape[1])

    def restart(self) -> None:
        """Leave what is drawn and not taken: the next examples are a sample of their own."""
        self.remaining = self.remaining[:0]

    def take(self, count: int) -> tuple[npt.NDArray[np.integer], npt.NDArray[Any] | None]:
        """The next examples: ids (count, columns), and targets (count,) where the kind has any."""
        while len(self.remaining) < count:
            next_pass = self.rng.permutation(len(self.ids))
            self.remaining = np.concatenate([self.remaining, next_pass])
        taken = self.remaining[:count]
        self.remaining = self.remaining[count:]
        targets = None if self.targets is None else self.targets[taken]
        return np.asarray(self.ids[taken]), targets
