"""What a peer has seen of a table's trials, in the units that it is told."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from raysweep.metrics.objective import Pair, front_of
from raysweep.replay.recordings import RecordedSweep

Asked = tuple[int, dict[str, Any]] | None
Points = Sequence[Pair]


class Shown:
    """The fronts that trials have shown so far, and what they are worth."""

    def __init__(self, table: RecordedSweep) -> None:
        self._objective = table.objective()
        self._fronts: dict[int, tuple[Pair, ...]] = {}

    def add(self, trial: int, points: Points) -> None:
        self._fronts[trial] = front_of([*self._fronts.get(trial, ()), *points])

    def area(self, trial: int) -> float:
        """The hypervolume of all that the trial has shown."""
        return self._objective.area(self._fronts[trial])

    def best_point(self, trial: int) -> Pair:
        """The best of all that the trial has shown under 0.5 P + 0.5 S."""
        return self._objective.best_point(self._fronts[trial])

    def weighted_sum(self, trial: int) -> float:
        return self._objective.weighted_sum(self.best_point(trial))


def longest(table: RecordedSweep) -> int:
    """The greatest budget of a trial in units of the table's first, rounded up."""
    return math.ceil(max(trial.rungs[-1].budget for trial in table.trials) / table.first_budget)


def params_of(table: RecordedSweep, values: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration by the sampler's names."""
    return table.space.suggest_fixed(values).params
