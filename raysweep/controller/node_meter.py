"""How long a cluster's nodes boot and are up, from looks at it now and then. No Ray."""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping

from raysweep.config.sweep import BudgetConfig
from raysweep.results.types import NodeTime


class NodeMeter:
    """Takes the nodes of each look to have been there until the next one. A thread may look while another takes."""

    def __init__(self, budget: BudgetConfig) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._seen_at: float | None = None  # by the monotonic clock
        self._up: Mapping[str, int] = {}  # how many nodes there were at the last look, by their types
        self._booting: Mapping[str, int] = {}
        self._up_seconds: dict[str, float] = defaultdict(float)
        self._boot_seconds: dict[str, float] = defaultdict(float)

    def see(self, up: Mapping[str, int], booting: Mapping[str, int]) -> None:
        """So many nodes of each type are up, and boot, from now on."""
        with self._lock:
            self._add_until_now()
            self._up, self._booting = up, booting

    def take(self) -> tuple[NodeTime, ...]:
        """The time of nodes by their types, up to the last look, since it was last taken."""
        with self._lock:
            types = sorted({*self._up_seconds, *self._boot_seconds})
            taken = tuple(self._time_of(each) for each in types)
            self._up_seconds.clear()
            self._boot_seconds.clear()
        return taken

    def _add_until_now(self) -> None:
        now = time.monotonic()
        seconds = 0.0 if self._seen_at is None else now - self._seen_at
        self._seen_at = now
        for counts, sums in ((self._up, self._up_seconds), (self._booting, self._boot_seconds)):
            for node_type, count in counts.items():
                sums[node_type] += count * seconds

    def _time_of(self, node_type: str) -> NodeTime:
        price = self._budget.price_per_hour(node_type)
        return NodeTime(node_type, self._boot_seconds[node_type], self._up_seconds[node_type], price)
