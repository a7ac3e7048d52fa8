"""Connections to Ray: start it on this machine or join a cluster."""

import contextlib
import json
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from raysweep.cluster import ray_internals
from raysweep.cluster.resources import (
    ADDRESS_VARIABLE,
    Capacity,
    address_of,
    check_cluster_file,
    read_capacity,
)
from raysweep.config.sweep import ResourcesConfig
from raysweep.errors import InputError
from raysweep.terminal import (
    in_main_thread,
    repeating,
    set_log_level,
    termination_kept,
    undisturbed,
)

CONNECT_SECONDS = 10
SILENT_SECONDS = 15  # between messages while Ray starts, which usually takes 3 to 5 s
RESET_SECONDS = 0.001  # between attempts to set a signal handler that Ray may reset
TOKEN_BYTES = 32  # as in Ray's own tokens
# set by Ray's job supervisor
JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"


@contextlib.contextmanager
def connected(
    resources: ResourcesConfig,
    *,
    show_workers: bool = True,
    report: Callable[[str], None] | None = None,
    metadata: Mapping[str, str] | None = None,
    log_level: str | None = None,
) -> Iterator[Capacity]:
    """Start Ray on this machine or join a cluster, and disconnect when the context exits.

    Args:
        show_workers: Whether to forward the workers' output to this process.
        report: Called with a message every SILENT_SECONDS until Ray has started.
        metadata: Metadata of the Ray job.
        log_level: The log level for this process and the workers. By default, Ray logs only errors
            in this process.

    Raises:
        InputError: If Ray does not start or the cluster does not answer.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # otherwise, Ray would upload the working directory under `uv run raysweep`
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    address = address_of(resources)
    key = "resources.address" if resources.address else ADDRESS_VARIABLE
    protect_token(may_make=not address)
    import ray
    from ray.job_config import JobConfig

    if address and address.startswith("ray://"):
        raise InputError(
            f"{key} is {address}, a Ray Client address, so the sweep would end when this terminal closes; "
            "allowed: auto, on a node of the cluster; from elsewhere, submit a job (ray job submit)"
        )
    if address and resources.num_cpus:
        raise InputError(
            f"resources.num_cpus is {resources.num_cpus}, but {key} joins an existing cluster; set only one of them"
        )
    if address:
        check_cluster_file()
        located = ray_internals.locate(address)
        _check_address(located, key)
        resolved = ray_internals.resolve_address(located)
    else:
        resolved = "local"
    options: dict[str, Any] = {"log_to_driver": show_workers, "logging_level": logging.ERROR}
    if log_level is not None:
        options["logging_config"] = ray.LoggingConfig(log_level=log_level.upper())
    if not address:
        options |= {"num_cpus": resources.num_cpus, "include_dashboard": False}
    try:
        with termination_kept(), _forks_lead_groups(), _reporting(report):
            ray.init(
                address=resolved, job_config=JobConfig(metadata=dict(metadata or {})), **options
            )
        if log_level is not None:
            set_log_level(log_level)  # Ray has added a handler to the root logger
    except Exception as error:  # Ray also raises plain Exception, for example after a timeout
        reason = " ".join(str(error).split())[:300]
        if address:
            raise InputError(
                f"{key}: cannot join {address}: {reason}; {_how_to_join(reason, key)}"
            ) from None
        raise InputError(
            f"Ray cannot be started on this machine: {reason}; {_how_to_start(error)}"
        ) from None
    try:
        yield read_capacity(resources)
    finally:
        shut_down()


def _reporting(report: Callable[[str], None] | None) -> contextlib.AbstractContextManager[None]:
    if report is None:
        return contextlib.nullcontext()
    began = time.monotonic()

    def report_wait() -> None:
        report(
            f"ray: has not started after {time.monotonic() - began:.0f} s; the machine may be busy"
        )

    return repeating(report_wait, SILENT_SECONDS)


def _how_to_join(reason: str, key: str) -> str:
    if "Failed to connect" in reason or "uthentication" in reason:
        return (
            "if it requires a token, set RAY_AUTH_MODE=token and store the cluster's token in ~/.ray/auth_token or in "
            "the file at RAY_AUTH_TOKEN_PATH"
        )
    return _allowed_addresses(key)


def _allowed_addresses(key: str) -> str:
    return f"allowed: HOST:PORT of a running cluster, or auto on its nodes; omit {key} to start Ray on this machine"


def _how_to_start(error: Exception) -> str:
    if "AF_UNIX path" in str(error):
        return "set RAY_TMPDIR to a folder with a short path, such as /tmp"
    if isinstance(error, OSError):
        return "set RAY_TMPDIR to a writable folder with free space"
    return "if the machine is busy or short of memory, try again later; Ray's logs are in $RAY_TMPDIR/ray or /tmp/ray"


_forks = {"lead_groups": False}


@contextlib.contextmanager
def _forks_lead_groups() -> Iterator[None]:
    """On Linux, make each process forked within the context lead its own process group.

    Otherwise, a signal that ``timeout`` or a shell sends to the process group would kill Ray's
    processes, and Ray would terminate this process before it could report anything. On other
    systems, Ray needs the group to clean up its processes.
    """
    if sys.platform.startswith("linux"):
        _watch_forks()
        _forks["lead_groups"] = True
    try:
        yield
    finally:
        _forks["lead_groups"] = False


@cache
def _watch_forks() -> None:
    """Register the fork hook once per process; hooks cannot be removed."""
    os.register_at_fork(after_in_child=lambda: os.setpgid(0, 0) if _forks["lead_groups"] else None)


def shut_down() -> None:
    """Shut down Ray while ignoring signals, which would make Ray terminate this process.

    ``ray.shutdown`` resets SIGTERM to its default action, so this function repeatedly sets it to be
    ignored.
    """
    import ray

    with undisturbed(), ThreadPoolExecutor(1) as aside:
        shutdown = aside.submit(ray.shutdown)
        while in_main_thread() and not shutdown.done():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(RESET_SECONDS)
        shutdown.result()


def on_this_node() -> Any:
    """Return a strategy that schedules actors on this node, where they survive the loss of other nodes."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def head_address() -> str:
    """Return the HOST:PORT address of the cluster's head."""
    import ray

    address: str = ray.get_runtime_context().gcs_address
    return address


def ray_job() -> str | None:
    """Return the job's submission ID if this process was started as a Ray job, otherwise None."""
    settings = os.environ.get(JOB_VARIABLE)
    if settings is None:
        return None
    metadata = json.loads(settings).get("metadata", {})
    return str(metadata.get("job_submission_id", "ray-job"))


def _check_address(address: str, key: str) -> None:
    """Raise InputError if nothing is listening at a HOST:PORT address; Ray would retry silently for minutes."""
    host, colon, port = address.rpartition("//")[2].rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise InputError(
            f"{key}: no Ray cluster at {address}: {error}; {_allowed_addresses(key)}"
        ) from None


def protect_token(*, may_make: bool) -> None:
    """Make Ray's token file readable only by this user.

    If ``may_make`` is True, create a missing token, because Ray would create a world-readable one.
    Do nothing if environment variables set a token or another token file, or disable tokens.
    """
    mode = os.environ.get("RAY_AUTH_MODE", "token")
    if mode.lower() != "token":
        return
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"):
        return
    path = Path.home() / ".ray" / "auth_token"
    with contextlib.suppress(OSError):
        if may_make:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                descriptor = os.open(path, flags, 0o600)
                with os.fdopen(descriptor, "w") as file:
                    token = secrets.token_hex(TOKEN_BYTES)
                    file.write(token)
        permissions = path.stat().st_mode
        if permissions & 0o077:  # written by Ray itself or by `ray get-auth-token`
            path.chmod(0o600)
