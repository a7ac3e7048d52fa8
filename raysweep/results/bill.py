"""The cost of a sweep's nodes, including head nodes, booting nodes and idle nodes."""

from dataclasses import dataclass

from raysweep.results.account import build_account
from raysweep.results.types import NodeTime, Results


@dataclass(frozen=True)
class Bill:
    """A sweep's bill.

    ``nodes`` has one entry per node type and price. ``trials`` is the amount charged to trials for their shares of nodes.
    """

    nodes: tuple[NodeTime, ...]
    trials: float

    @property
    def booting(self) -> float:
        return sum(node.boot_money for node in self.nodes)

    @property
    def up(self) -> float:
        return sum(node.up_money for node in self.nodes)

    @property
    def unused(self) -> float:
        """Return the cost of running nodes that is not charged to trials."""
        return max(0.0, self.up - self.trials)

    @property
    def total(self) -> float:
        return self.booting + max(self.up, self.trials)


def build_bill(results: Results) -> Bill:
    """Return a sweep's bill. It has no nodes if the sweep has no prices."""
    return Bill(results.nodes, build_account(results).total.cost.money)


def bill_text(bill: Bill) -> str:
    """Summarize the bill on one line."""
    # nodes are counted only periodically, so their cost may be less than the amount charged to trials
    at_least = "at least " if bill.trials > bill.up else ""
    return (
        f"nodes cost {at_least}{bill.total:,.2f}: {bill.trials:,.2f} for trials, {bill.booting:,.2f} "
        f"for booting nodes, {bill.unused:,.2f} for the head and unused nodes"
    )
