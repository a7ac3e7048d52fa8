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
    """The work that waits for room on a cluster, in words and as requests, and whether nodes are on their way.

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
    except Exception as error:  # many types, since the head may be busy or gone
        logging.getLogger(__name__).debug("no status of the cluster: %s", error)
        return None


def described_waiting(status: "ClusterStatus") -> Waiting | None:
    """Return the pending work in a Ray status, which covers all drivers on the cluster."""
    demands = [*status.resource_demands.ray_task_actor_demand, *status.resource_demands.placement_group_demand]
    waiting_for = [each for demand in demands for each in demand.bundles_by_count if not _is_of_probe_task(each.bundle)]
    if not waiting_for:
        return None
    asked: Counter[str] = Counter()
    requests: Counter[Request] = Counter()
    for each in waiting_for:
        asked[_described_bundle(each.bundle)] += each.count
        requests[_as_request(each.bundle)] += each.count
    coming: Counter[str] = Counter()
    for launch in status.pending_launches:
        coming[launch.ray_node_type_name] += launch.count
    for node in status.pending_nodes:
        coming[node.ray_node_type_name] += 1
    parts = [f"{count} for {bundle}" for bundle, count in asked.items()]
    nodes = ", ".join(f"{count} of type {name}" for name, count in coming.items())
    text = f"waiting for room: {', '.join(parts)}; nodes on their way: {nodes or 'none'}"
    # Ray keeps every failure since the head started.
    lately = [each for each in status.failed_launches if time.time() - (each.failed_ts_s or 0) < REFUSED_SECONDS]
    if lately:
        reason = " ".join(str(lately[-1].details or "no reason given").split())[:200]
        text += f"; the last launch of type {lately[-1].ray_node_type_name} failed: {reason}"
    of_work = tuple(
        replace(request, count=count) for request, count in requests.items() if request.cpus or request.gpus
    )
    refused = frozenset() if status.pending_nodes else frozenset(each.ray_node_type_name for each in lately)
    return Waiting(text, bool(coming), of_work, refused)


def _is_of_probe_task(bundle: Mapping[str, float]) -> bool:
    """Return whether a bundle belongs to a probe task, which requests only a node type's own resource."""
    (name,) = bundle if len(bundle) == 1 else ("CPU",)
    return name not in RAYS_OWN and "_group_" not in name and not name.startswith("bundle")


def _as_request(bundle: Mapping[str, float]) -> Request:
    return Request(bundle.get("CPU", 0.0), bundle.get("GPU", 0.0), 1, memory_bytes=int(bundle.get("memory", 0)))


def instead(found: Waiting, groups: Sequence[NodeGroup]) -> dict[NodeGroup, int]:
    """Return how many nodes of other types to request when launches of the preferred types fail; few GPUs first."""
    wanted: dict[NodeGroup, int] = {}
    others = [group for group in groups if group.mark is not None and group.name not in found.refused]
    others.sort(key=lambda group: group.size.gpus)
    for demand in found.demands:
        group = next((group for group in others if _times_on(group, demand)), None)
        if group is not None:
            num_nodes = math.ceil(demand.count / _times_on(group, demand))
            wanted[group] = min(group.max_count, wanted.get(group, 0) + num_nodes)
    return wanted


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


def _arrive() -> None:
    """Do nothing, to occupy a node only briefly."""


class ProbeTasks:
    """Probe tasks: empty tasks that only nodes of one type can run, so that the autoscaler adds such nodes.

    Unlike requests to the autoscaler itself, they end with the driver and occupy no node.
    """

    def __init__(self) -> None:
        self._pending: list[ray.ObjectRef[None]] = []

    def submit(self, group: NodeGroup, count: int) -> None:
        """Request ``count`` nodes of a type."""
        import ray

        task: Any = ray.remote(_arrive).options(num_cpus=0, resources={group.mark: 1})
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

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said = ""
        self._looked_at = 0.0  # monotonic clock
        self._probe_tasks = ProbeTasks()
        self._has_asked = False

    def check(self, quiet_seconds: float) -> bool:
        """Report why nothing has moved for ``quiet_seconds``; return whether nodes are on their way."""
        now = time.monotonic()
        if quiet_seconds < QUIET_SECONDS or now - self._looked_at < QUIET_SECONDS / 3:
            return False
        self._looked_at = now
        found = waiting()
        if found is None:
            return False
        if found.text != self._said:
            self._said = found.text
            self._say(found.text)
        if found.refused and quiet_seconds >= REFUSED_SECONDS and not self._has_asked:
            self._turn_to_others(found)
        return found.nodes_come

    def _turn_to_others(self, found: Waiting) -> None:
        self._has_asked = True
        refused = ", ".join(sorted(found.refused))
        for group, count in instead(found, node_groups(cluster_file())).items():
            self._say(f"no nodes of type {refused} are to be had; asking for {count} of {group.name}")
            self._probe_tasks.submit(group, count)

    def moved(self) -> None:
        """Note that work is moving again and cancel the requests for other nodes."""
        if self._has_asked:
            self._probe_tasks.cancel()
            self._has_asked = False
