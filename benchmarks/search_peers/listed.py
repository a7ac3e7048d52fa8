"""Random and grid search: the recorded configurations in order, each run to its end."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.search_peers.shown import Asked, Points
from raysweep.config.space import Scalar
from raysweep.replay.recordings import RecordedSweep


class Listed:
    """The recorded configurations in an order."""

    def __init__(self, recording: RecordedSweep, order: Sequence[int]) -> None:
        self._recording, self._order, self._num_proposed = recording, order, 0

    def ask(self) -> Asked:
        if self._num_proposed == len(self._order):
            return None
        number = self._num_proposed
        self._num_proposed += 1
        return number, dict(self._recording.trials[self._order[number]].values)

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        pass

    def on_rung(self, trial: int, budget: int, points: Points, ahead: Sequence[int]) -> bool:
        return False

    def on_rest(self, trial: int, completed: bool) -> None:
        pass


def shuffled(recording: RecordedSweep, seed: int) -> list[int]:
    order: list[int] = np.random.default_rng(seed).permutation(len(recording.trials)).tolist()
    return order


def in_order(recording: RecordedSweep) -> list[int]:
    """Return the trials by their values; the first column changes most slowly, and missing values come first."""
    names = list(dict.fromkeys(name for trial in recording.trials for name in trial.values))

    def place(value: Scalar | None) -> tuple[int, Any]:
        if value is None:
            return 0, 0
        return (2 if isinstance(value, str) else 1), value

    def places(index: int) -> list[tuple[int, Any]]:
        values = recording.trials[index].values
        return [place(values.get(name)) for name in names]

    return sorted(range(len(recording.trials)), key=places)
