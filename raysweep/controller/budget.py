"""Tracking of trial costs and budget limits."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import NamedTuple

from raysweep.config.sweep import BudgetConfig
from raysweep.results.types import Cost, Node

LIMITS = ("minutes", "cpu_hours", "gpu_hours", "money")
"""The keys of ``budget`` that limit time or cost."""


class ReachedLimit(NamedTuple):
    """A budget limit that has been reached."""

    key: str
    reason: str
    value: float


@dataclass
class CostTracker:
    """Tracks the costs of trials and checks the budget limits."""

    budget: BudgetConfig
    cpus: float  # per trial
    gpus: float  # per trial
    trials: dict[int, Cost] = field(default_factory=dict)
    total: Cost = field(default_factory=Cost)
    # used for trials that have not reported their node
    last_node: Node = field(default_factory=Node)
    # node types for which a warning has been returned
    _named_as_free: set[str] = field(default_factory=set)

    def trial_cost(self, trial: int) -> Cost:
        """Return the cost of a trial so far."""
        return dataclasses.replace(self.trials.get(trial, Cost()))

    def price_warning(self, node: Node) -> str | None:
        """Return a warning, once per node type, if money is limited but the node type has no price."""
        is_free = self.budget.price_per_hour(node.type) is None
        if self.budget.money is None or not is_free or node.type in self._named_as_free:
            return None
        self._named_as_free.add(node.type)
        return (
            f"budget.prices has no price for the node type {node.type!r} and no default; trials on such nodes are free, so "
            "budget.money does not limit them"
        )

    def spend(self, trial: int, seconds: float, node: Node) -> None:
        """Charge a trial for using its resources on a node for ``seconds``."""
        hours = seconds / 3600
        price = self.budget.price_per_hour(node.type) or 0.0
        shares = []  # the trial pays for the larger of its shares of CPUs and GPUs
        if node.cpus:
            shares.append(self.cpus / node.cpus)
        if node.gpus:
            shares.append(self.gpus / node.gpus)
        share = min(1.0, max(shares, default=1.0))
        cost = Cost(
            seconds=seconds,
            cpu_seconds=seconds * self.cpus,
            gpu_seconds=seconds * self.gpus,
            money=hours * price * share,
        )
        self.trials.setdefault(trial, Cost()).add(cost)
        self.total.add(cost)

    def restore(self, trial: int, cost: Cost) -> None:
        """Set a trial's total cost to the value recorded in the ledger."""
        before = self.trial_cost(trial)
        self.trials[trial] = dataclasses.replace(cost)
        added = Cost(
            seconds=cost.seconds - before.seconds,
            cpu_seconds=cost.cpu_seconds - before.cpu_seconds,
            gpu_seconds=cost.gpu_seconds - before.gpu_seconds,
            money=cost.money - before.money,
        )
        self.total.add(added)

    def reached_limit(self, wall_seconds: float) -> ReachedLimit | None:
        """Return a limit that has been reached after ``wall_seconds``, or None."""
        used = self._used(wall_seconds)
        for key, limit in self._limits.items():
            if used[key] >= limit:
                return ReachedLimit(f"budget.{key}", f"budget.{key}={limit:g} is used up", limit)
        return None

    def seconds_left(self, wall_seconds: float) -> float:
        """Estimate the seconds until the first limit is reached, or infinity if no limit applies."""
        used = self._used(wall_seconds)
        limits = self._limits.items()
        return min(
            (wall_seconds * (limit / used[key] - 1) for key, limit in limits if used[key]),
            default=math.inf,
        )

    @property
    def _limits(self) -> dict[str, float]:
        limits = {key: getattr(self.budget, key) for key in LIMITS}
        return {key: limit for key, limit in limits.items() if limit is not None}

    def _used(self, wall_seconds: float) -> dict[str, float]:
        return {
            "minutes": wall_seconds / 60,
            "cpu_hours": self.total.cpu_seconds / 3600,
            "gpu_hours": self.total.gpu_seconds / 3600,
            "money": self.total.money,
        }
