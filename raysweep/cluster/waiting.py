"""Pending work on a cluster: its description, and requests for other node types when launches fail."""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from raysweep.cluster.resources import (
    CONNECT_SECONDS,
    RAYS_OWN,
    NodeGroup,
    Request,
    cluster_file,
    node_groups,
    times_on,
)

if TYPE_CHECKING:
    import ray
    from ray.autoscaler.v2.schema import ClusterStatus

QUIET_SECONDS = 30.0  # without movement before the pending work is reported
REFUSED_SECONDS = 120.0  # without movement, and with failed launches, before another node type is requested


class Waiting(NamedTuple):
    """The pending work on a cluster, as text and as requests, and whether nodes are starting.

    ``refused`` holds the node types whose launch failed recently; it is empty while nodes are starting.
    """

    text: str
    nodes_come: bool
    demands: tuple[Request, ...]
    refused: frozenset[str]


def waiting() -> Waiting | None:
    """Return the pending work on the joined cluster; None if nothing is pending or the head does not answer."""
    import ray
    from ray.autoscaler.v2.sdk import get_cluster_status

    try:
        return described_waiting(get_cluster_status(ray.get_runtime_context().gcs_address, timeout=CONNECT_SECONDS))
    except Exception as error:  # many types, since the head may be busy or dead
        logging.getLogger(__name__).debug("cluster: status unavailable (%s)", error)
        return None


def described_waiting(status: "ClusterStatus") -> Waiting | None:
    """Return the pending work in a Ray status, which covers all drivers on the cluster."""
    demands = [*status.resource_demands.ray_task_actor_demand, *status.resource_demands.placement_group_demand]
    counts_by_text: Counter[str] = Counter()
    counts_by_request: Counter[Request] = Counter()
    for entry in (entry for demand in demands for entry in demand.bundles_by_count):
        bundle = entry.bundle
        if not _is_of_probe_task(bundle):
            memory_bytes = int(bundle.get("memory", 0))
            request = Request(bundle.get("CPU", 0.0), bundle.get("GPU", 0.0), 1, memory_bytes=memory_bytes)
            counts_by_text[_described_bundle(bundle)] += entry.count
            counts_by_request[request] += entry.count
    if not counts_by_text:
        return None
    starting: Counter[str] = Counter()
    for launch in status.pending_launches:
        starting[launch.ray_node_type_name] += launch.count
    starting.update(node.ray_node_type_name for node in status.pending_nodes)
    requested = ", ".join(f"{count} x ({bundle})" for bundle, count in counts_by_text.items())
    nodes = ", ".join(f"{count} x {name}" for name, count in starting.items())
    text = f"waiting for resources (requested: {requested}; nodes starting: {nodes or 'none'})"
    # Ray keeps every failure since the head started.
    since = time.time() - REFUSED_SECONDS
    failures = [launch for launch in status.failed_launches if (launch.failed_ts_s or 0) > since]
    if failures:
        reason = " ".join(str(failures[-1].details or "no reason given").split())[:200]
        text += f"; last launch of type {failures[-1].ray_node_type_name} failed: {reason}"
    of_work = tuple(
        replace(request, count=count) for request, count in counts_by_request.items() if request.cpus or request.gpus
    )
    refused = frozenset() if status.pending_nodes else frozenset(launch.ray_node_type_name for launch in failures)
    return Waiting(text, bool(starting), of_work, refused)


def _is_of_probe_task(bundle: Mapping[str, float]) -> bool:
    """Return whether a bundle belongs to a probe task, which requests only a node type's own resource."""
    (name,) = bundle if len(bundle) == 1 else ("CPU",)
    return name not in RAYS_OWN and "_group_" not in name and not name.startswith("bundle")


def find_alternatives(waiting_work: Waiting, groups: Sequence[NodeGroup]) -> dict[NodeGroup, int]:
    """Return how many nodes of other types to request when launches of the preferred types fail; few GPUs first."""
    counts: dict[NodeGroup, int] = {}
    others = [group for group in groups if group.mark is not None and group.name not in waiting_work.refused]
    others.sort(key=lambda group: group.size.gpus)
    for demand in waiting_work.demands:
        group = next((group for group in others if _times_on(group, demand)), None)
        if group is not None:
            num_nodes = math.ceil(demand.count / _times_on(group, demand))
            counts[group] = min(group.max_count, counts.get(group, 0) + num_nodes)
    return counts


def _times_on(group: NodeGroup, demand: Request) -> int:
    """Return how many workers of a demand fit on a node, also by memory if the node's memory is known."""
    return times_on(group.size, demand, demand.memory_bytes if group.size.memory_bytes else 0)


def _described_bundle(bundle: Mapping[str, float]) -> str:
    """Return resources in words, such as ``1 CPU and 1 GPU``, without Ray's internal resources."""
    shown = []
    for name, amount in sorted(bundle.items()):
        if name == "memory":
            shown.append(f"{amount / 2**30:.1f} GiB of memory")
        elif "_group_" not in name and not name.startswith("bundle"):
            shown.append(f"{amount:g} {name}")
    return " and ".join(shown) or "a process without CPUs"


def _occupy_briefly() -> None:
    """Do nothing; the task only has to start."""


class ProbeTasks:
    """Probe tasks: empty tasks that only nodes of one type can run, so that the autoscaler adds such nodes.

    Unlike requests to the autoscaler itself, they end with the driver and occupy no node.
    """

    def __init__(self) -> None:
        self._pending: list[ray.ObjectRef[None]] = []

    def submit(self, group: NodeGroup, count: int) -> None:
        """Request ``count`` nodes of a type."""
        import ray

        task: Any = ray.remote(_occupy_briefly).options(num_cpus=0, resources={group.mark: 1})
        self._pending += [task.remote() for _ in range(count)]

    def cancel(self) -> None:
        """Cancel the requests for more nodes."""
        import ray

        for task in self._pending:
            ray.cancel(task)
        self._pending = []


class WaitingWatch:
    """Reporter of pending work once nothing has moved for QUIET_SECONDS, and again when the pending work changes.

    The autoscaler of Ray 2.60 requests the same node type again and again even if the cloud rejects it at once, as with
    unavailable spot machines. After REFUSED_SECONDS of this, nodes of another suitable type are requested, once until
    something moves.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._reported = ""
        self._checked_at = 0.0  # monotonic clock
        self._probe_tasks = ProbeTasks()
        self._has_requested = False

    def check(self, quiet_seconds: float) -> bool:
        """Report why nothing has moved for ``quiet_seconds``; return whether nodes are on their way."""
        now = time.monotonic()
        if quiet_seconds < QUIET_SECONDS or now - self._checked_at < QUIET_SECONDS / 3:
            return False
        self._checked_at = now
        waiting_work = waiting()
        if waiting_work is None:
            return False
        if waiting_work.text != self._reported:
            self._reported = waiting_work.text
            self._report(waiting_work.text)
        if waiting_work.refused and quiet_seconds >= REFUSED_SECONDS and not self._has_requested:
            self._has_requested = True
            refused = ", ".join(sorted(waiting_work.refused))
            for group, count in find_alternatives(waiting_work, node_groups(cluster_file())).items():
                self._report(f"nodes of type {refused} are unavailable; requesting {count} of type {group.name}")
                self._probe_tasks.submit(group, count)
        return waiting_work.nodes_come

    def moved(self) -> None:
        """Note that work is moving again and cancel the requests for other nodes."""
        if self._has_requested:
            self._probe_tasks.cancel()
            self._has_requested = False
