"""Node types, node counts and preemption notices.

Cloud metadata servers announce the preemption of spot instances: two minutes in
advance on AWS and 30 seconds on Google Cloud. Trial processes poll the server and mark their node as
draining in Ray. Ray then schedules no more work on the node, and its trials save a checkpoint and
leave the node. On Kubernetes, Ray itself marks the node when its pod receives SIGTERM.
"""

import contextlib
import functools
import http.client
import logging
import math
import os
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from raysweep.cluster import ray_internals
from raysweep.cluster.connection import CONNECT_SECONDS
from raysweep.cluster.resources import GROUP_LABEL
from raysweep.results.types import LOCAL

COUNT_SECONDS = 5.0  # interval at which the cluster's nodes are counted
POLL_SECONDS = 5.0  # interval between queries for a preemption notice
REQUEST_SECONDS = 2.0
TOKEN_SECONDS = 60
VENDOR_FILE = "/sys/class/dmi/id/sys_vendor"

OnCounts = Callable[[Mapping[str, int], Mapping[str, int]], None]
"""A callback that receives the numbers of running and booting nodes by node type."""


def node_type(node: Mapping[str, Any]) -> str:
    """Return the type of an entry of ``ray.nodes()``, as named in the cluster file."""
    labels = node.get("Labels", {})
    return labels.get(GROUP_LABEL) or labels.get("ray.io/node-type") or LOCAL


def list_worker_nodes() -> set[str]:
    """Return the IDs of the live nodes that run work, excluding heads without CPUs."""
    import ray

    return {
        node["NodeID"]
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("CPU", 0) > 0
    }


@contextlib.contextmanager
def counted(on_counts: OnCounts) -> Iterator[None]:
    """Count the cluster's nodes in a thread every COUNT_SECONDS, and when the context exits."""
    import ray

    ended = threading.Event()
    address = ray.get_runtime_context().gcs_address

    def count_until_ended() -> None:
        _count(on_counts, address)
        while not ended.wait(COUNT_SECONDS):
            _count(on_counts, address)
        _count(on_counts, address)

    thread = threading.Thread(target=count_until_ended, name="node-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=COUNT_SECONDS)  # a dead head never answers


def _count(on_counts: OnCounts, address: str) -> None:
    # A node counts as booting once its machine exists, because clouds then charge for it.
    import ray

    try:
        running = Counter(node_type(node) for node in ray.nodes() if node["Alive"])
        status = ray_internals.read_cluster_status(address, CONNECT_SECONDS)
    except Exception as error:  # Ray raises many types of errors if the head is busy or dead
        logging.getLogger(__name__).debug("cluster: status unavailable (%s)", error)
        return
    booting = Counter(node.ray_node_type_name for node in status.pending_nodes)
    on_counts(running, booting)


class Cloud(NamedTuple):
    """A cloud's metadata server and how it announces preemption.

    The environment variable named in ``variable`` overrides ``host``.
    """

    vendor: str  # as reported by the machine's firmware
    variable: str
    host: str
    notice_seconds: int
    announces_end: Callable[[str], bool]


# metadata servers are never behind a proxy
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _announced_by_aws(host: str) -> bool:
    """Query IMDSv2, which responds with 404 if no preemption is announced."""
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
    token = _answer("PUT", f"{host}/latest/api/token", lifetime)
    action = _answer(
        "GET", f"{host}/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token}
    )
    return "action" in action


def _announced_by_google(host: str) -> bool:
    answer = _answer(
        "GET", f"{host}/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"}
    )
    return answer.strip() == "TRUE"


def _answer(method: str, url: str, headers: Mapping[str, str]) -> str:
    request = urllib.request.Request(url, method=method, headers=dict(headers))
    with _direct.open(request, timeout=REQUEST_SECONDS) as answer:
        text: str = answer.read().decode()
    return text


CLOUDS = (
    Cloud(
        "Amazon EC2",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        "http://169.254.169.254",
        120,
        _announced_by_aws,
    ),
    Cloud(
        "Google", "GCE_METADATA_HOST", "http://metadata.google.internal", 30, _announced_by_google
    ),
)


def this_cloud() -> Cloud | None:
    """Return the cloud that this machine runs on, or None if it is not in a known cloud."""
    file = Path(VENDOR_FILE)
    vendor = file.read_text(encoding="utf-8").strip() if file.is_file() else ""
    return next(
        (cloud for cloud in CLOUDS if cloud.variable in os.environ or cloud.vendor == vendor), None
    )


def end_is_announced(cloud: Cloud) -> bool:
    """Return whether the cloud will reclaim this machine; False if the server does not respond."""
    host = os.environ.get(cloud.variable, cloud.host)
    url = host if "://" in host else f"http://{host}"
    try:
        return cloud.announces_end(url.rstrip("/"))
    except (OSError, ValueError, http.client.HTTPException):
        return False


@functools.cache
def watch_for_notices() -> None:
    """Start a thread that polls for preemption notices if this machine is in a known cloud."""
    import ray

    cloud = this_cloud()
    if cloud is not None and ray.is_initialized():
        threading.Thread(target=_watch, args=(cloud,), daemon=True).start()


def _watch(cloud: Cloud) -> None:
    import ray

    is_marked = False
    while not is_marked:
        time.sleep(POLL_SECONDS)
        if end_is_announced(cloud):
            # if Ray's control plane does not answer, try again later
            with contextlib.suppress(Exception):
                is_marked = ray_internals.drain_node(
                    ray.get_runtime_context().get_node_id(), cloud.notice_seconds
                )


class DrainWatch:
    """Checks whether this node is draining, querying Ray at most every POLL_SECONDS."""

    def __init__(self) -> None:
        self._polled_at = -math.inf
        self._is_draining = False

    def is_draining(self) -> bool:
        import ray

        now = time.monotonic()
        is_due = now - self._polled_at >= POLL_SECONDS
        if is_due and not self._is_draining:
            self._polled_at = now
            # if Ray's control plane does not answer, try again later
            with contextlib.suppress(Exception):
                if ray.is_initialized():
                    node_id = ray.get_runtime_context().get_node_id()
                    self._is_draining = node_id in ray_internals.read_draining_nodes()
        return self._is_draining
