"""The Ray cluster a sweep runs on: starting or joining it quietly, and what one worker of each stage may ask of it."""

import contextlib
import logging
import math
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from raysweep.config.sweep import ResourcesConfig
from raysweep.errors import InputError
from raysweep.terminal import undisturbed

CONTEXT_BYTES = 600 << 20  # of CUDA in each process, which no allocator counts


KNOCK_SECONDS = 10


THREADS_PER_ENCODER = 8  # one encoder stops gaining from more threads about here; a larger node runs several


@dataclass(frozen=True)
class Request:
    """What each of ``count`` like workers asks of Ray."""

    cpus: float
    gpus: float
    count: int
    cache_bytes: int = 0  # that a trial may keep of what a frozen part of the encoder gives

    @property
    def threads(self) -> int:
        return max(1, int(self.cpus))

    def packed(self, peak_bytes: int, gpu_bytes: int) -> "Request":
        """As many trials on each GPU as fit by memory: ``peak_bytes`` and a CUDA context each, a tenth of it left free."""
        fitting = max(1, int(0.9 * gpu_bytes // (peak_bytes + self.cache_bytes + CONTEXT_BYTES)))
        return replace(self, gpus=1 / fitting, cpus=self.cpus / fitting, count=self.count * fitting)


@dataclass(frozen=True)
class Capacity:
    """CPUs and GPUs of every node that runs work."""

    nodes: tuple[tuple[float, float], ...]

    @property
    def gpus(self) -> float:
        return sum(gpus for _, gpus in self.nodes)

    @property
    def cpus(self) -> float:
        return sum(cpus for cpus, _ in self.nodes)

    def encoders(self) -> Request:
        """Workers that run an encoder: one a GPU where there are GPUs, otherwise one for each few CPUs of a node."""
        if self.gpus >= 1:
            with_gpu = [(cpus, gpus) for cpus, gpus in self.nodes if gpus >= 1]
            return Request(min(1.0, *(cpus for cpus, _ in with_gpu)), 1, int(sum(gpus for _, gpus in with_gpu)))
        return self.processors()

    def processors(self) -> Request:
        """Workers that compute on CPUs with several threads.

        They may take every CPU: the data they read comes from artifacts and the object store, so no read or write task
        competes for one, and their coordinator asks for none.
        """
        cpus = [cpus for cpus, _ in self.nodes]
        largest = max(cpus)
        each = max(1, largest // math.ceil(largest / THREADS_PER_ENCODER))  # the largest node shared out evenly
        return Request(each, 0, max(1, sum(_fit_all(node, each) for node in cpus)))

    def trials(self, resources: ResourcesConfig) -> Request:
        """Trials: one a GPU by default, otherwise one for each few CPUs. InputError when not one of them would fit."""
        default = self.encoders()
        gpus = default.gpus if resources.gpus_asked is None else resources.gpus_asked
        cpus = resources.cpus_per_trial or (default.cpus if gpus or not default.gpus else self.processors().cpus)
        if not any(has_cpus >= cpus and has_gpus >= gpus for has_cpus, has_gpus in self.nodes):
            largest = max(self.nodes)
            raise InputError(
                f"a trial asks for {cpus:g} CPUs and {gpus:g} GPUs, but the largest node has {largest[0]:g} and "
                f"{largest[1]:g}: lower resources.cpus_per_trial or resources.gpus_per_trial"
            )
        slots = [min(_fit_all(c, cpus), _fit_all(g, gpus)) if gpus else _fit_all(c, cpus) for c, g in self.nodes]
        count = resources.max_concurrent_trials or max(1, sum(slots))
        return Request(cpus, gpus, count, int(resources.cache_gib * 2**30))


def _fit_all(whole: float, part: float) -> int:
    """How often ``part`` goes into ``whole``; 1 // 0.2 would be 4."""
    return math.floor(whole / part + 1e-9)


def _nodes(present: Sequence[Mapping[str, float]], resources: ResourcesConfig) -> tuple[tuple[float, float], ...]:
    """CPUs and GPUs of the nodes that are there, or of those that an autoscaler is to bring when there are none yet."""
    nodes = tuple((node.get("CPU", 0.0), node.get("GPU", 0.0)) for node in present if node.get("CPU", 0.0) > 0)
    if not nodes:
        if resources.max_concurrent_trials is None:
            raise InputError(
                "the cluster has no worker yet: name resources.max_concurrent_trials, and resources.gpus_per_trial or "
                "resources.cpus_per_trial, so that it knows how far to scale"
            )
        gpus = resources.gpus_asked or 0
        share = min(1.0, gpus) or 1.0  # trials that share a GPU share a node
        nodes = ((resources.cpus_per_trial or 1, math.ceil(gpus)),) * math.ceil(resources.max_concurrent_trials * share)
    return tuple((cpus, 0.0) for cpus, _ in nodes) if resources.gpus_asked == 0 else nodes


@contextlib.contextmanager
def connected(resources: ResourcesConfig) -> Iterator[Capacity]:
    """Start a local Ray, or join the cluster at ``resources.address``; leave it again at the end.

    Ray's usage statistics are off. What workers print comes out here, for the caller to put into a log.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    address = resources.address or os.environ.get("RAY_ADDRESS")
    if address and resources.num_cpus:
        raise InputError("resources.num_cpus sizes a local cluster, but resources.address names one to join")
    quiet: dict[str, Any] = {"log_to_driver": True, "logging_level": logging.ERROR}
    try:
        if address:
            _knock(address)
            ray.init(address=address, **quiet)
        else:
            ray.init(num_cpus=resources.num_cpus, include_dashboard=False, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        where = f"resources.address: no Ray cluster at {address}" if address else "Ray does not start on this machine"
        raise InputError(f"{where}: {' '.join(str(error).split())[:300]}") from None
    _protect_token()
    try:
        yield Capacity(_nodes([node["Resources"] for node in ray.nodes() if node["Alive"]], resources))
    finally:
        with undisturbed():  # Ray ends the whole process when it is interrupted at this
            ray.shutdown()


def _knock(address: str) -> None:
    """OSError where nobody listens at a HOST:PORT; Ray itself would try for minutes without a word."""
    host, colon, port = address.rpartition("//")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS).close()


def _protect_token() -> None:
    """A local ``ray.init`` leaves its authentication token readable by every user of the machine."""
    token = Path.home() / ".ray" / "auth_token"
    with contextlib.suppress(OSError):
        if token.stat().st_mode & 0o077:
            token.chmod(0o600)
