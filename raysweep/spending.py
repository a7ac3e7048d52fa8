"""What trials cost: seconds of the nodes' CPUs and GPUs they hold, and money by the nodes' prices."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from raysweep.config import BudgetConfig

LOCAL = "local"  # the node type where the cluster names none


@dataclass(frozen=True)
class Node:
    """The node a trial ran on: its type in the cluster's file, and all that it has."""

    type: str = LOCAL
    cpus: float = 0.0
    gpus: float = 0.0


@dataclass
class Cost:
    """Of one trial or of several."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0
    money: float = 0.0

    def add(self, other: "Cost") -> None:
        self.seconds += other.seconds
        self.cpu_seconds += other.cpu_seconds
        self.gpu_seconds += other.gpu_seconds
        self.money += other.money


@dataclass
class Spending:
    """What each trial has cost, and which limit of the budget that reaches."""

    budget: BudgetConfig
    cpus: float  # of a trial
    gpus: float
    trials: dict[int, Cost] = field(default_factory=dict)
    total: Cost = field(default_factory=Cost)

    def spend(self, trial: int, seconds: float, node: Node) -> None:
        """A trial held its resources on a node for so long."""
        # A trial pays for its share of the node, by whichever of the two it takes more of.
        shares = [part / whole for part, whole in ((self.cpus, node.cpus), (self.gpus, node.gpus)) if whole]
        price = self.budget.prices.get(node.type, self.budget.prices.get("default", 0.0))
        money = seconds / 3600 * price * min(1.0, max(shares, default=1.0))
        cost = Cost(seconds, seconds * self.cpus, seconds * self.gpus, money)
        self.trials.setdefault(trial, Cost()).add(cost)
        self.total.add(cost)

    def restore(self, trial: int, cost: Mapping[str, float]) -> None:
        """What a trial had cost by an event of the ledger, which replaces what earlier events said."""
        before = self.trials.get(trial, Cost())
        self.trials[trial] = Cost(**cost)
        self.total.add(Cost(**{name: value - getattr(before, name) for name, value in cost.items()}))

    def spent(self, wall_seconds: float) -> str | None:
        """Which limit is reached, for people; None while there is budget left."""
        budget, total = self.budget, self.total
        limits = (
            (budget.minutes, wall_seconds / 60, "minutes"),
            (budget.cpu_hours, total.cpu_seconds / 3600, "CPU-hours"),
            (budget.gpu_hours, total.gpu_seconds / 3600, "GPU-hours"),
            (budget.money, total.money, "in money"),
        )
        for limit, used, unit in limits:
            if limit is not None and used >= limit:
                return f"the budget's {limit:g} {unit} are spent"
        return None
