"""Pending work on a cluster, and requests for other node types when launches fail."""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from raysweep.cluster import ray_internals
from raysweep.cluster.connection import CONNECT_SECONDS
from raysweep.cluster.resources import (
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

QUIET_SECONDS = 30.0  # time without progress before pending work is reported
# time without progress before another node type is requested, if launches fail
UNAVAILABLE_SECONDS = 120.0


class Waiting(NamedTuple):
    """The pending work on a cluster.

    ``unavailable`` contains the node types that recently failed to launch. It is empty while a node is booting.
    """

    text: str
    has_starting_nodes: bool
    demands: tuple[Request, ...]
    unavailable: frozenset[str]


def waiting() -> Waiting | None:
    """Return the cluster's pending work, or None if nothing is pending or the head does not respond."""
    import ray

    try:
        status = ray_internals.read_cluster_status(
            ray.get_runtime_context().gcs_address, CONNECT_SECONDS
        )
        return describe_waiting(status)
    except Exception as error:  # Ray raises various errors if the head is busy or dead
        logging.getLogger(__name__).debug("cluster: status unavailable (%s)", error)
        return None


def describe_waiting(status: "ClusterStatus") -> Waiting | None:
    """Return the pending work of all drivers on the cluster, or None if nothing is pending."""
    counts_by_text: Counter[str] = Counter()
    counts_by_request: Counter[Request] = Counter()
    for bundle, count in _requested_bundles(status):
        memory_bytes = int(bundle.get("memory", 0))
        request = Request(
            bundle.get("CPU", 0.0), bundle.get("GPU", 0.0), 1, memory_bytes=memory_bytes
        )
        counts_by_text[_describe_bundle(bundle)] += count
        counts_by_request[request] += count
    if not counts_by_text:
        return None
    starting: Counter[str] = Counter()
    for launch in status.pending_launches:
        starting[launch.ray_node_type_name] += launch.count
    starting.update(node.ray_node_type_name for node in status.pending_nodes)
    requested = ", ".join(f"{count} x ({resources})" for resources, count in counts_by_text.items())
    nodes = ", ".join(f"{count} x {name}" for name, count in starting.items())
    text = f"waiting for resources (requested: {requested}; nodes starting: {nodes or 'none'})"
    # Ray keeps all failures since the head started.
    since = time.time() - UNAVAILABLE_SECONDS
    failures = [launch for launch in status.failed_launches if (launch.failed_ts_s or 0) > since]
    unavailable = {launch.ray_node_type_name for launch in failures}
    if failures:
        last = failures[-1]
        details = str(last.details or "no reason given")
        reason = " ".join(details.split())[:200]
        text += f"; last launch of type {last.ray_node_type_name} failed: {reason}"
    demands = []
    for request, count in counts_by_request.items():
        if request.cpus or request.gpus:
            demands.append(replace(request, count=count))
    if status.pending_nodes:
        unavailable.clear()
    return Waiting(text, bool(starting), tuple(demands), frozenset(unavailable))


def _requested_bundles(status: "ClusterStatus") -> Iterator[tuple[Mapping[str, float], int]]:
    """Yield each requested resource bundle and its count, excluding those of probe tasks."""
    demands = status.resource_demands
    for demand in (*demands.ray_task_actor_demand, *demands.placement_group_demand):
        for entry in demand.bundles_by_count:
            # A probe task requests only its node type's custom resource.
            (name,) = entry.bundle if len(entry.bundle) == 1 else ("CPU",)
            is_internal = "_group_" in name or name.startswith("bundle")
            is_of_probe_task = name not in RAYS_OWN and not is_internal
            if not is_of_probe_task:
                yield entry.bundle, entry.count


def find_alternatives(waiting_work: Waiting, groups: Sequence[NodeGroup]) -> dict[NodeGroup, int]:
    """Return how many nodes of each available type to request if other types fail to launch.

    Each demand is assigned to the suitable type with the fewest GPUs.
    """
    counts: dict[NodeGroup, int] = {}
    available = [
        group
        for group in groups
        if group.mark is not None and group.name not in waiting_work.unavailable
    ]
    available.sort(key=lambda group: group.size.gpus)
    for demand in waiting_work.demands:
        for group in available:
            # The requested memory is ignored if the node type's memory is unknown.
            memory_bytes = demand.memory_bytes if group.size.memory_bytes else 0
            workers_per_node = times_on(group.size, demand, memory_bytes)
            if workers_per_node:
                num_nodes = math.ceil(demand.count / workers_per_node)
                total = counts.get(group, 0) + num_nodes
                counts[group] = min(group.max_count, total)
                break
    return counts


def _describe_bundle(bundle: Mapping[str, float]) -> str:
    """Return the resources as text, such as ``1 CPU and 1 GPU``, without Ray's internal resources."""
    amounts = []
    for name, amount in sorted(bundle.items()):
        if name == "memory":
            amounts.append(f"{amount / 2**30:.1f} GiB of memory")
        elif "_group_" not in name and not name.startswith("bundle"):
            amounts.append(f"{amount:g} {name}")
    return " and ".join(amounts) or "0 CPU"


def _occupy_briefly() -> None:
    """Do nothing; only the task's resource request matters."""


class ProbeTasks:
    """No-op tasks that can run only on nodes of one type, so the autoscaler adds such nodes.

    Unlike direct requests to the autoscaler, the tasks end with the driver.
    """

    def __init__(self) -> None:
        self._pending: list[ray.ObjectRef[None]] = []

    def submit(self, group: NodeGroup, count: int) -> None:
        """Request ``count`` nodes of a type."""
        import ray

        task: Any = ray.remote(_occupy_briefly).options(num_cpus=0, resources={group.mark: 1})
        self._pending += [task.remote() for _ in range(count)]

    def cancel(self) -> None:
        """Cancel all tasks."""
        import ray

        for task in self._pending:
            ray.cancel(task)
        self._pending = []


class WaitingWatch:
    """Monitor that reports pending work after QUIET_SECONDS without progress.

    If launches fail, the monitor requests nodes of another suitable type after UNAVAILABLE_SECONDS without progress.
    Ray 2.60's autoscaler keeps requesting the same type, even if the cloud rejects it immediately because no spot
    machines are available.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._reported = ""
        self._checked_at = 0.0  # monotonic clock, in seconds
        self._probe_tasks = ProbeTasks()
        self._has_requested = False
        self._has_reported_remaining = False

    def check_remaining(self, quiet_seconds: float) -> None:
        """Report pending work once while other work is running.

        Nothing is reported while nodes are starting, unless launches fail.
        """
        now = time.monotonic()
        is_too_early = min(quiet_seconds, now - self._checked_at) < QUIET_SECONDS
        if self._has_reported_remaining or is_too_early:
            return
        self._checked_at = now
        waiting_work = waiting()
        if waiting_work is not None and (
            waiting_work.unavailable or not waiting_work.has_starting_nodes
        ):
            self._has_reported_remaining = True
            self._report(waiting_work.text)

    def note_all_placed(self) -> None:
        """Record that nothing is pending."""
        self._has_reported_remaining = False
        self.moved()

    def check(self, quiet_seconds: float) -> bool:
        """Report pending work if there is no progress; return whether nodes are starting."""
        now = time.monotonic()
        if quiet_seconds < QUIET_SECONDS or now - self._checked_at < QUIET_SECONDS / 3:
            return False
        self._checked_at = now
        waiting_work = waiting()
        if waiting_work is None:
            return False
        text = waiting_work.text
        if text != self._reported:
            self._reported = text
            self._report(text)
        launches_fail = waiting_work.unavailable and quiet_seconds >= UNAVAILABLE_SECONDS
        if launches_fail and not self._has_requested:
            self._has_requested = True
            unavailable = ", ".join(sorted(waiting_work.unavailable))
            groups = node_groups(cluster_file())
            for group, count in find_alternatives(waiting_work, groups).items():
                self._report(
                    f"nodes of type {unavailable} are unavailable; requesting {count} of type {group.name}"
                )
                self._probe_tasks.submit(group, count)
        return waiting_work.has_starting_nodes

    def moved(self) -> None:
        """Record progress and cancel the requests for nodes of other types."""
        if self._has_requested:
            self._probe_tasks.cancel()
            self._has_requested = False
