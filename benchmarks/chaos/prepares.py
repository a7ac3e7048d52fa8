"""Faults during preparation: workers and nodes are killed. The artifacts must be identical to the byte."""

import hashlib
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.chaos.nodes import Nodes, kill, nodes, workers_below
from benchmarks.chaos.outcomes import Outcome, Setting
from benchmarks.chaos.sweeps import LIMIT_SECONDS, POLL_SECONDS

# for the sweeps of all cases
OPTIONS = [
    "--resources.num_cpus=2",
    "--space.loss=cosine_similarity",
]
NUM_NODES = 3
MOST_DELAY_SECONDS = 10.0


def kill_prepare_workers(setting: Setting) -> Outcome:
    """Send SIGKILL to one of Ray's worker processes on one machine."""
    draw = random.Random("prepare-worker")

    def strike(driver: int) -> bool:
        workers = workers_below(driver)
        if workers:
            kill(draw.choice(workers))
        return bool(workers)

    return _strike_often(setting, "prepare-worker", ["--resources.num_cpus=2"], strike, draw)


def kill_prepare_nodes(setting: Setting) -> Outcome:
    """Kill and replace one of three preparing nodes; the coordinator runs next to the driver, on none of them."""
    draw = random.Random("prepare-node")
    with nodes(NUM_NODES) as cluster:

        def strike(driver: int) -> bool:
            _replace_some_node(cluster, draw)
            return True

        return _strike_often(
            setting, "prepare-node", [f"--resources.address={cluster.address}"], strike, draw
        )


def _replace_some_node(cluster: Nodes, draw: random.Random) -> None:
    cluster.kill_node(draw.choice(cluster.node_ids()))
    cluster.add()


def _strike_often(
    setting: Setting,
    case: str,
    options: list[str],
    strike: Callable[[int], bool],
    draw: random.Random,
) -> Outcome:
    """Prepare ``times`` times, each with a fault at a random moment after the sentences exist."""
    prepare(setting.folder / case / "whole", options)
    expected = _artifacts(setting.folder / case / "whole")
    num_faults = 0
    problems = []
    for number in range(setting.times):
        place = setting.folder / case / str(number)
        output = setting.folder / case / f"{number}.log"
        with output.open("w") as log:
            driver = subprocess.Popen(_command(place, options), stdout=log, stderr=log)
        while driver.poll() is None and not any(place.glob("artifacts/sentences-*/artifact.json")):
            time.sleep(POLL_SECONDS)
        time.sleep(draw.uniform(0, MOST_DELAY_SECONDS))
        if driver.poll() is None:
            num_faults += strike(driver.pid)
        driver.wait(timeout=LIMIT_SECONDS)
        if driver.returncode:
            problems.append(f"prepare ended with {driver.returncode}: {output.read_text()[-300:]}")
        elif _artifacts(place) != expected:
            problems.append("other artifacts")
    return Outcome(max(num_faults, len(problems)), problems)


def prepare(place: Path | str, options: list[str]) -> None:
    subprocess.run(_command(place, options), capture_output=True, check=True, timeout=LIMIT_SECONDS)


def _command(place: Path | str, options: list[str]) -> list[str]:
    return [
        sys.executable,
        "-m",
        "raysweep",
        "prepare",
        "smoke",
        f"--storage.runs={place}",
        *options,
    ]


def digests(folder: Path) -> dict[str, str]:
    """Return the digests of all files in a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def _artifacts(place: Path) -> dict[str, str]:
    """Return the digests of the artifacts, without the locks and leases next to them."""
    return {name: digest for name, digest in digests(place / "artifacts").items() if "/" in name}
