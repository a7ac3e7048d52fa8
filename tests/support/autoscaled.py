"""A local cluster whose nodes Ray's own autoscaler adds and removes."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml
from ray.util import get_node_ip_address

from support.paths import TESTS

HEAD_ID = "f" * 51 + "00000"  # by which the provider recognizes the head
PROVIDER = "support.clouds.PoorCloud"
START_SECONDS = 60
COMMANDS = (
    *("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands"),
    *(
        "head_start_ray_commands",
        "worker_start_ray_commands",
        "cluster_synced_files",
        "rsync_exclude",
        "rsync_filter",
    ),
)


@contextlib.contextmanager
def autoscaled(
    folder: Path, node_types: Mapping[str, Any], idle_seconds: float = 6, launch_seconds: float = 0
) -> Iterator[tuple[str, Path]]:
    """Yield the address of a head without CPUs, and the file of its autoscaler.

    ``node_types`` describes the workers as in a file for `ray up`. A launch takes ``launch_seconds``; launches of types
    whose ``node_config`` contains ``spot`` fail.
    """
    port = _free_port()
    host = get_node_ip_address()
    address = f"{host}:{port}"
    config = folder / "autoscaler.yaml"
    values = _config(address, node_types, idle_seconds)
    values["provider"]["launch_seconds"] = launch_seconds
    config.write_text(yaml.safe_dump(values))
    environment = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": "1",
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    command = [
        str(Path(sys.executable).with_name("ray")),
        "start",
        "--head",
        "--block",
        f"--port={port}",
    ]
    command += [f"--node-ip-address={host}", "--num-cpus=0", f"--autoscaling-config={config}"]
    # The path is short because a socket's path has at most 107 characters.
    with (
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as temporary,
        (folder / "head.log").open("w") as log,
    ):
        command += ["--include-dashboard=false", f"--temp-dir={temporary}"]
        head = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            _wait_for(host, port, head, folder / "head.log")
            yield address, config
        finally:
            _end(head)


def _config(address: str, node_types: Mapping[str, Any], idle_seconds: float) -> dict[str, Any]:
    head = {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
    most = sum(kind["max_workers"] for kind in node_types.values())
    return {
        "cluster_name": "on-this-machine",
        "max_workers": most,
        "idle_timeout_minutes": idle_seconds / 60,
        "upscaling_speed": 100,
        "provider": {
            "type": "external",
            "module": PROVIDER,
            "gcs_address": address,
            "head_node_id": HEAD_ID,
            "launch_multiple": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        **{key: [] for key in COMMANDS},
        "file_mounts": {},
        "auth": {},
        "head_node_type": "ray.head.default",
        "available_node_types": {"ray.head.default": head}
        | {
            name: {"node_config": {}, "min_workers": 0, **kind} for name, kind in node_types.items()
        },
    }


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _wait_for(host: str, port: int, head: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        assert head.poll() is None, log.read_text()
        with contextlib.suppress(OSError):
            socket.create_connection((host, port), timeout=1).close()
            return
        time.sleep(0.2)
    raise AssertionError(log.read_text())


def _end(head: "subprocess.Popen[bytes]") -> None:
    """Stop the head and all processes that it started, including the nodes."""
    with contextlib.suppress(psutil.NoSuchProcess):
        below = psutil.Process(head.pid).children(recursive=True)
        head.send_signal(signal.SIGKILL)
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(below, timeout=10)
    head.wait()
