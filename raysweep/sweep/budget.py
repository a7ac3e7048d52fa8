"""What trials cost: seconds of the nodes' CPUs and GPUs they hold, and money by the nodes' prices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from raysweep.config.sweep import BudgetConfig
from raysweep.results.types import Cost

LOCAL = "local"  # the node type where the cluster names none


@dataclass(frozen=True)
class Node:
    """The node a trial ran on: its type in the cluster's file, and all that it has."""

    type: str = LOCAL
    cpus: float = 0.0
    gpus: float = 0.0


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
    _free: set[str] = field(default_factory=set)

    def _price(self, node: Node) -> float | None:
        """Of the whole node an hour; None where its type has none."""
        return self.budget.prices.get(node.type, self.budget.prices.get("default"))

    def unpriced(self, node: Node) -> str | None:
        """The first time that money is limited and a node's type has no price: words for people."""
        if self.budget.money is None or self._price(node) is not None or node.type in self._free:
            return None
        self._free.add(node.type)
        return (
            f"budget.prices has neither {node.type!r}, the type of a node that trials run on, nor default: there they are "
            "free, and budget.money does not bound them"
        )

    def spend(self, trial: int, seconds: float, node: Node) -> None:
        """A trial held its resources on a node for so long."""
        # A trial pays for its share of the node, by whichever of the two it takes more of.
        shares = [part / whole for part, whole in ((self.cpus, node.cpus), (self.gpus, node.gpus)) if whole]
        money = seconds / 3600 * (self._price(node) or 0.0) * min(1.0, max(shares, default=1.0))
        cost = Cost(seconds, seconds * self.cpus, seconds * self.gpus, money)
        self.trials.setdefault(trial, Cost()).add(cost)
        self.total.add(cost)

    def restore(self, trial: int, cost: Mapping[str, float]) -> None:
        """What a trial had cost by an event of the ledger, which replaces what earlier events said."""
        before = self.trials.get(trial, Cost())
        self.trials[trial] = Cost(**cost)
        self.total.add(Cost(**{name: value - getattr(before, name) for name, value in cost.items()}))

    def spent(self, wall_seconds: float) -> ReachedLimit | None:
        """Which limit is reached; None while there is budget left."""
        budget, total = self.budget, self.total
        limits = (
            ("minutes", budget.minutes, wall_seconds / 60, "minutes"),
            ("cpu_hours", budget.cpu_hours, total.cpu_seconds / 3600, "CPU-hours"),
            ("gpu_hours", budget.gpu_hours, total.gpu_seconds / 3600, "GPU-hours"),
            ("money", budget.money, total.money, "in money"),
        )
        for key, limit, used, unit in limits:
            if limit is not None and used >= limit:
                return ReachedLimit(f"budget.{key}", f"the budget's {limit:g} {unit} are spent")
        return None
