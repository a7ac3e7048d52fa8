"""Looks at the nodes of the cluster that this process has joined: their types, and for the bill how many there are."""

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
    """The type in the cluster's file of a node as ``ray.nodes`` has it."""
    labels = node.get("Labels", {})
    return labels.get(GROUP_LABEL) or labels.get("ray.io/node-type") or LOCAL


@contextlib.contextmanager
def metered(budget: BudgetConfig) -> Iterator[NodeMeter]:
    """A meter of the cluster's nodes, which a thread looks at; it stands still where the budget has no prices."""
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
        thread.join(timeout=LOOK_SECONDS)  # a head that is gone does not answer


def _look(meter: NodeMeter, address: str) -> None:
    """A node boots from when its machine is there, which is when clouds begin to charge for it."""
    import ray
    from ray.autoscaler.v2.sdk import get_cluster_status

    try:
        up = Counter(node_type(node) for node in ray.nodes() if node["Alive"])
        status = get_cluster_status(address, timeout=CONNECT_SECONDS)
    except Exception as error:  # of many kinds: the head may be busy, or gone
        logging.getLogger(__name__).debug("no status of the cluster: %s", error)
        return
    booting = Counter(node.ray_node_type_name for node in status.pending_nodes)
    meter.see(up, booting)
