"""Searches run against a recorded table with simulated workers and a simulated clock, without training."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from raysweep.config.sweep import Aim, EarlyStoppingConfig, Policy
from raysweep.metrics.objective import Pair, front_of
from raysweep.metrics.pareto import hypervolume
from raysweep.replay.table import FreeTrials, RecordedRung, RecordedSweep, RecordedTrial
from raysweep.results.types import TrialStatus
from raysweep.search.proposer import Proposer
from raysweep.search.scheduler import Scheduler
from raysweep.search.stopping.factory import make_early_stopper


class Peer(Protocol):
    """Interface of a search: raysweep's own scheduler, or another library behind the same calls."""

    def ask(self) -> tuple[int, Mapping[str, Any]] | None:
        """Return a trial to start or resume and its configuration; None if no trial can run now."""

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        """Receive the recorded configuration, the nearest to the requested one, that the new trial uses."""

    def on_rung(self, trial: int, budget: int, points: Sequence[Pair], ahead: Sequence[int]) -> bool:
        """Receive a rung's points and return whether the trial stops here.

        ``ahead`` holds the budgets of its further rungs.
        """

    def on_rest(self, trial: int, completed: bool) -> None:
        """Note that the trial no longer runs, at least for now.

        Either its recorded rungs are used up, or it was stopped.
        """


@dataclass(frozen=True)
class SearchSettings:
    """The settings of a raysweep search, under the names in a sweep's file."""

    sampler: str
    policy: Policy
    proposals: Aim
    reduction_factor: int = 2


class Search:
    """raysweep's own scheduler, as a peer."""

    def __init__(self, table: RecordedSweep, settings: SearchSettings, seed: int) -> None:
        objective = table.objective()
        rule = EarlyStoppingConfig(
            policy=settings.policy,
            first_examples=table.first_budget,
            reduction_factor=settings.reduction_factor,
        )
        self.proposer = Proposer(table.space, settings.sampler, seed, objective, settings.proposals)
        early_stopper = make_early_stopper(rule, objective, table.reference)
        self.scheduler = Scheduler(self.proposer, early_stopper, objective, len(table.trials))

    def ask(self) -> tuple[int, Mapping[str, Any]] | None:
        trial = self.scheduler.ask()
        return None if trial is None else (trial.number, trial.values)

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        self.scheduler.amend(trial, values)

    def on_rung(self, trial: int, budget: int, points: Sequence[Pair], ahead: Sequence[int]) -> bool:
        return self.scheduler.rung(trial, budget, points, ahead) is not None

    def on_rest(self, trial: int, completed: bool) -> None:
        if completed:
            self.scheduler.end(trial, TrialStatus.COMPLETED)
        else:
            self.scheduler.pause(trial)


@dataclass(frozen=True)
class Step:
    """The state when a rung ends: training budget spent so far, simulated clock, and hypervolume so far."""

    budget: int
    seconds: float
    area: float


def replay(table: RecordedSweep, peer: Peer, num_workers: int) -> Iterator[Step]:
    """Run the peer on the table until nothing is left to do, and yield a step for every rung.

    The spent budget counts each rung when it ends, on whichever worker.
    """
    free_trials = FreeTrials(table)
    runs: dict[int, _Run] = {}
    workers = _Workers()
    spent = 0
    front: tuple[Pair, ...] = ()
    while True:
        while len(workers) < num_workers and (asked := peer.ask()) is not None:
            trial, values = asked
            if trial not in runs:
                nearest = free_trials.take_nearest(values)
                recorded = table.trials[nearest]
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
        area = hypervolume(front, table.reference_point)
        yield Step(spent, workers.clock, area)
        ahead = run.budgets_ahead
        stops = peer.on_rung(trial, rung.budget, rung.points, ahead)
        if stops or not ahead:
            peer.on_rest(trial, completed=not ahead)
        else:
            workers.start(trial, run.next_seconds)


@dataclass
class _Run:
    """A trial of the search that repeats a recorded trial."""

    recorded: RecordedTrial
    num_finished: int = 0

    @property
    def next_seconds(self) -> float:
        """Return the duration of the next rung."""
        before = self._last.seconds if self._last else 0.0
        return max(0.0, self._next.seconds - before)

    @property
    def next_budget(self) -> int:
        """Return the budget of the next rung."""
        return self._next.budget - (self._last.budget if self._last else 0)

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
    """The busy workers, each on one rung of a trial, and their shared clock."""

    def __init__(self) -> None:
        self.clock = 0.0
        self._ends: list[tuple[float, int, int]] = []  # heap of (end of the rung, start order, trial)
        self._num_started = 0

    def __len__(self) -> int:
        return len(self._ends)

    def start(self, trial: int, seconds: float) -> None:
        """Start a rung that takes ``seconds``."""
        heapq.heappush(self._ends, (self.clock + seconds, self._num_started, trial))
        self._num_started += 1

    def wait(self) -> int:
        """Advance the clock until a rung ends and return its trial."""
        self.clock, _, trial = heapq.heappop(self._ends)
        return trial


def budget_to(share: float, table: RecordedSweep, steps: Iterable[Step]) -> float:
    """Return the budget spent when the hypervolume first reached ``share`` of the whole table's.

    Returns infinity if it never did.
    """
    for step in steps:
        if step.area >= share * table.area:
            return step.budget
    return float(np.inf)


def share_at(steps: Sequence[Step], budget: float, table: RecordedSweep) -> float:
    """Return the share of the whole table's hypervolume that was reached when ``budget`` was spent."""
    reached = [step.area for step in steps if step.budget <= budget]
    return reached[-1] / table.area if reached else 0.0
