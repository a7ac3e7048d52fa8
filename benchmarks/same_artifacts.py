"""Check that artifacts are identical for any number of workers and nodes, and after kills in the middle of stages.

One node of one CPU prepares the demo, and 110,000 generated sentences with a random BERT of one block and width 64, so that
each stage has several shards. Both are then prepared by three and four nodes of one CPU each
(``ray.cluster_utils.Cluster``), and by one node whose driver is killed (SIGKILL) in the middle of each kind of stage, as
soon as a shard of it exists, and restarted. With ``--location``, such as an S3 URI, three nodes also store there, and a
driver that stores there is killed while it encodes. Artifacts are compared file by file. For each kill, the output states
how much the next attempt reused.

``ratio`` is the share of the cases with identical artifacts; only 1 is good.
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
from raysweep.storage.folder import open_folder

KINDS = ("sentences", "encoded", "neighbors", "examples")
COMMAND = (sys.executable, "-m", "raysweep", "prepare")
NUM_MADE = 110_000
WIDTH = 64
NUM_EXAMPLES = 60_000
POLL_SECONDS = 0.005
LIMIT_SECONDS = 1800.0


def main() -> None:
    arguments = _arguments()
    with measure.workplace() as temporary:
        machine = measure.machine()
        figures = _run(arguments, temporary)
    measure.finish("same_artifacts", figures, machine, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.same_artifacts", __doc__)
    parser.add_argument(
        "--location", help="an empty place in an object store, such as s3://BUCKET/PREFIX"
    )
    return parser.parse_args()


def _run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    rows = _cases(
        "demo", ("demo", "--examples.target=4000"), folder / "demo", ["encoded"], arguments
    )
    if not arguments.quick:
        # not in cells, as where memory is measured
        made = (
            str(_made(folder)),
            "--examples.index=exact",
        )
        rows += _cases("made", made, folder / "made", KINDS, arguments)
    print(measure.table(("case", "same bytes", "found by the next attempt"), rows))
    ratio = sum(bool(row[1]) for row in rows) / len(rows)
    print(f"\nratio: {ratio:.2f} (cases whose artifacts are those of one worker, to the byte)")
    cases = {str(case): {"same": same, "found": found} for case, same, found in rows}
    return {"ratio": ratio, "ratio_of": ["the same artifacts", "all cases"], "cases": cases}


def _made(folder: Path) -> Path:
    """Return the file of a sweep over generated sentences."""
    peers.apart(sweep_memory.make_sentences, folder / "train", NUM_MADE)
    space = folder / "made.yaml"
    encoder = sweep_memory.make_encoder(folder, WIDTH)
    space.write_text(
        sweep_memory.SWEEP.format(
            train=folder / "train", encoder=encoder, target=NUM_EXAMPLES, runs=folder / "runs"
        )
    )
    return space


def _cases(
    name: str,
    space: tuple[str, ...],
    folder: Path,
    kinds: Sequence[str],
    arguments: argparse.Namespace,
) -> list[list[Any]]:
    """Yield each case, whether its artifacts are identical, and how much an attempt after a kill reused."""
    one = str(folder / "one")
    _prepare(space, one)
    expected = _digests(one)
    rows = []

    def note(case: str, place: str, output: str) -> None:
        rows.append([f"{name}: {case}", _digests(place) == expected, _found(output)])

    for num_nodes in [] if arguments.quick else [3, 4]:
        place = str(folder / f"nodes-{num_nodes}")
        with _nodes(num_nodes) as address:
            note(f"{num_nodes} nodes", place, _prepare(space, place, address))
    for kind in kinds:
        place = str(folder / f"killed-{kind}")
        note(_kill(space, place, kind), place, _prepare(space, place))
    if arguments.location:
        place = f"{arguments.location}/{name}/nodes"
        with _nodes(3) as address:
            note("3 nodes, in a bucket", place, _prepare(space, place, address))
        place = f"{arguments.location}/{name}/killed"
        note(f"{_kill(space, place, 'encoded')}, in a bucket", place, _prepare(space, place))
    return rows


def _prepare(space: tuple[str, ...], place: str, address: str | None = None) -> str:
    """Prepare completely and return the output."""
    done = subprocess.run(
        _command(space, place, address), capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    if done.returncode:
        raise SystemExit(f"prepare failed: {done.stderr[-1000:]}")
    return done.stdout + done.stderr


def _command(space: tuple[str, ...], place: str, address: str | None = None) -> list[str]:
    where = f"--resources.address={address}" if address else "--resources.num_cpus=1"
    return [*COMMAND, *space, f"--storage.runs={place}", where]


def _kill(space: tuple[str, ...], place: str, kind: str) -> str:
    """Kill the driver as soon as a shard of this kind exists; return whether that came before the artifact's end."""
    driver = subprocess.Popen(
        _command(space, place),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while driver.poll() is None and not any(
        name.endswith(".arrow") for name in _files(place, kind)
    ):
        time.sleep(POLL_SECONDS)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    time.sleep(5)  # in which Ray's own processes notice, and end
    ended = {
        name.partition("/")[0] for name in _files(place, kind) if name.endswith("/artifact.json")
    }
    begun = {name.partition("/")[0] for name in _files(place, kind)}
    return f"killed {'in' if begun - ended else 'after'} {kind}"


def _found(output: str) -> str:
    """Return what the progress lines report about existing shards."""
    found = re.findall(r"prepare: ([a-z_ ]+): .*?; reused ([\d,]+)", output)
    return ", ".join(f"{count} of {stage}" for stage, count in found) or "-"


def _digests(place: str) -> dict[str, str]:
    artifacts = open_folder(place).within("artifacts")
    names = [name for kind in KINDS for name in _files(place, kind)]
    return {name: hashlib.sha256(artifacts.read([name])[0]).hexdigest() for name in names}


def _files(place: str, kind: str) -> list[str]:
    """Return the names of all files of the artifacts of a kind."""
    names = open_folder(place).within("artifacts").files()
    return sorted(name for name in names if name.startswith(f"{kind}-"))


@contextlib.contextmanager
def _nodes(count: int) -> Iterator[str]:
    """Start a cluster of ``count`` nodes of one CPU each and yield its address."""
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
