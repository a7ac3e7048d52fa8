"""An invented landscape with a simulated clock for samplers and policies."""

import heapq
import math
from collections.abc import Callable, Container
from typing import Any

from raysweep.config.space import Choices, Fixed, Range, Space
from raysweep.config.sweep import EarlyStoppingConfig
from raysweep.errors import InputError
from raysweep.metrics.objective import Objective
from raysweep.results.types import TrialStatus
from raysweep.search.proposer import Aim, Proposer
from raysweep.search.scheduler import Scheduler
from raysweep.search.stopping.policies import make_early_stopper

ANY_SAMPLER = ("mfgp", "tpe", "gp", "nsga2", "random", "grid", "optuna.samplers:QMCSampler")


POLICIES = ("growth", "pareto", "asha", "median", "none")


AIMS: tuple[Aim, ...] = ("front", "area", "combined", "parego", "both")


NUM_RUNGS = 4


AHEAD = [10, 20, 30, 40]  # examples seen at each rung


RANGES = Space(
    {
        "loss": Choices(
            {
                "a": {"margin": Range(0.01, 1.0, True, False)},
                "b": {"scale": Range(5, 50, False, True)},
                "c": {},
            }
        ),
        "learning_rate": Range(1e-6, 1e-3, True, False),
    }
)


CHOICES = Space(
    {
        "loss": Choices({"a": {"margin": Choices({0.1: {}, 0.5: {}, 1.0: {}})}, "b": {"scale": Choices({5: {}, 20: {}})}, "c": {}}),
        "learning_rate": Choices({1e-5: {}, 1e-4: {}, 1e-3: {}}),
    }
)  # fmt: skip


MIXED = Space(
    {
        "loss": Choices({"a": {"margin": Range(0.01, 1.0, True, False)}, "b": {"scale": Range(5, 50, False, True)}, "c": {}}),
        "learning_rate": Range(1e-6, 1e-3, True, False),
        "freezing": Choices({"emb+B0": {}, "none": {}, "emb+B0-10": {}, "emb+B0-2": {}}),
        "batch_size": Choices({32: {}, 128: {}, 64: {}}),
        "warmup_fraction": Choices({0.0: {}, 0.1: {}, 0.2: {}}),
        "optimizer": Fixed("adamw"),
    }
)  # fmt: skip


def landscape(values: dict[str, Any], step: int) -> list[tuple[float, float]]:
    quality = 1 - abs(math.log10(values["learning_rate"]) + 4) / 3
    quality *= {"a": 1.0, "b": 0.8, "c": 0.6}[values["loss"]] * (
        0.5 + 0.5 * values.get("margin", 1.0)
    )
    polarity = 0.6 + 0.3 * quality * step / NUM_RUNGS
    return [(polarity, 0.45 - 0.1 * quality * step), (0.6 + 0.8 * (polarity - 0.6), 0.46)]


def make(
    sampler: str,
    policy: str,
    aim: Aim = "area",
    *,
    num_trials: int = 20,
    seed: int = 3,
    space: Space | None = None,
) -> Scheduler:
    objective = Objective(0.5, (0.6, 0.235))
    space = space or (CHOICES if sampler == "grid" else RANGES)
    proposer = Proposer(space, sampler, seed, objective, aim)
    rule = EarlyStoppingConfig.model_validate({"policy": policy, "first_examples": 10})
    return Scheduler(
        proposer, make_early_stopper(rule, objective, (0.6, 0.47)), objective, num_trials
    )


Event = tuple[str, int, Any]


class Player:
    """Runs trials on N workers. Trials whose number is in ``failing`` or whose scores are not finite fail."""

    def __init__(
        self,
        scheduler: Scheduler,
        workers: int,
        failing: Container[int] = (),
        points_of: Callable[[dict[str, Any], int], list[tuple[float, float]]] = landscape,
    ) -> None:
        self.scheduler, self.workers, self.failing, self.points_of = (
            scheduler,
            workers,
            failing,
            points_of,
        )
        self.steps: dict[int, int] = {}
        self.events: list[Event] = []
        self.queue: list[tuple[float, int]] = []
        self.clock = 0.0

    def play(self, stop_after: float = math.inf) -> "Player":
        while len(self.events) < stop_after:
            while len(self.queue) < self.workers and (trial := self.scheduler.ask()) is not None:
                self.events.append(("ask", trial.number, dict(trial.values)))
                heapq.heappush(self.queue, (self.clock + 1 + trial.number % 3, trial.number))
            if not self.queue:
                break
            self.clock, number = heapq.heappop(self.queue)
            self.steps[number] = self.steps.get(number, 0) + 1
            self.one_rung(number)
        return self

    def one_rung(self, number: int) -> None:
        step = self.steps[number]
        if number in self.failing and step == 2:
            return self.fail(number)
        points = self.points_of(dict(self.scheduler.trials[number].values), step)
        try:
            paused = self.scheduler.rung(number, 10 * step, points, AHEAD[step:])
        except InputError:
            return self.fail(number)
        self.events.append(("rung", number, points))
        if paused:
            self.events.append(("pause", number, None))
            self.scheduler.pause(number)
        elif step == NUM_RUNGS:
            self.events.append(("end", number, None))
            self.scheduler.end(number, TrialStatus.COMPLETED)
        else:
            heapq.heappush(self.queue, (self.clock + 1, number))
        return None

    def fail(self, number: int) -> None:
        self.events.append(("fail", number, None))
        self.scheduler.end(number, TrialStatus.FAILED)
