"""Measurement of the boot time and uptime of cluster nodes."""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping

from raysweep.config.sweep import BudgetConfig
from raysweep.results.types import NodeTime


class NodeMeter:
    """A thread-safe meter of node time. Nodes seen in one observation are assumed to run until the next."""

    def __init__(self, budget: BudgetConfig) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._seen_at: float | None = None  # monotonic time
        self._up: Mapping[str, int] = {}  # node counts at the last observation, keyed by type
        self._booting: Mapping[str, int] = {}
        self._up_seconds: dict[str, float] = defaultdict(float)
        self._boot_seconds: dict[str, float] = defaultdict(float)

    def see(self, up: Mapping[str, int], booting: Mapping[str, int]) -> None:
        """Record the current counts of running and booting nodes, each keyed by type."""
        with self._lock:
            now = time.monotonic()
            seconds = 0.0 if self._seen_at is None else now - self._seen_at
            self._seen_at = now
            for node_type, count in self._up.items():
                self._up_seconds[node_type] += count * seconds
            for node_type, count in self._booting.items():
                self._boot_seconds[node_type] += count * seconds
            self._up, self._booting = up, booting

    def take(self) -> tuple[NodeTime, ...]:
        """Return the node time of each type since the previous call."""
        with self._lock:
            types = sorted({*self._up_seconds, *self._boot_seconds})
            times = []
            for node_type in types:
                boot_seconds = self._boot_seconds[node_type]
                up_seconds = self._up_seconds[node_type]
                price = self._budget.price_per_hour(node_type)
                times.append(NodeTime(node_type, boot_seconds, up_seconds, price))
            self._up_seconds.clear()
            self._boot_seconds.clear()
        return tuple(times)
