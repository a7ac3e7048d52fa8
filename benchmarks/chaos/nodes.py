"""Ray nodes on one machine: a head that runs no trials, and nodes of one CPU each that are added, drained and killed."""

import contextlib
import logging
import os
import random
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from benchmarks import measure

AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
TRIAL_CLASSES = ("ResourceTrainable", "TrialActor")  # Tune derives a class of its own from ours
STORE_BYTES = 100 * measure.MIB


@dataclass(frozen=True)
class Actor:
    """An actor as Ray's control plane knows it. ``died_at`` is in wall-clock time, 0 while it is alive."""

    actor_id: str
    pid: int
    node_id: str
    died_at: float


class Nodes:
    """The cluster; this process is one of its drivers, so that it can query it."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._random = random.Random(0)

    @property
    def address(self) -> str:
        address: str = self._cluster.address
        return address

    def add(self, variables: Mapping[str, str] | None = None) -> None:
        """Add a node whose processes have these environment variables in addition."""
        with mock.patch.dict(os.environ, variables or {}):
            self._cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)

    def node_ids(self) -> list[str]:
        """Return the nodes except the head."""
        return [node.node_id for node in self._cluster.worker_nodes]

    def some_trial(self) -> Actor:
        """Return the process of a running trial."""
        return self._random.choice(self.trials())

    def trials(self) -> list[Actor]:
        return [actor for actor, state in self._actors() if state == "ALIVE"]

    def death_of(self, actor: Actor) -> float:
        """Return the wall-clock time at which Ray reported the death of an actor, or 0."""
        return next(
            actor_state.died_at
            for actor_state, _ in self._actors()
            if actor_state.actor_id == actor.actor_id
        )

    def _actors(self) -> Iterator[tuple[Actor, str]]:
        import ray

        for actor_id, info in ray._private.state.actors().items():
            if any(name in info["ActorClassName"] for name in TRIAL_CLASSES):
                place = info["Address"]["NodeID"]
                yield Actor(actor_id, info["Pid"], place, info["EndTime"] / 1000), info["State"]

    def kill_node(self, node_id: str) -> None:
        """Kill all of a node's processes at once."""
        node = next(node for node in self._cluster.worker_nodes if node.node_id == node_id)
        for pid in self._processes_of(node):
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(pid, signal.SIGKILL)
        self._cluster.remove_node(node, allow_graceful=False)

    @staticmethod
    def _processes_of(node: Any) -> list[int]:
        """Return a node's processes with its workers, which outlive a killed raylet for a moment."""
        raylets = [raylet.process.pid for raylet in node.all_processes["raylet"]]
        return [pid for raylet in raylets for pid in measure.process_tree(raylet)]

    def drain(self, node_id: str, seconds: int) -> None:
        """Announce the removal of a node."""
        from raysweep.cluster.ray_internals import drain_node

        drain_node(node_id, seconds)


@contextmanager
def nodes(count: int) -> Iterator[Nodes]:
    """Start a head and nodes of one CPU each."""
    import ray
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        made = Nodes(cluster)
        for _ in range(count):
            made.add()
        yield made
    finally:
        ray.shutdown()
        cluster.shutdown()


def stop(pid: int) -> None:
    """Freeze a process."""
    os.kill(pid, signal.SIGSTOP)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def workers_below(pid: int) -> list[int]:
    """Return Ray's worker processes among a driver's descendants, without its agents, whose death kills a node."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True
    ).stdout
    titles = {
        int(line.split(maxsplit=1)[0]): line.split(maxsplit=1)[1] for line in listed.splitlines()
    }
    titles_by_pid = {process: titles.get(process, "") for process in measure.process_tree(pid)}
    return [
        process
        for process, title in titles_by_pid.items()
        if title.startswith("ray::") and not title.startswith(AGENTS)
    ]
