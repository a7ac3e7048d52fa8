"""Random and grid search: the recorded configurations one after the other, each run to its end."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.search_peers.shown import Asked, Points
from raysweep.config.space import Scalar
from raysweep.replay.recordings import RecordedSweep


class Listed:
    """The recorded configurations in an order."""

    def __init__(self, table: RecordedSweep, order: Sequence[int]) -> None:
        self._table, self._order, self._num_asked = table, order, 0

    def ask(self) -> Asked:
        if self._num_asked == len(self._order):
            return None
        number = self._num_asked
        self._num_asked += 1
        return number, dict(self._table.trials[self._order[number]].values)

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        pass

    def on_rung(self, trial: int, budget: int, points: Points, ahead: Sequence[int]) -> bool:
        return False

    def on_rest(self, trial: int, completed: bool) -> None:
        pass


def shuffled(table: RecordedSweep, seed: int) -> list[int]:
    order: list[int] = np.random.default_rng(seed).permutation(len(table.trials)).tolist()
    return order


def in_order(table: RecordedSweep) -> list[int]:
    """The trials by their values, the table's first column changing most slowly; where one has no value it comes first."""
    names = list(dict.fromkeys(name for trial in table.trials for name in trial.values))

    def place(value: Scalar | None) -> tuple[int, Any]:
        if value is None:
            return 0, 0
        return (2 if isinstance(value, str) else 1), value

    def places(index: int) -> list[tuple[int, Any]]:
        values = table.trials[index].values
        return [place(values.get(name)) for name in names]

    return sorted(range(len(table.trials)), key=places)
