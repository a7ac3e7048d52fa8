"""Prepare by any number of workers and nodes, and killed in the middle of its stages: the same artifacts to the byte.

The demo is prepared by one node of one CPU, and so are 110,000 made sentences by a random BERT of one block and width 64, of
which each stage has several shards. Then both by three and four nodes of one CPU each (``ray.cluster_utils.Cluster``), and
by one node whose driver is killed (SIGKILL) in the middle of each kind of stage, as soon as a shard of it is there, and
begun again. Artifacts are compared file by file. For each kill it is stated how much the next attempt found.

``ratio`` is the share of the cases whose artifacts are the same, of which 1 is the only good value.
"""

import argparse
import contextlib
import hashlib
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import measure, peers, sweep_memory

KINDS = ("sentences", "encoded", "neighbours", "examples")
COMMAND = (sys.executable, "-m", "raysweep", "prepare")
NUM_MADE = 110_000
WIDTH = 64
NUM_EXAMPLES = 60_000
POLL_SECONDS = 0.005
LIMIT_SECONDS = 1800.0


def main() -> None:
    arguments = _arguments()
    with measure.workplace() as temporary:
        found = measure.machine()
        figures = _run(arguments, temporary)
    measure.finish("same_artifacts", figures, found, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.same_artifacts", __doc__)
    return parser.parse_args()


def _run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    rows = _cases("demo", ("demo", "--examples.target=4000"), folder / "demo", ["encoded"], arguments.quick)
    if not arguments.quick:
        made = (str(_made(folder)), "--examples.index=exact")  # not in cells, as where memory is measured
        rows += _cases("made", made, folder / "made", KINDS, arguments.quick)
    print(measure.table(("case", "same bytes", "found by the next attempt"), rows))
    ratio = sum(bool(row[1]) for row in rows) / len(rows)
    print(f"\nratio: {ratio:.2f} (cases whose artifacts are those of one worker, to the byte)")
    cases = {str(case): {"same": same, "found": found} for case, same, found in rows}
    return {"ratio": ratio, "ratio_of": ["the same artifacts", "all cases"], "cases": cases}


def _made(folder: Path) -> Path:
    """The file of a sweep over made sentences."""
    peers.apart(sweep_memory.make_sentences, folder / "train", NUM_MADE)
    space = folder / "made.yaml"
    encoder = sweep_memory.make_encoder(folder, WIDTH)
    space.write_text(
        sweep_memory.SWEEP.format(train=folder / "train", encoder=encoder, target=NUM_EXAMPLES, runs=folder / "runs")
    )
    return space


def _cases(name: str, space: tuple[str, ...], folder: Path, kinds: Sequence[str], quick: bool) -> list[list[Any]]:
    """What was prepared, whether it is the same, and how much an attempt after a kill found."""
    _prepare(space, folder / "one")
    expected = _digests(folder / "one")
    rows = []
    for num_nodes in [] if quick else [3, 4]:
        place = folder / f"nodes-{num_nodes}"
        with _nodes(num_nodes) as address:
            said = _prepare(space, place, address)
        rows.append([f"{name}: {num_nodes} nodes", _digests(place) == expected, _found(said)])
    for kind in kinds:
        place = folder / f"killed-{kind}"
        killed = _kill(space, place, kind)
        said = _prepare(space, place)
        when = "in" if killed else "after"
        rows.append([f"{name}: killed {when} {kind}", _digests(place) == expected, _found(said)])
    return rows


def _prepare(space: tuple[str, ...], place: Path, address: str | None = None) -> str:
    """Prepare to the end, and return what was said."""
    done = subprocess.run(_command(space, place, address), capture_output=True, text=True, timeout=LIMIT_SECONDS)
    if done.returncode:
        raise SystemExit(f"prepare failed: {done.stderr[-1000:]}")
    return done.stdout + done.stderr


def _command(space: tuple[str, ...], place: Path, address: str | None = None) -> list[str]:
    where = f"--resources.address={address}" if address else "--resources.num_cpus=1"
    return [*COMMAND, *space, f"--storage.runs={place}", where]


def _kill(space: tuple[str, ...], place: Path, kind: str) -> bool:
    """Prepare until a shard of this kind is there, and kill the driver. Whether that came before the artifact's end."""
    driver = subprocess.Popen(
        _command(space, place), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    shards = f"artifacts/{kind}-*/**/*.arrow"
    while driver.poll() is None and not any(place.glob(shards)):
        time.sleep(POLL_SECONDS)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    time.sleep(5)  # in which Ray's own processes notice, and end
    return any(not (folder / "artifact.json").is_file() for folder in place.glob(f"artifacts/{kind}-*"))


def _found(said: str) -> str:
    """What the lines of progress say of shards that were there already."""
    found = re.findall(r"prepare: ([a-z_ ]+): .*?; ([\d,]+) were there already", said)
    return ", ".join(f"{count} of {stage}" for stage, count in found) or "-"


def _digests(place: Path) -> dict[str, str]:
    root = place / "artifacts"
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.parent != root]
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@contextlib.contextmanager
def _nodes(count: int) -> Iterator[str]:
    """The address of a cluster of so many nodes of one CPU each."""
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 200 * measure.MIB}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        for _ in range(count - 1):
            cluster.add_node(**node)
        yield cluster.address
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    from benchmarks import same_artifacts

    same_artifacts.main()
