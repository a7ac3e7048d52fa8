"""Exact neighbors by shards on two nodes, against one process of faiss on the same two cores.

The data is one million float32 unit vectors of width 384, whose coordinates' variances fall as 1, 1/2, 1/3 and so on,
roughly like those of embeddings. 102,400 of them are the queries, in 25 blocks of 4,096; k is 16. faiss is one process
with two threads, which searches an IndexFlatIP for the 16 nearest of all vectors. raysweep uses two nodes of one CPU
each (``ray.cluster_utils.Cluster``) with a shard on each, and a coordinator, as in prepare. Of two classes, it finds
the 16 nearest in the query's own and the 16 nearest in the other, ranked in double precision, ties to the lower id.
Both write their results. They take turns, each with an eighth of the queries.

Startup and reading the vectors are excluded on both sides, and reported in separate rows. Memory is the sum of
proportional set sizes of a node's workers (its shard, merges and, on one node, the coordinator), without Ray's own
processes and the mapped file that the vectors are read from: the maximum, sampled once a second.

Then, 1, 3 and 7 shards also search the first block of queries, and the results are compared byte by byte. The inverted
file searches all vectors for the neighbors of all vectors, or with ``--quick``, of the queries.
"""

import argparse
import contextlib
import itertools
import logging
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa

from benchmarks import measure, peers
from benchmarks.peers import Peer, Turns
from raysweep.cluster.resources import Request
from raysweep.data import inverted_file
from raysweep.data.artifacts import Artifact
from raysweep.data.neighbors import NeighborSearch, VectorFile
from raysweep.data.shards import ShardSet
from raysweep.prepare import neighbor_shards
from raysweep.prepare.neighbor_shards import Cells, SearchJob

WIDTH = 384
K = 16
ROWS_AT_ONCE = 65536
ONE_CPU = Request(1, 0, 2)
QUARTER = Request(0.25, 0, 8)  # so that seven shards fit on two CPUs
SEED = 0
VECTORS = "vectors.npy"


@dataclass(frozen=True)
class Size:
    """The number of vectors to search, and of queries among them, in turns.

    The first block of queries is also searched by other numbers of shards, and the inverted file searches for ``inverted``.
    """

    vectors: int
    queries: int
    turns: int
    inverted: int

    @property
    def queries_of_block(self) -> int:
        """The number of queries that prepare searches for at once."""
        return SearchJob(_no_vectors, self.vectors, NeighborSearch(K)).num_queries

    @property
    def parts(self) -> list[tuple[int, int]]:
        """The queries of each turn in complete blocks: the first, and the one after the last."""
        bounds = (
            np.linspace(0, self.queries // self.queries_of_block, self.turns + 1)
            .astype(int)
            .tolist()
        )
        return [
            (first * self.queries_of_block, last * self.queries_of_block)
            for first, last in itertools.pairwise(bounds)
        ]


def _no_vectors() -> VectorFile:
    raise AssertionError("only the sizes of this job are of interest")


def main() -> None:
    arguments = _arguments()
    with measure.workplace() as temporary:
        machine = measure.machine()
        figures = _run(arguments, temporary)
    measure.finish("neighbors", figures, machine, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.neighbors", __doc__)
    parser.add_argument(
        "--vectors", type=int, help="how many to search in; 1000000, with --quick 80000"
    )
    parser.add_argument(
        "--queries", type=int, help="how many to search for; 102400, with --quick 8192"
    )
    parser.add_argument(
        "--turns", type=int, help="parts that the queries are searched in; 8, with --quick 2"
    )
    arguments = parser.parse_args()
    quick = arguments.quick
    arguments.vectors = arguments.vectors or (80_000 if quick else 1_000_000)
    arguments.queries = arguments.queries or (8192 if quick else 102_400)
    arguments.turns = arguments.turns or (2 if quick else 8)
    if arguments.queries > arguments.vectors:
        parser.error("--queries is larger than --vectors; allowed: at most as many")
    return arguments


def _run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    inverted = arguments.queries if arguments.quick else arguments.vectors
    size = Size(arguments.vectors, arguments.queries, arguments.turns, inverted)
    peers.apart(make_vectors, folder, size.vectors)
    bare = Peer("one process of faiss", with_faiss, folder, size)
    ours = Peer("shards on 2 nodes", with_shards, folder, size)
    report = peers.side_by_side([bare, ours], patient=arguments.patient)
    figures = _compared(bare, ours, size)
    _show(figures, size, report)
    return figures


def make_vectors(folder: Path, count: int) -> None:
    """Write the vectors and their labels."""
    rng = np.random.default_rng(SEED)
    ranks = np.arange(1, WIDTH + 1, dtype=np.float32)
    deviations = 1 / np.sqrt(ranks)
    shape = (count, WIDTH)
    file = np.lib.format.open_memmap(folder / VECTORS, "w+", np.float32, shape)
    for start in range(0, count, ROWS_AT_ONCE):
        num_rows = min(ROWS_AT_ONCE, count - start)
        rows = rng.standard_normal((num_rows, WIDTH), dtype=np.float32)
        rows *= deviations
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        file[start : start + num_rows] = rows
    file.flush()
    labels = rng.integers(0, 2, count)
    np.save(folder / "labels.npy", labels)


def open_vectors(folder: Path) -> VectorFile:
    """Return all vectors, each with its own text."""
    labels = np.load(folder / "labels.npy")
    rows = np.arange(len(labels), dtype=np.int32)
    return VectorFile(np.load(folder / VECTORS, mmap_mode="r"), rows, labels, rows)


def with_faiss(turns: Turns, folder: Path, size: Size) -> dict[str, Any]:
    """Return the seconds to read the vectors into an index, and the ids (queries, k) that it finds."""
    began = time.perf_counter()
    import faiss

    faiss.omp_set_num_threads(2)
    vectors = np.load(folder / VECTORS)
    index = faiss.IndexFlatIP(WIDTH)
    index.add(vectors)
    ready = time.perf_counter() - began
    index.search(vectors[:64], K)
    shape = (size.queries, K)
    ids = np.lib.format.open_memmap(folder / "faiss.npy", "w+", np.int64, shape)
    turns.begin()
    for start, stop in size.parts:
        _, ids[start:stop] = index.search(vectors[start:stop], K)
        ids.flush()
        turns.rest(stop - start)
    turns.end()
    return {"start_up_seconds": ready, "ids": np.asarray(ids[: size.queries_of_block])}


def with_shards(turns: Turns, folder: Path, size: Size) -> dict[str, Any]:
    """Return the same for shards, their memory, and the results of other numbers of shards and of the inverted file."""
    import ray

    job = SearchJob(partial(open_vectors, folder), size.vectors, NeighborSearch(K))
    with _two_nodes():
        began = time.perf_counter()
        coordinator: Any = ray.remote(Coordinator).options(num_cpus=0).remote(job)
        nodes = ray.get(coordinator.open.remote(2, ONE_CPU))
        ready = time.perf_counter() - began
        ray.get(coordinator.search.remote(0, size.queries_of_block, folder / "warm"))
        turns.begin()
        with NodeMemory(nodes, VECTORS) as memory:
            for start, stop in size.parts:
                ray.get(coordinator.search.remote(start, stop, folder / f"ours-{start}"))
                turns.rest(stop - start)
        turns.end()
        found = {
            num_shards: _found_by(num_shards, job, coordinator, folder, size)
            for num_shards in (2, 1, 3, 7)
        }
        ray.kill(coordinator)
        inverted = _inverted(job, folder, size)
    same = {number: _same_bytes(found[2], other) for number, other in found.items()}
    ids, cosines = found[2]
    in_turns, _ = _stored(folder / "ours-0", 0)
    return {
        "start_up_seconds": ready,
        "peak_memory_of_a_node": sorted(memory.peaks.values()),
        "same_bytes": same,
        "same_as_in_turns": bool((ids == in_turns).all()),
        "ids": nearest_of_all(ids, cosines),
        "inverted_file": inverted,
    }


class Coordinator:
    """Searches like prepare's coordinator: opens shards, and has their answers merged and stored."""

    def __init__(self, job: SearchJob) -> None:
        self.job = job
        self.shards: Any = None

    def open(self, num_shards: int, request: Request) -> dict[int, str]:
        """Replace the shards and wait for them. Return the node of each process, this one included."""
        import ray

        if self.shards is not None:
            self.shards.close()
        self.shards = neighbor_shards.ShardActors(self.job, num_shards, request)
        places = ray.get([actor.__ray_call__.remote(_load) for actor in self.shards.actors])
        return dict([*places, _place(self)])

    def search(self, start: int, stop: int, folder: Path) -> None:
        """Store the neighbors of the rows ``start`` to ``stop``, in complete blocks."""
        num_queries = self.job.num_queries
        blocks = range(start // num_queries, -(-stop // num_queries))
        into = ShardSet(Artifact(str(folder.parent), folder.name), len(blocks) + blocks.start)
        for _ in self.shards.store(blocks, into):
            pass

    def cells(self) -> dict[str, float]:
        """Return the properties of the inverted file."""
        return neighbor_shards.describe_cells(self.job, self.shards)


def _load(actor: Any) -> tuple[int, str]:
    """Load an actor's shard, and return its process and its node."""
    _ = actor.shard
    return _place(actor)


def _place(actor: Any) -> tuple[int, str]:
    """Return the process and the node of an actor."""
    import ray

    return os.getpid(), ray.get_runtime_context().get_node_id()


@contextlib.contextmanager
def _two_nodes() -> Iterator[None]:
    """Start a cluster of two nodes of one CPU each."""
    import ray
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 300 * measure.MIB}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        cluster.add_node(**node)
        ray.init(address=cluster.address, logging_level=logging.ERROR, log_to_driver=False)
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def _found_by(
    num_shards: int, job: SearchJob, coordinator: Any, folder: Path, size: Size
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return ids and cosines of the first block of queries by this number of shards."""
    import ray

    to = folder / f"by-{num_shards}"
    if num_shards != 2:
        ray.get(coordinator.open.remote(num_shards, QUARTER))
    ray.get(coordinator.search.remote(0, size.queries_of_block, to))
    return _stored(to, 0)


def _stored(folder: Path, number: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return the ids and cosines of one block."""
    (file,) = folder.glob(f"{number:05}-of-*.arrow")
    batch = pa.ipc.open_file(file).get_batch(0)
    return batch.column("ids").to_numpy_ndarray(), batch.column("cosines").to_numpy_ndarray()


def _inverted(job: SearchJob, folder: Path, size: Size) -> dict[str, Any]:
    """Return the inverted file's seconds to start its shards, seconds of the search, and its recall."""
    import ray

    kept = ShardSet(Artifact(str(folder), "centroids"), 1)
    cells = Cells(SEED, inverted_file.num_probes(size.vectors), kept)
    job = SearchJob(job.open_vectors, job.num_rows, job.search, cells)
    coordinator: Any = ray.remote(Coordinator).options(num_cpus=0).remote(job)
    began = time.perf_counter()
    nodes = ray.get(coordinator.open.remote(2, ONE_CPU))
    ready = time.perf_counter()
    with NodeMemory(nodes, VECTORS) as memory:
        ray.get(coordinator.search.remote(0, size.inverted, folder / "inverted"))
    ended = time.perf_counter()
    known = ray.get(coordinator.cells.remote())
    peaks = sorted(memory.peaks.values())
    return {
        "start_up_seconds": ready - began,
        "seconds": ended - ready,
        "queries": size.inverted,
        "queries_per_second": size.inverted / (ended - ready),
        "peak_memory_of_a_node": peaks,
        **known,
    }


def _same_bytes(one: Sequence[npt.NDArray[Any]], other: Sequence[npt.NDArray[Any]]) -> bool:
    return all(left.tobytes() == right.tobytes() for left, right in zip(one, other, strict=True))


def nearest_of_all(
    ids: npt.NDArray[np.int32], cosines: npt.NDArray[np.float32]
) -> npt.NDArray[np.int32]:
    """Return the k nearest (m, k) of either slot's (m, 2, k)."""
    flat_ids = ids.reshape(len(ids), -1)
    flat_cosines = cosines.reshape(len(ids), -1)
    order = np.lexsort((flat_ids, -flat_cosines), axis=1)[:, :K]
    return np.take_along_axis(flat_ids, order, axis=1)


class NodeMemory(measure.Sampled):
    """The peak memory of the workers on each node, by its id; ``nodes`` are those of some workers, by process."""

    def __init__(self, nodes: dict[int, str], left_out: str) -> None:
        super().__init__(seconds=1)
        self._raylets = {psutil.Process(pid).ppid(): node for pid, node in nodes.items()}
        self._left_out = left_out
        self.peaks: dict[str, int] = defaultdict(int)

    def sample(self) -> None:
        for raylet, node in self._raylets.items():
            workers = filter(_has_worked, psutil.Process(raylet).children())
            with contextlib.suppress(OSError):  # one of them ended meanwhile
                total = sum(proportional(worker.pid, self._left_out) for worker in workers)
                self.peaks[node] = max(self.peaks[node], total)


def _has_worked(process: psutil.Process) -> bool:
    """Return whether the process is a Ray worker that runs or ran something: shards, the coordinator, or merges."""
    with contextlib.suppress(psutil.NoSuchProcess):
        title = " ".join(process.cmdline()).strip()
        return title.startswith("ray::") and title != "ray::IDLE"
    return False


def proportional(pid: int, left_out: str) -> int:
    """Return a process's proportional set size in bytes, without mappings of the file ``left_out``."""
    total = 0
    counts = True
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            counts = not line.endswith(left_out)
        elif counts and line.startswith("Pss:"):
            total += int(line.split()[1]) << 10
    return total


def _compared(bare: Peer, ours: Peer, size: Size) -> dict[str, Any]:
    """Return the line of JSON."""
    of_faiss: npt.NDArray[np.int64] = bare.result.pop("ids")
    of_ours: npt.NDArray[np.int32] = ours.result.pop("ids")
    # faiss finds the query itself too, and we do not.
    pairs = list(zip(of_faiss.tolist(), of_ours.tolist(), strict=True))
    wanted = [set(theirs) - {number} for number, (theirs, _) in enumerate(pairs)]
    agreeing = sum(len(near & set(own)) for near, (_, own) in zip(wanted, pairs, strict=True))
    rows = {peer.name: {**peer.figures(), **peer.result} for peer in (bare, ours)}
    seconds = [
        sum(turn.seconds for turn in peer.turns) + peer.result["start_up_seconds"]
        for peer in (bare, ours)
    ]
    return {
        "ratio": ours.rate / bare.rate,
        "ratio_of": [ours.name, bare.name],
        "ratio_with_start_up": seconds[0] / seconds[1],
        "vectors": size.vectors,
        "queries": size.queries,
        "width": WIDTH,
        "k": K,
        "agreement_with_faiss": agreeing / sum(map(len, wanted)),
        "rounds": bare.counted,
        "rows": rows,
    }


def _show(figures: dict[str, Any], size: Size, report: str) -> None:
    rows = list(figures["rows"].values())
    ours = rows[1]
    inverted = ours["inverted_file"]
    print(
        f"{size.queries:,} queries in {size.vectors:,} vectors of width {WIDTH}, k = {K}, {size.turns} turns each\n"
    )
    mib = [f"{peak / measure.MIB:,.0f}" for peak in ours["peak_memory_of_a_node"]]
    peak_mib = f"{rows[0]['peak_memory_bytes'] / measure.MIB:,.0f}"
    rates = [row["examples_per_second"] for row in rows]
    shown = [
        ["queries/s", *(f"{rate:,.0f}" for rate in rates), f"{figures['ratio']:.2f}"],
        ["seconds for all queries", *(f"{size.queries / rate:,.1f}" for rate in rates), ""],
        [
            "once: read the vectors, start, s",
            *(f"{row['start_up_seconds']:.1f}" for row in rows),
            "",
        ],
        ["that included", "", "", f"{figures['ratio_with_start_up']:.2f}"],
        ["peak MiB; of ours on each node", peak_mib, " and ".join(mib), ""],
    ]
    print(measure.table(("", *figures["rows"], "ratio"), shown))
    same = ", ".join(
        str(number) for number, is_same in sorted(ours["same_bytes"].items()) if is_same
    )
    print(report)
    print(
        f"\nthe same bytes for {size.queries_of_block:,} queries: {same} shards, of 1, 2, 3 and 7"
    )
    print(f"neighbors that faiss finds too: {figures['agreement_with_faiss']:.4%}")
    cells = f"{inverted['num_probes']} of {inverted['num_cells']} cells probed"
    recall = f"recall {inverted['recall']:.4f} on {inverted['recall_queries']} queries"
    rate = f"{inverted['seconds']:,.1f} s ({inverted['queries_per_second']:,.0f} queries/s)"
    start_up = f"after {inverted['start_up_seconds']:,.1f} s of training and start"
    print(f"inverted file, {inverted['queries']:,} queries: {rate} {start_up}; {cells}, {recall}")
    print(f"\nratio: {figures['ratio']:.2f} ({' over '.join(figures['ratio_of'])}, start-up apart)")


if __name__ == "__main__":
    from benchmarks import neighbors

    neighbors.main()
