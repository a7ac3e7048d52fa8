"""Nodes that are about to go away: what a cloud's metadata say of this machine, and what Ray says of this node.

A spot machine is told of its end by its cloud's metadata server: AWS two minutes before, Google Cloud half a minute. A
process on the node that asks there has Ray mark the node as draining. Ray then places nothing more on it, and trials leave
it with a fresh checkpoint. Kubernetes ends a pod by SIGTERM, at which Ray itself marks the node.
"""

import contextlib
import functools
import http.client
import importlib
import math
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ray

ASK_SECONDS = 5.0
REQUEST_SECONDS = 2.0
TOKEN_SECONDS = 60
VENDOR_FILE = "/sys/class/dmi/id/sys_vendor"


class Cloud(NamedTuple):
    """A cloud's metadata server: where it is, unless the variable says otherwise, and whether it announces an end."""

    vendor: str  # as the machine's firmware has it
    variable: str
    host: str
    notice_seconds: int
    announces_end: Callable[[str], bool]


_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # metadata are never behind a proxy


def _announced_by_aws(host: str) -> bool:
    """By version 2 of the instance metadata service, which answers 404 until there is something to announce."""
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
    token = _answer("PUT", f"{host}/latest/api/token", lifetime)
    action = _answer("GET", f"{host}/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token})
    return "action" in action


def _announced_by_google(host: str) -> bool:
    answer = _answer("GET", f"{host}/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
    return answer.strip() == "TRUE"


def _answer(method: str, url: str, headers: Mapping[str, str]) -> str:
    request = urllib.request.Request(url, method=method, headers=dict(headers))
    with _direct.open(request, timeout=REQUEST_SECONDS) as answer:
        text: str = answer.read().decode()
    return text


CLOUDS = (
    Cloud("Amazon EC2", "AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254", 120, _announced_by_aws),
    Cloud("Google", "GCE_METADATA_HOST", "http://metadata.google.internal", 30, _announced_by_google),
)


def this_cloud() -> Cloud | None:
    """The cloud that this machine is of; None on other machines."""
    file = Path(VENDOR_FILE)
    vendor = file.read_text(encoding="utf-8").strip() if file.is_file() else ""
    return next((cloud for cloud in CLOUDS if cloud.variable in os.environ or cloud.vendor == vendor), None)


def end_is_announced(cloud: Cloud) -> bool:
    """Whether the machine is told that it will be taken away. False where nobody answers, or with an error."""
    host = os.environ.get(cloud.variable, cloud.host)
    url = host if "://" in host else f"http://{host}"
    try:
        return cloud.announces_end(url.rstrip("/"))
    except (OSError, ValueError, http.client.HTTPException):
        return False


@functools.cache
def watch_for_notices() -> None:
    """From now on this process asks its cloud, where it is on one, and passes on what that announces."""
    cloud = this_cloud()
    if cloud is not None and ray.is_initialized():
        threading.Thread(target=_watch, args=(cloud,), daemon=True).start()


def _watch(cloud: Cloud) -> None:
    is_marked = False
    while not is_marked:
        time.sleep(ASK_SECONDS)
        if end_is_announced(cloud):
            with contextlib.suppress(Exception):  # Ray's control plane does not answer; it will be told again
                is_marked = mark_as_draining(ray.get_runtime_context().get_node_id(), cloud.notice_seconds)


def mark_as_draining(node_id: str, seconds: int) -> bool:
    """Have Ray place nothing more on a node, which will be gone in so many seconds. Whether Ray takes note of it."""
    messages: Any = importlib.import_module("ray.core.generated.autoscaler_pb2")
    raylet: Any = ray._raylet
    reason = messages.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    until_milliseconds = int(1000 * (time.time() + seconds))
    client = raylet.GcsClient(address=ray.get_runtime_context().gcs_address)
    is_accepted, _ = client.drain_node(node_id, reason, "the cloud takes the machine away", until_milliseconds)
    return bool(is_accepted)


def _this_node_is_draining() -> bool:
    draining: dict[str, int] = ray._private.state.state.get_draining_nodes()  # until when, by node
    return ray.get_runtime_context().get_node_id() in draining


class DrainWatch:
    """Whether this process's node is draining, asked of Ray every few seconds at most."""

    def __init__(self) -> None:
        self._asked_at = -math.inf
        self._is_draining = False

    def is_draining(self) -> bool:
        now = time.monotonic()
        if not self._is_draining and now - self._asked_at >= ASK_SECONDS:
            self._asked_at = now
            with contextlib.suppress(Exception):  # Ray's control plane does not answer; it will be asked again
                self._is_draining = ray.is_initialized() and _this_node_is_draining()
        return self._is_draining
