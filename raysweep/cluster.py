"""The Ray cluster a sweep runs on: starting or joining it quietly, and what one worker of each stage may ask of it."""

import contextlib
import logging
import math
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from raysweep.config.sweep import ResourcesConfig
from raysweep.errors import InputError
from raysweep.terminal import termination_kept, undisturbed

CUDA_CONTEXT_BYTES = 600 << 20  # of GPU memory in each process, which no allocator counts
USABLE_GPU_MEMORY_FRACTION = 0.9  # of each GPU, where trials are packed by what they were measured to take
CONNECT_SECONDS = 10
THREADS_PER_ENCODER = 8  # one encoder stops gaining from more threads about here; a larger node runs several


class NodeSize(NamedTuple):
    """The CPUs and GPUs of one node."""

    cpus: float
    gpus: float


@dataclass(frozen=True)
class Request:
    """What ``count`` like workers ask of Ray: CPUs and GPUs of each, which may be fractions below 1.

    ``cache_bytes`` is the memory that a running trial may keep of what a frozen part of the encoder gives.
    """

    cpus: float
    gpus: float
    count: int
    cache_bytes: int = 0

    @property
    def threads(self) -> int:
        """How many threads one worker computes with."""
        return max(1, int(self.cpus))

    def packed(self, peak_bytes: int, gpu_bytes: int) -> "Request":
        """The same GPUs shared by as many trials as fit into their memory.

        ``peak_bytes`` is what one trial takes at most, besides its cache and a CUDA context; ``gpu_bytes`` is all that a
        GPU has, of which a tenth is left free.
        """
        bytes_per_trial = peak_bytes + self.cache_bytes + CUDA_CONTEXT_BYTES
        per_gpu = max(1, int(USABLE_GPU_MEMORY_FRACTION * gpu_bytes // bytes_per_trial))
        return replace(self, gpus=1 / per_gpu, cpus=self.cpus / per_gpu, count=self.count * per_gpu)


@dataclass(frozen=True)
class Capacity:
    """The nodes of a cluster that run work, and what workers of each kind may ask of them."""

    nodes: tuple[NodeSize, ...]

    @property
    def gpus(self) -> float:
        return sum(node.gpus for node in self.nodes)

    @property
    def cpus(self) -> float:
        return sum(node.cpus for node in self.nodes)

    def encoders(self) -> Request:
        """Workers that run an encoder: one a GPU where there are GPUs, otherwise one for each few CPUs of a node."""
        if self.gpus < 1:
            return self.processors()
        with_gpu = [node for node in self.nodes if node.gpus >= 1]
        cpus = min(1.0, *(node.cpus for node in with_gpu))
        return Request(cpus, 1, int(sum(node.gpus for node in with_gpu)))

    def processors(self) -> Request:
        """Workers that compute on CPUs with several threads.

        They may take every CPU: the data they read comes from artifacts and the object store, so no read or write task
        competes for one, and their coordinator asks for none.
        """
        largest = max(node.cpus for node in self.nodes)
        workers_on_largest = math.ceil(largest / THREADS_PER_ENCODER)
        cpus = max(1, largest // workers_on_largest)  # the largest node shared out evenly
        count = sum(_times_in(node.cpus, cpus) for node in self.nodes)
        return Request(cpus, 0, max(1, count))

    def trials(self, resources: ResourcesConfig) -> Request:
        """Trials: one a GPU by default, otherwise one for each few CPUs. InputError when not one of them would fit."""
        cpus, gpus = self._size_of_trial(resources)
        if not any(node.cpus >= cpus and node.gpus >= gpus for node in self.nodes):
            largest = max(self.nodes)
            raise InputError(
                f"a trial asks for {cpus:g} CPUs and {gpus:g} GPUs, but the largest node has {largest.cpus:g} and "
                f"{largest.gpus:g}: lower resources.cpus_per_trial or resources.gpus_per_trial"
            )
        fitting = 0
        for node in self.nodes:
            by_cpus = _times_in(node.cpus, cpus)
            fitting += min(by_cpus, _times_in(node.gpus, gpus)) if gpus else by_cpus
        count = resources.max_concurrent_trials or max(1, fitting)
        return Request(cpus, gpus, count, int(resources.cache_gib * 2**30))

    def _size_of_trial(self, resources: ResourcesConfig) -> NodeSize:
        """The CPUs and GPUs of one trial: those that are asked for, otherwise what an encoder takes."""
        encoder = self.encoders()
        gpus = encoder.gpus if resources.gpus_asked is None else resources.gpus_asked
        if resources.cpus_per_trial:
            return NodeSize(resources.cpus_per_trial, gpus)
        on_cpus_alone = not gpus and encoder.gpus  # though the cluster has GPUs
        return NodeSize(self.processors().cpus if on_cpus_alone else encoder.cpus, gpus)


def _times_in(whole: float, part: float) -> int:
    """How often ``part`` goes into ``whole``; 1 // 0.2 would be 4."""
    return math.floor(whole / part + 1e-9)


def worker_nodes(present: Sequence[Mapping[str, float]], resources: ResourcesConfig) -> tuple[NodeSize, ...]:
    """The nodes that run work: those that are there, or those that an autoscaler is to bring when there are none yet.

    ``present`` has of each living node what Ray calls its resources; a node without CPUs, such as a head that only
    coordinates, runs no work. InputError when there is none and ``resources`` do not say how far to scale.
    """
    nodes = [NodeSize(node.get("CPU", 0.0), node.get("GPU", 0.0)) for node in present if node.get("CPU", 0.0) > 0]
    nodes = nodes or _nodes_to_come(resources)
    if resources.gpus_asked == 0:
        nodes = [NodeSize(node.cpus, 0.0) for node in nodes]
    return tuple(nodes)


def _nodes_to_come(resources: ResourcesConfig) -> list[NodeSize]:
    """As many nodes as ``max_concurrent_trials`` need, each of the size of one trial, or of those that share its GPU."""
    if resources.max_concurrent_trials is None:
        raise InputError(
            "the cluster has no worker yet: name resources.max_concurrent_trials, and resources.gpus_per_trial or "
            "resources.cpus_per_trial, so that it knows how far to scale"
        )
    gpus = resources.gpus_asked or 0
    nodes_per_trial = min(1.0, gpus) or 1.0  # trials that share a GPU share a node
    num_nodes = math.ceil(resources.max_concurrent_trials * nodes_per_trial)
    return [NodeSize(resources.cpus_per_trial or 1, math.ceil(gpus))] * num_nodes


@contextlib.contextmanager
def connected(resources: ResourcesConfig, *, show_workers: bool = True) -> Iterator[Capacity]:
    """Start a local Ray, or join the cluster at ``resources.address``; leave it again at the end.

    Ray's usage statistics are off. With ``show_workers`` what workers print comes out of this process, for the caller to
    put into a log; otherwise it is only in Ray's own logs. InputError when Ray does not start or nobody answers.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    address = resources.address or os.environ.get("RAY_ADDRESS")
    if address and resources.num_cpus:
        raise InputError("resources.num_cpus sizes a local cluster, but resources.address names one to join")
    options: dict[str, Any] = {"log_to_driver": show_workers, "logging_level": logging.ERROR}
    try:
        with termination_kept():
            if address:
                _check_address(address)
                ray.init(address=address, **options)
            else:
                ray.init(address="local", num_cpus=resources.num_cpus, include_dashboard=False, **options)
    except (OSError, ValueError, RuntimeError) as error:
        where = f"resources.address: no Ray cluster at {address}" if address else "Ray does not start on this machine"
        raise InputError(f"{where}: {' '.join(str(error).split())[:300]}") from None
    _protect_token()
    try:
        present = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        yield Capacity(worker_nodes(present, resources))
    finally:
        with undisturbed():  # Ray ends the whole process when it is interrupted at this
            ray.shutdown()


def _check_address(address: str) -> None:
    """OSError where nobody listens at a HOST:PORT; Ray itself would try for minutes without a word."""
    host, colon, port = address.rpartition("//")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()


def _protect_token() -> None:
    """A local ``ray.init`` leaves its authentication token readable by every user of the machine."""
    token = Path.home() / ".ray" / "auth_token"
    with contextlib.suppress(OSError):
        if token.stat().st_mode & 0o077:
            token.chmod(0o600)
