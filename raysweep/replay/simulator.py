"""Simulate searches on a recording without training."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from raysweep.config.space import Scalar
from raysweep.config.sweep import Aim, EarlyStoppingConfig, Policy
from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import front_of
from raysweep.metrics.pareto import hypervolume
from raysweep.metrics.scores import Pair
from raysweep.replay.recordings import RecordedRung, RecordedSweep, RecordedTrial, infer_scale
from raysweep.results.types import TrialStatus
from raysweep.search.encoding import Scale
from raysweep.search.proposer import Proposer
from raysweep.search.scheduler import Scheduler
from raysweep.search.stopping.policies import make_early_stopper


class Peer(Protocol):
    """Interface of a search: raysweep's scheduler or an adapter for another library."""

    def ask(self) -> tuple[int, Mapping[str, Any]] | None:
        """Return the next trial to run and its configuration, or None if no trial can run now."""

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        """Receive a new trial's configuration, the recorded one nearest to the proposal."""

    def on_rung(
        self, trial: int, budget: int, points: Sequence[Pair], ahead: Sequence[int]
    ) -> bool:
        """Receive a rung's points, and return whether the trial stops at this rung.

        ``ahead`` contains the budgets of the trial's remaining rungs.
        """

    def on_rest(self, trial: int, completed: bool) -> None:
        """Record that the trial has left its worker.

        If ``completed``, it has finished all of its recorded rungs. Otherwise, it was stopped early.
        """


@dataclass(frozen=True)
class SearchSettings:
    """The settings of a raysweep search, named as in a sweep file."""

    sampler: str
    policy: Policy
    proposals: Aim
    reduction_factor: int = 2


class Search:
    """raysweep's own scheduler as a :class:`Peer`."""

    def __init__(self, recording: RecordedSweep, settings: SearchSettings, seed: int) -> None:
        objective = recording.objective()
        rule = EarlyStoppingConfig(
            policy=settings.policy,
            first_examples=recording.first_budget,
            reduction_factor=settings.reduction_factor,
        )
        self.proposer = Proposer(
            recording.space, settings.sampler, seed, objective, settings.proposals
        )
        early_stopper = make_early_stopper(rule, objective, recording.reference)
        self.scheduler = Scheduler(self.proposer, early_stopper, objective, len(recording.trials))

    def ask(self) -> tuple[int, Mapping[str, Any]] | None:
        trial = self.scheduler.ask()
        return None if trial is None else (trial.number, trial.values)

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        self.scheduler.amend(trial, values)

    def on_rung(
        self, trial: int, budget: int, points: Sequence[Pair], ahead: Sequence[int]
    ) -> bool:
        return self.scheduler.rung(trial, budget, points, ahead) is not None

    def on_rest(self, trial: int, completed: bool) -> None:
        if completed:
            self.scheduler.end(trial, TrialStatus.COMPLETED)
        else:
            self.scheduler.pause(trial)


@dataclass(frozen=True)
class Step:
    """The budget spent, the simulated time and the hypervolume at the end of a rung."""

    budget: int
    seconds: float
    area: float


def replay(recording: RecordedSweep, peer: Peer, num_workers: int) -> Iterator[Step]:
    """Run a search on a recording until no trial can run, and yield a step for each rung."""
    free_trials = FreeTrials(recording)
    runs: dict[int, _Run] = {}
    workers = _Workers()
    spent = 0
    front: tuple[Pair, ...] = ()
    while True:
        while len(workers) < num_workers and (request := peer.ask()) is not None:
            trial, values = request
            if trial not in runs:
                nearest = free_trials.take_nearest(values)
                recorded = recording.trials[nearest]
                runs[trial] = _Run(recorded)
                peer.on_begin(trial, recorded.values)
            workers.start(trial, runs[trial].next_seconds)
        if not len(workers):
            return
        trial = workers.wait()
        run = runs[trial]
        spent += run.next_budget
        rung = run.finish_rung()
        front = front_of([*front, *rung.points])
        area = hypervolume(front, recording.reference_point)
        yield Step(spent, workers.clock, area)
        ahead = run.budgets_ahead
        completed = not ahead
        stops = peer.on_rung(trial, rung.budget, rung.points, ahead)
        if stops or completed:
            peer.on_rest(trial, completed)
        else:
            workers.start(trial, run.next_seconds)


@dataclass
class _Run:
    """A simulated trial that replays a recorded trial."""

    recorded: RecordedTrial
    num_finished: int = 0

    @property
    def next_seconds(self) -> float:
        """Return the duration of the next rung."""
        before = self._last.seconds if self._last else 0.0
        return max(0.0, self._next.seconds - before)

    @property
    def next_budget(self) -> int:
        """Return the number of examples in the next rung."""
        before = self._last.budget if self._last else 0
        return self._next.budget - before

    @property
    def budgets_ahead(self) -> list[int]:
        return [rung.budget for rung in self.recorded.rungs[self.num_finished :]]

    def finish_rung(self) -> RecordedRung:
        rung = self._next
        self.num_finished += 1
        return rung

    @property
    def _next(self) -> RecordedRung:
        return self.recorded.rungs[self.num_finished]

    @property
    def _last(self) -> RecordedRung | None:
        return self.recorded.rungs[self.num_finished - 1] if self.num_finished else None


class _Workers:
    """Simulated workers with a shared clock."""

    def __init__(self) -> None:
        self.clock = 0.0
        # heap of (end of the rung, start order, trial)
        self._ends: list[tuple[float, int, int]] = []
        self._num_started = 0

    def __len__(self) -> int:
        return len(self._ends)

    def start(self, trial: int, seconds: float) -> None:
        heapq.heappush(self._ends, (self.clock + seconds, self._num_started, trial))
        self._num_started += 1

    def wait(self) -> int:
        """Advance the clock until a rung ends, and return that rung's trial."""
        self.clock, _, trial = heapq.heappop(self._ends)
        return trial


def budget_to(share: float, recording: RecordedSweep, steps: Iterable[Step]) -> float:
    """Return the budget needed to reach ``share`` of the recording's hypervolume, or infinity."""
    for step in steps:
        if step.area >= share * recording.area:
            return step.budget
    return float(np.inf)


def share_at(steps: Sequence[Step], budget: float, recording: RecordedSweep) -> float:
    """Return the share of the recording's hypervolume reached within ``budget``."""
    reached = [step.area for step in steps if step.budget <= budget]
    return reached[-1] / recording.area if reached else 0.0


class FreeTrials:
    """The recorded trials that no proposal has been mapped to yet.

    The distance between two configurations is a sum over parameters. A numeric parameter contributes the difference
    between its values, or between their logarithms if the range is wide. Any other parameter contributes 0 or 1. If
    only one of the configurations has a parameter, it contributes the maximum difference. Each contribution is divided
    by its mean over pairs of recorded values, so that all parameters have equal weight.
    """

    def __init__(self, recording: RecordedSweep) -> None:
        self._is_free = np.ones(len(recording.trials), dtype=bool)
        names = {name for trial in recording.trials for name in trial.values}
        self._columns: dict[str, _Column] = {}
        for name in sorted(names):
            values = [trial.values.get(name) for trial in recording.trials]
            self._columns[name] = _column(values)

    def take_nearest(self, values: Mapping[str, Any]) -> int:
        """Return the index of the free trial nearest to a proposal, and mark it as taken.

        Raises:
            IndexError: If no trial is left.
        """
        distances = np.zeros(len(self._is_free))
        for name, column in self._columns.items():
            distances += column.distances(values.get(name))
        distances[~self._is_free] = np.inf
        index = int(np.argmin(distances))
        if not self._is_free[index]:
            raise IndexError("all recorded configurations are already taken")
        self._is_free[index] = False
        return index


@dataclass(frozen=True)
class _NumberColumn:
    """A numeric parameter.

    ``places`` (trials,) contains the values scaled to [0, 1]; NaN marks trials without a value.
    """

    scale: Scale
    places: Float64Array
    weight: float

    def distances(self, value: Any) -> Float64Array:
        if value is None:
            return self.weight * ~np.isnan(self.places)
        differences = np.abs(self.places - self.scale(value))
        return self.weight * np.nan_to_num(differences, nan=1.0)


@dataclass(frozen=True)
class _ChoiceColumn:
    """A categorical parameter.

    ``values`` has shape (trials,) and dtype object; None marks trials without a value.
    """

    values: npt.NDArray[np.object_]
    weight: float

    def distances(self, value: Any) -> Float64Array:
        distances: Float64Array = self.weight * (self.values != value)
        return distances


_Column = _NumberColumn | _ChoiceColumn


def _column(values: Sequence[Scalar]) -> _Column:
    present = [value for value in values if value is not None]
    scale = infer_scale(present)
    if scale is None:
        shares = [count / len(present) for count in Counter(present).values()]
        # including pairs of a trial with itself
        share_of_different_pairs = 1 - sum(share**2 for share in shares)
        weight = _weight(share_of_different_pairs)
        return _ChoiceColumn(np.array(values, dtype=object), weight)
    places = np.array([np.nan if value is None else scale(value) for value in values])
    present_places = places[~np.isnan(places)]
    count = len(present_places)
    # coefficients of the sorted values in the sum of differences over unordered pairs
    coefficients = 2 * np.arange(count) - count + 1
    sum_of_differences = (coefficients * np.sort(present_places)).sum()
    mean_difference = float(2 * sum_of_differences / count**2)
    return _NumberColumn(scale, places, _weight(mean_difference))


def _weight(mean_distance: float) -> float:
    """Return the factor that scales the mean distance to 1, or 1 if all values are equal."""
    return 1 / (mean_distance or 1.0)
