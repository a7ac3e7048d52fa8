"""A search run against a recorded table: simulated workers and a simulated clock, no training."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from raysweep.config.sweep import Aim, EarlyStoppingConfig, Policy
from raysweep.metrics.objective import Pair, front_of
from raysweep.metrics.pareto import hypervolume
from raysweep.replay.table import Positions, RecordedSweep, RecordedTrial
from raysweep.search.proposer import Proposer
from raysweep.search.scheduler import Scheduler
from raysweep.search.stopping.factory import make_early_stopper


class Peer(Protocol):
    """Anything that searches: raysweep's own decisions, or another library behind the same calls."""

    def ask(self) -> tuple[int, Mapping[str, Any]] | None:
        """A trial to run or to go on with, and its configuration; None when there is none for now."""

    def begin(self, trial: int, values: Mapping[str, Any]) -> None:
        """The new trial stands for this recorded configuration, the nearest to what was asked for."""

    def rung(self, trial: int, budget: int, points: Sequence[Pair], ahead: Sequence[int]) -> bool:
        """Take a rung's points; whether the trial stops here. ``ahead`` are the budgets of its further rungs."""

    def rest(self, trial: int, completed: bool) -> None:
        """The trial runs no more: it was told to stop, or its recorded rungs are over."""


class Search:
    """raysweep's own decisions, as a peer."""

    def __init__(
        self, table: RecordedSweep, *, sampler: str, policy: Policy, proposals: Aim, seed: int, factor: int = 2
    ) -> None:
        objective = table.objective()
        rule = EarlyStoppingConfig(policy=policy, first_examples=table.first_budget, reduction_factor=factor)
        studied = Proposer(table.space, sampler, seed, objective, proposals)
        self.scheduler = Scheduler(
            studied, make_early_stopper(rule, objective, table.reference), objective, len(table.trials)
        )

    def ask(self) -> tuple[int, Mapping[str, Any]] | None:
        course = self.scheduler.ask()
        return None if course is None else (course.number, course.values)

    def begin(self, trial: int, values: Mapping[str, Any]) -> None:
        self.scheduler.amend(trial, values)

    def rung(self, trial: int, budget: int, points: Sequence[Pair], ahead: Sequence[int]) -> bool:
        return self.scheduler.rung(trial, budget, points, ahead) is not None

    def rest(self, trial: int, completed: bool) -> None:
        if completed:
            self.scheduler.end(trial, "completed")
        else:
            self.scheduler.hold(trial)


@dataclass(frozen=True)
class Step:
    """A moment at which a rung ended: training budget spent so far, the simulated clock, the hypervolume so far."""

    budget: int
    seconds: float
    area: float


def replay(table: RecordedSweep, peer: Peer, num_workers: int) -> Iterator[Step]:
    """Run the peer on the table until nothing is left to do; a step for every rung.

    The spent budget counts each rung when it ends, on whichever worker.
    """
    positions = Positions(table)
    chosen: dict[int, RecordedTrial] = {}
    done: dict[int, int] = {}  # rungs
    queue: list[tuple[float, int, int]] = []  # when, order, trial
    clock, spent = 0.0, 0
    order = 0
    front: tuple[Pair, ...] = ()
    area = 0.0

    def launch(trial: int) -> None:
        nonlocal order
        rungs, index = chosen[trial].rungs, done[trial]
        before = rungs[index - 1].seconds if index else 0.0
        heapq.heappush(queue, (clock + max(0.0, rungs[index].seconds - before), order, trial))
        order += 1

    while True:
        while len(queue) < num_workers and (asked := peer.ask()) is not None:
            trial, values = asked
            if trial not in chosen:
                chosen[trial] = table.trials[positions.take(values)]
                done[trial] = 0
                peer.begin(trial, chosen[trial].values)
            launch(trial)
        if not queue:
            return
        clock, _, trial = heapq.heappop(queue)
        rungs, index = chosen[trial].rungs, done[trial]
        rung = rungs[index]
        done[trial] += 1
        spent += rung.budget - (rungs[index - 1].budget if index else 0)
        ahead = [further.budget for further in rungs[index + 1 :]]
        front = front_of([*front, *rung.points])
        area = hypervolume(front, table.reference_point)
        yield Step(spent, clock, area)
        if peer.rung(trial, rung.budget, rung.points, ahead) or not ahead:
            peer.rest(trial, not ahead)
        else:
            launch(trial)


def budget_to(share: float, table: RecordedSweep, steps: Iterable[Step]) -> float:
    """The budget spent when the hypervolume first reached ``share`` of the whole table's; infinity if it never did."""
    for step in steps:
        if step.area >= share * table.area:
            return step.budget
    return float(np.inf)


def share_at(steps: Sequence[Step], budget: float, table: RecordedSweep) -> float:
    """The share of the whole table's hypervolume that was reached when ``budget`` was spent."""
    reached = [step.area for step in steps if step.budget <= budget]
    return reached[-1] / table.area if reached else 0.0
