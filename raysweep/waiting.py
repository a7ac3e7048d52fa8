"""What the work on a cluster waits for, in words; and nodes of another type where those first asked for are refused."""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from raysweep.cluster import CONNECT_SECONDS, NodeGroup, Request, cluster_file, node_groups, times_on

QUIET_SECONDS = 30.0  # in which nothing moves, after which it is said what is waited for
REFUSED_SECONDS = 120.0  # the same, after which nodes of another type are asked for


class Waiting(NamedTuple):
    """What on a cluster waits for room, in words, and whether nodes are on their way for it.

    ``refused`` has the types of nodes whose launch has failed, unless nodes are starting at present.
    """

    text: str
    nodes_come: bool
    demands: tuple[Request, ...] = ()
    refused: frozenset[str] = frozenset()


def waiting() -> Waiting | None:
    """What waits for room on the cluster that this process has joined; None where nothing does, or nobody answers."""
    import ray
    from ray.autoscaler.v2.sdk import get_cluster_status

    try:
        return described_waiting(get_cluster_status(ray.get_runtime_context().gcs_address, timeout=CONNECT_SECONDS))
    except Exception as error:  # of many kinds: the head may be busy, or gone
        logging.getLogger(__name__).debug("no status of the cluster: %s", error)
        return None


def described_waiting(status: Any) -> Waiting | None:
    """The same of a status as Ray gives it."""
    demands = [*status.resource_demands.ray_task_actor_demand, *status.resource_demands.placement_group_demand]
    asked: Counter[str] = Counter()
    sizes: Counter[tuple[float, float]] = Counter()
    for demand in demands:
        for each in demand.bundles_by_count:
            asked[_described_bundle(each.bundle)] += each.count
            sizes[each.bundle.get("CPU", 0.0), each.bundle.get("GPU", 0.0)] += each.count
    if not asked:
        return None
    coming: Counter[str] = Counter()
    for launch in status.pending_launches:
        coming[launch.ray_node_type_name] += launch.count
    for node in status.pending_nodes:
        coming[node.ray_node_type_name] += 1
    parts = [f"{count} for {bundle}" for bundle, count in asked.items()]
    nodes = ", ".join(f"{count} of type {name}" for name, count in coming.items())
    text = f"waiting for room: {', '.join(parts)}; nodes on their way: {nodes or 'none'}"
    if status.failed_launches:
        failed = status.failed_launches[-1]
        reason = " ".join(str(failed.details or "no reason given").split())[:200]
        text += f"; the last launch of type {failed.ray_node_type_name} failed: {reason}"
    starting = bool(status.pending_nodes)
    refused = frozenset(each.ray_node_type_name for each in status.failed_launches if not starting)
    of_work = tuple(Request(*size, count) for size, count in sizes.items() if any(size))
    return Waiting(text, bool(coming), of_work, refused)


def instead(found: Waiting, groups: Sequence[NodeGroup]) -> dict[NodeGroup, int]:
    """How many nodes of other types to ask for where those that the autoscaler prefers are refused."""
    wanted: dict[NodeGroup, int] = {}
    others = [group for group in groups if group.mark is not None and group.name not in found.refused]
    for demand in found.demands:
        group = next((group for group in others if times_on(group.size, demand)), None)
        if group is not None:
            num_nodes = math.ceil(demand.count / times_on(group.size, demand))
            wanted[group] = min(group.max_count, wanted.get(group, 0) + num_nodes)
    return wanted


def _described_bundle(bundle: Mapping[str, float]) -> str:
    """Resources in words, such as ``1 CPU and 1 GPU``, without what Ray names for itself."""
    shown = []
    for name, amount in sorted(bundle.items()):
        if name == "memory":
            shown.append(f"{amount / 2**30:.1f} GiB of memory")
        elif "_group_" not in name and not name.startswith("bundle"):
            shown.append(f"{amount:g} {name}")
    return " and ".join(shown) or "a process without CPUs"


def _arrive() -> None:
    """Be on a node."""


class Scouts:
    """Tasks with nothing to do that only nodes of one type can run, so that the autoscaler brings some.

    Unlike a request to the autoscaler itself they are gone with the driver, and hold no node.
    """

    def __init__(self) -> None:
        self._under_way: list[Any] = []

    def send(self, group: NodeGroup, count: int) -> None:
        """Ask for so many nodes of a type."""
        import ray

        task: Any = ray.remote(_arrive).options(num_cpus=0, resources={group.mark: 1})
        self._under_way += [task.remote() for _ in range(count)]

    @property
    def are_under_way(self) -> bool:
        import ray

        if self._under_way:
            _, self._under_way = ray.wait(self._under_way, num_returns=len(self._under_way), timeout=0)
        return bool(self._under_way)

    def call_back(self) -> None:
        """Ask for no more nodes."""
        import ray

        for task in self._under_way:
            ray.cancel(task)
        self._under_way = []


class WaitingWatch:
    """Says what is waited for once nothing has moved for half a minute, and again where that has changed.

    Ray 2.60's autoscaler asks for the same type of node again and again where a cloud refuses it at once, such as spot
    machines that are not to be had. After two minutes of that, nodes of another type that fits are asked for.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said = ""
        self._asked_at = 0.0  # by the monotonic clock
        self._scouts = Scouts()

    def check(self, quiet_seconds: float) -> bool:
        """Look into why nothing has moved for so long; whether nodes are on their way."""
        now = time.monotonic()
        if quiet_seconds < QUIET_SECONDS or now - self._asked_at < QUIET_SECONDS / 3:
            return False
        self._asked_at = now
        found = waiting()
        if found is None:
            return False
        if found.text != self._said:
            self._said = found.text
            self._say(found.text)
        if found.refused and quiet_seconds >= REFUSED_SECONDS and not self._scouts.are_under_way:
            self._turn_to_others(found)
        return found.nodes_come

    def _turn_to_others(self, found: Waiting) -> None:
        for group, count in instead(found, node_groups(cluster_file())).items():
            self._say(
                f"no nodes of type {', '.join(sorted(found.refused))} are to be had; asking for {count} of {group.name}"
            )
            self._scouts.send(group, count)

    def moved(self) -> None:
        """Something goes on, so that nothing more is asked for."""
        self._scouts.call_back()
