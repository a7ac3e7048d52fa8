"""What the nodes of a sweep cost, those included that no trial held: heads, nodes that boot, and nodes that wait."""

from dataclasses import dataclass

from raysweep.results.account import account_of
from raysweep.results.types import NodeTime, Results


@dataclass(frozen=True)
class Bill:
    """``nodes`` by type and price; ``trials`` is the money that trials are charged for their shares of nodes."""

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
        """Of nodes that were up, what no trial held: the head, idle workers, the rests of workers that were not full."""
        return max(0.0, self.up - self.trials)

    @property
    def total(self) -> float:
        return self.booting + max(self.up, self.trials)


def bill_of(results: Results) -> Bill:
    """Without nodes where the sweep had no prices."""
    return Bill(results.nodes, account_of(results).total.cost.money)


def bill_text(bill: Bill) -> str:
    """The bill in a line."""
    at_least = "at least " if bill.trials > bill.up else ""  # nodes were not looked at all the time
    return (
        f"nodes cost {at_least}{bill.total:,.2f} in money: {bill.trials:,.2f} for what trials held, {bill.booting:,.2f} "
        f"for nodes that booted, {bill.unused:,.2f} for the head and for what no trial held"
    )
