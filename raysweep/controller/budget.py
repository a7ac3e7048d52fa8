"""What trials cost: seconds of the nodes' CPUs and GPUs they hold, and money by the nodes' prices."""

import dataclasses
from dataclasses import dataclass, field
from typing import NamedTuple

from raysweep.config.sweep import BudgetConfig
from raysweep.results.types import Cost, Node

REASONS = {
    "minutes": "the budget of {:g} minutes is spent",
    "cpu_hours": "the budget of {:g} CPU-hours is spent",
    "gpu_hours": "the budget of {:g} GPU-hours is spent",
    "money": "the money budget of {:g} is spent",
}
"""The limits that a sweep's file may set under ``budget``, and the reason that each gives when it is reached."""


class ReachedLimit(NamedTuple):
    """A limit that is reached: its key in a sweep's file, and words for people."""

    key: str
    reason: str


@dataclass
class CostTracker:
    """What each trial has cost, and which limit of the budget that reaches."""

    budget: BudgetConfig
    cpus: float  # of a trial
    gpus: float
    trials: dict[int, Cost] = field(default_factory=dict)
    total: Cost = field(default_factory=Cost)
    last_node: Node = field(default_factory=Node)  # where a trial is taken to run until it says where
    _named_as_free: set[str] = field(default_factory=set)  # node types

    def of(self, trial: int) -> Cost:
        """What a trial has cost so far."""
        return dataclasses.replace(self.trials.get(trial, Cost()))

    def unpriced(self, node: Node) -> str | None:
        """Words for people, the first time that money is limited and a node's type has no price."""
        is_free = self.budget.price_per_hour(node.type) is None
        if self.budget.money is None or not is_free or node.type in self._named_as_free:
            return None
        self._named_as_free.add(node.type)
        return (
            f"budget.prices has neither {node.type!r}, the type of a node that trials run on, nor default: there they are "
            "free, and budget.money does not bound them"
        )

    def spend(self, trial: int, seconds: float, node: Node) -> None:
        """A trial held its resources on a node for so long."""
        hours = seconds / 3600
        price = self.budget.price_per_hour(node.type) or 0.0
        money = hours * price * self._share_of(node)
        cost = Cost(seconds, seconds * self.cpus, seconds * self.gpus, money)
        self.trials.setdefault(trial, Cost()).add(cost)
        self.total.add(cost)

    def _share_of(self, node: Node) -> float:
        """The share of the node that a trial pays for: of its CPUs or of its GPUs, whichever is more."""
        shares = []
        if node.cpus:
            shares.append(self.cpus / node.cpus)
        if node.gpus:
            shares.append(self.gpus / node.gpus)
        return min(1.0, max(shares, default=1.0))

    def restore(self, trial: int, cost: Cost) -> None:
        """What a trial had cost by an event of the ledger, which replaces what earlier events said."""
        before = self.of(trial)
        self.trials[trial] = dataclasses.replace(cost)
        added = Cost(
            seconds=cost.seconds - before.seconds,
            cpu_seconds=cost.cpu_seconds - before.cpu_seconds,
            gpu_seconds=cost.gpu_seconds - before.gpu_seconds,
            money=cost.money - before.money,
        )
        self.total.add(added)

    def reached_limit(self, wall_seconds: float) -> ReachedLimit | None:
        """The limit that is reached when the sweep has run for so long; None while there is budget left."""
        used = {
            "minutes": wall_seconds / 60,
            "cpu_hours": self.total.cpu_seconds / 3600,
            "gpu_hours": self.total.gpu_seconds / 3600,
            "money": self.total.money,
        }
        for key, reason in REASONS.items():
            limit = getattr(self.budget, key)
            if limit is not None and used[key] >= limit:
                return ReachedLimit(f"budget.{key}", reason.format(limit))
        return None
