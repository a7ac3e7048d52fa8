"""Monitoring of the nodes of the joined cluster: their types, and their number for the bill."""

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from raysweep.cluster.resources import CONNECT_SECONDS, GROUP_LABEL
from raysweep.config.sweep import BudgetConfig
from raysweep.controller.node_meter import NodeMeter
from raysweep.results.types import LOCAL

LOOK_SECONDS = 5.0


def node_type(node: Mapping[str, Any]) -> str:
    """Return the node type, as named in the cluster file, of a node from ``ray.nodes``."""
    labels = node.get("Labels", {})
    return labels.get(GROUP_LABEL) or labels.get("ray.io/node-type") or LOCAL


@contextlib.contextmanager
def metered(budget: BudgetConfig) -> Iterator[NodeMeter]:
    """Yield a meter of the cluster's nodes, updated from a background thread.

    Without prices in the budget the meter is never updated.
    """
    meter = NodeMeter(budget)
    if not budget.prices:
        yield meter
        return
    import ray

    ended = threading.Event()
    address = ray.get_runtime_context().gcs_address

    def watch() -> None:
        _look(meter, address)
        while not ended.wait(LOOK_SECONDS):
            _look(meter, address)
        _look(meter, address)

    thread = threading.Thread(target=watch, name="node-watch", daemon=True)
    thread.start()
    try:
        yield meter
    finally:
        ended.set()
        thread.join(timeout=LOOK_SECONDS)  # a head that is gone never answers


def _look(meter: NodeMeter, address: str) -> None:
    """Update the meter with the nodes that are up and those that are booting.

    A node counts as booting once its machine exists, which is when clouds start to charge for it.
    """
    import ray
    from ray.autoscaler.v2.sdk import get_cluster_status

    try:
        up = Counter(node_type(node) for node in ray.nodes() if node["Alive"])
        status = get_cluster_status(address, timeout=CONNECT_SECONDS)
    except Exception as error:  # many types, since the head may be busy or gone
        logging.getLogger(__name__).debug("no status of the cluster: %s", error)
        return
    booting = Counter(node.ray_node_type_name for node in status.pending_nodes)
    meter.see(up, booting)
