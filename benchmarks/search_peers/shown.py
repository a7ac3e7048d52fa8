"""The results that a peer has seen, in its units."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from raysweep.metrics.objective import front_of
from raysweep.metrics.scores import Pair
from raysweep.replay.recordings import RecordedSweep

Asked = tuple[int, dict[str, Any]] | None
Points = Sequence[Pair]


class Shown:
    """The fronts of trials so far, and their values."""

    def __init__(self, recording: RecordedSweep) -> None:
        self._objective = recording.objective()
        self._fronts: dict[int, tuple[Pair, ...]] = {}

    def add(self, trial: int, points: Points) -> None:
        self._fronts[trial] = front_of([*self._fronts.get(trial, ()), *points])

    def area(self, trial: int) -> float:
        """Return the hypervolume of the trial's points so far."""
        return self._objective.area(self._fronts[trial])

    def best_point(self, trial: int) -> Pair:
        """Return the trial's best point so far under 0.5 P + 0.5 S."""
        return self._objective.best_point(self._fronts[trial])

    def weighted_sum(self, trial: int) -> float:
        return self._objective.weighted_sum(self.best_point(trial))


def longest(recording: RecordedSweep) -> int:
    """Return the maximum budget of a trial in units of the recording's first, rounded up."""
    return math.ceil(
        max(trial.rungs[-1].budget for trial in recording.trials) / recording.first_budget
    )


def params_of(recording: RecordedSweep, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration by the sampler's names."""
    return recording.space.suggest_fixed(values).params
