"""All uses of Ray's private APIs.

``tests/ray/ray_tune/test_ray_internals.py`` tests them with the installed version of Ray.
"""

import importlib
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.autoscaler.v2.schema import ClusterStatus

PREEMPTION = "DRAIN_NODE_REASON_PREEMPTION"


def read_cluster_config() -> Any:
    """Return the cluster configuration that the autoscaler has registered with Ray, if any.

    ``node_group_configs`` is a list of groups with ``name``, ``resources`` and ``max_count`` (-1 if
    unlimited). ``max_resources`` limits the total resources of the cluster.
    """
    import ray

    return ray._private.state.state.get_cluster_config()


def read_cluster_status(address: str, timeout: int) -> "ClusterStatus":
    """Return the autoscaler's status of the cluster at ``address``; may raise errors of many types."""
    from ray.autoscaler.v2.sdk import get_cluster_status

    return get_cluster_status(address, timeout=timeout)


def read_draining_nodes() -> set[str]:
    """Return the IDs of the nodes that Ray has marked as draining."""
    import ray

    deadlines: dict[str, int] = ray._private.state.state.get_draining_nodes()  # keyed by node ID
    return set(deadlines)


def drain_node(node_id: str, seconds: float) -> bool:
    """Drain a node that will be gone in ``seconds``; return whether Ray accepted the request."""
    import ray

    messages: Any = importlib.import_module("ray.core.generated.autoscaler_pb2")
    reason = messages.DrainNodeReason.Value(PREEMPTION)
    until_milliseconds = int(1000 * (time.time() + seconds))
    client = _connect(ray.get_runtime_context().gcs_address)
    is_accepted, _ = client.drain_node(
        node_id, reason, "the cloud provider is reclaiming the machine", until_milliseconds
    )
    return bool(is_accepted)


def count_memory_kills_as_deaths() -> None:
    """Make Tune treat actors that Ray kills when a node runs out of memory as dead actors.

    Tune handles only RayActorError and RayTaskError; an OutOfMemoryError would end the whole run.
    """
    from ray.air.execution._internal.actor_manager import RayActorManager
    from ray.exceptions import RayActorError, RayError, RayTaskError

    original = RayActorManager._actor_task_failed
    if original.__module__ == __name__:  # already replaced
        return

    def fail(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, RayError) and not isinstance(
            exception, RayActorError | RayTaskError
        ):
            exception = RayActorError(error_msg=f"{type(exception).__name__}: {exception}")
        original(self, tracked_actor_task, exception)

    RayActorManager._actor_task_failed = fail  # type: ignore[method-assign]


def make_silent_reporter() -> Any:
    """Return a silent progress reporter in notebooks, otherwise None.

    In notebooks, Tune's default reporter clears the cell's output even with verbose=0. Outside notebooks, Tune warns
    about any custom reporter.
    """
    from ray.tune import ProgressReporter
    from ray.tune.experimental.output import IS_NOTEBOOK

    class SilentReporter(ProgressReporter):
        def should_report(self, trials: Any, done: bool = False) -> bool:
            return False

        def report(self, trials: Any, done: bool, *sys_info: str) -> None:
            pass

    return SilentReporter() if IS_NOTEBOOK else None


def locate(address: str) -> str:
    """Return the HOST:PORT address that ``auto`` stands for; return any other address unchanged.

    The cluster may have been killed, since Ray keeps its address in a file. Without any cluster, ``auto`` is returned.
    """
    from ray._private.services import canonicalize_bootstrap_address

    if address != "auto":
        return address
    try:
        located: str | None = canonicalize_bootstrap_address(address)
    except ConnectionError:
        return address
    return located or address


def resolve_address(address: str) -> str:
    """Resolve a cluster's address, and enable the local authentication token if it is required.

    Ray enables the token only for clusters that it discovers, not for explicit addresses. The token
    must stay disabled for clusters without authentication: they would accept this process, but its
    actors would exit on startup.
    """
    import ray
    from ray._private.authentication.authentication_token_setup import (
        maybe_enable_token_auth_if_token_available,
    )
    from ray._private.services import canonicalize_bootstrap_address

    try:
        resolved: str | None = canonicalize_bootstrap_address(address)
        _connect(resolved)
    except ray.exceptions.AuthenticationError:
        maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
    except Exception:
        return address  # the cluster is unreachable; Ray's own error is more informative
    return resolved or address


def _connect(address: str | None) -> Any:
    import ray

    raylet: Any = ray._raylet
    return raylet.GcsClient(address=address)
