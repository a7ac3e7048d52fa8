"""Neighbor search over shards of the vectors, in actors or in this process.

Shards take turns reading blocks of queries, and every shard searches every block. Tasks merge the results and store
them as shards of the artifact. This process handles only object references and reports.
"""

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from raysweep.cluster.resources import Capacity, Request
from raysweep.data import inverted_file
from raysweep.data.artifacts import Artifact
from raysweep.data.dataset import Sentences
from raysweep.data.inverted_file import Quantizer
from raysweep.data.neighbor_shard import NeighborShard
from raysweep.data.neighbors import LabeledVectors, Neighbors, NeighborSearch, VectorFile, merge
from raysweep.data.shards import Report, Shard, ShardSet, open_array

# with fewer rows, a shard is not worth the 1-2 s that its actor takes to start
MIN_ROWS_PER_SHARD = 2**15
FEW_ROWS = 2**17
# queries per block for up to FEW_ROWS rows; small enough to keep all workers in a small cluster busy
QUERIES_OF_FEW = 2048
QUERIES = 4096  # per block; faiss processes this many at once, so larger blocks are no faster
QUERIES_IN_CELLS = 16384  # per block in a search of an inverted file
BLOCKS_AHEAD = 2  # blocks in flight in addition to the one being merged
RESTARTS = 3  # per shard, if its process or node dies
# how long to wait for another worker before searching with those that have joined
JOIN_SECONDS = 60.0
QUIET_JOIN_SECONDS = 5.0  # how long to wait for workers before reporting missing ones

OpenVectors = Callable[[], VectorFile]
"""Opens the vectors on the calling worker, which reads only the rows that it needs."""


@dataclass(frozen=True)
class TrainVectors:
    """Callable that opens the embeddings, labels and duplicate groups of the training sentences."""

    sentences: Artifact
    encoded: Artifact

    def __call__(self) -> VectorFile:
        opened = Sentences(self.sentences.folder)
        train = opened.ids("train")
        return VectorFile(
            open_array(self.encoded.folder, "embeddings"),
            train,
            np.asarray(opened.labels[train]),
            np.asarray(opened.duplicate_groups[train]),
        )


class Cells(NamedTuple):
    """The cells of an inverted file. ``num_probes`` is the number of cells searched per query.

    The centroids are stored in ``shards`` for later runs and for restarted actors. They are not constructor arguments,
    because Ray 2.60 may lose these when it restarts an actor (Ray issue 53727).
    """

    seed: int
    num_probes: int
    shards: ShardSet

    def train(self, open_vectors: OpenVectors, threads: int | None = None) -> None:
        """Train and store the centroids unless they are already stored."""
        if not self.shards.read_reports():
            centroids = inverted_file.train(open_vectors(), self.seed, threads)
            self.shards.write(0, Shard({"centroids": centroids}, {}))

    def read_centroids(self) -> npt.NDArray[np.float32]:
        """Return the trained centroids, (cells, d)."""
        centroids: npt.NDArray[np.float32] = (
            self.shards.read(0).column("centroids").to_numpy_ndarray()
        )
        return centroids


@dataclass(frozen=True)
class SearchJob:
    """A neighbor search over ``num_rows`` vectors. ``cells`` is None for an exact search."""

    open_vectors: OpenVectors
    num_rows: int
    search: NeighborSearch
    cells: Cells | None = None

    @property
    def num_queries(self) -> int:
        """Return the number of queries per block.

        It does not depend on the number of shards, so neither do the stored results.
        """
        if self.cells:
            return QUERIES_IN_CELLS
        return QUERIES_OF_FEW if self.num_rows <= FEW_ROWS else QUERIES

    def rows(self, number: int) -> list[int]:
        """Return the start and stop (exclusive) of a query block."""
        start = number * self.num_queries
        return [start, min(start + self.num_queries, self.num_rows)]


def as_shard(neighbors: Neighbors, rows: Sequence[int]) -> Shard:
    """Return the artifact's shard for ``rows``, (start, stop), with stop exclusive.

    Its report counts the rows with at least one neighbor.
    """
    has_neighbor = (neighbors.ids >= 0).any(axis=(1, 2))
    return Shard(
        neighbors.columns, {"num_with_neighbors": int(has_neighbor.sum()), "rows": list(rows)}
    )


class ShardWorker:
    """A shard of the vectors, from row ``start`` to row ``stop`` (exclusive).

    The job's cells must already be trained.
    """

    def __init__(self, job: SearchJob, start: int, stop: int, threads: int | None) -> None:
        self.job = job
        self.bounds = start, stop
        self.threads = threads

    @cached_property
    def source(self) -> VectorFile:
        return self.job.open_vectors()

    @cached_property
    def quantizer(self) -> Quantizer:
        assert self.job.cells is not None
        return Quantizer(self.job.cells.read_centroids(), self.threads)

    @cached_property
    def shard(self) -> NeighborShard:
        """Return the shard, loaded on first use so that the actor starts quickly."""
        shard = NeighborShard(self.source, np.arange(*self.bounds), self.threads)
        if self.job.cells:
            shard.put_into_cells(self.quantizer.nearest_one)
        return shard

    def read(self, rows: npt.NDArray[np.integer]) -> LabeledVectors:
        """Return the vectors of the given rows, which may belong to any shard."""
        return self.source.read(rows)

    def probes(self, queries: LabeledVectors) -> npt.NDArray[np.int32]:
        """Return the cells that each query probes, which are the same for every shard."""
        assert self.job.cells is not None
        return self.quantizer.nearest(queries.vectors, self.job.cells.num_probes)

    def search(self, queries: LabeledVectors, probes: npt.NDArray[np.int32] | None) -> Neighbors:
        return self.shard.search(queries, self.job.search, probes)


class Shards(Protocol):
    """Interface to all shards of a search."""

    def search(self, rows: npt.NDArray[np.integer], *, exact: bool = False) -> Neighbors:
        """Return the neighbors of the rows. If ``exact``, search all cells of an inverted file."""
        ...

    def store(self, numbers: Iterable[int], target: ShardSet) -> Iterator[Report]:
        """Store the neighbors of each block's rows as a shard of ``target``, and yield the shards' reports."""
        ...


class ShardHere:
    """A single shard with all rows, in this process."""

    def __init__(self, job: SearchJob) -> None:
        if job.cells:
            job.cells.train(job.open_vectors)
        self._job = job
        self._worker = ShardWorker(job, 0, job.num_rows, None)

    def search(self, rows: npt.NDArray[np.integer], *, exact: bool = False) -> Neighbors:
        queries = self._worker.read(rows)
        probes = self._worker.probes(queries) if self._job.cells and not exact else None
        return merge([self._worker.search(queries, probes)], self._job.search)

    def store(self, numbers: Iterable[int], target: ShardSet) -> Iterator[Report]:
        for number in numbers:
            rows = self._job.rows(number)
            neighbors = self.search(np.arange(*rows))
            yield target.write(number, as_shard(neighbors, rows))


class ShardActors:
    """Shards of about equal size, each in its own actor. The actors are spread across the nodes."""

    def __init__(self, job: SearchJob, num_shards: int, request: Request) -> None:
        import ray

        self._job = job
        self._request = request
        resources: dict[str, Any] = {
            "num_cpus": request.cpus,
            "num_gpus": request.gpus,
            "memory": request.memory_bytes or None,
            "scheduling_strategy": "SPREAD",
        }
        if job.cells:
            train: Any = ray.remote(Cells.train).options(**resources)
            ray.get(train.remote(job.cells, job.open_vectors, request.threads))
        restarts = {"max_restarts": RESTARTS, "max_task_retries": RESTARTS}
        actor: Any = ray.remote(ShardWorker).options(**resources, **restarts)
        bounds = np.linspace(0, job.num_rows, num_shards + 1).astype(int).tolist()
        self.actors = []
        for start, stop in itertools.pairwise(bounds):
            self.actors.append(actor.remote(job, start, stop, request.threads))

    def count_joined(self, report: Callable[[str], None]) -> int:
        """Wait for the actors to start, and return how many have started.

        The wait ends when all have started, or when at least one has and no other starts within JOIN_SECONDS.
        ``report`` is called regularly with a message about missing workers. The message is empty until the first worker
        starts, so that a stage without workers is detected as stalled. The last message is also empty.
        """
        import ray

        num_shards = len(self.actors)
        starting = [actor.__ray_ready__.remote() for actor in self.actors]
        joined_at = time.monotonic()
        while starting:
            joined, starting = ray.wait(
                starting, num_returns=len(starting), timeout=QUIET_JOIN_SECONDS
            )
            now = time.monotonic()
            num_joined = num_shards - len(starting)
            if joined or not num_joined:
                joined_at = now
            elif now - joined_at >= JOIN_SECONDS:
                break
            missing = ""
            if num_joined and starting:
                gpus = f", GPUs per worker={self._request.gpus:g}" if self._request.gpus else ""
                missing = (
                    f"neighbors: {num_joined} of {num_shards} search workers have started; unless another joins within "
                    f"{JOIN_SECONDS:g} s, the search uses fewer, larger shards (missing workers={len(starting)}, "
                    f"CPUs per worker={self._request.cpus:g}{gpus})"
                )
            report(missing)
        report("")
        return num_shards - len(starting)

    def search(self, rows: npt.NDArray[np.integer], *, exact: bool = False) -> Neighbors:
        import ray

        queries, probes = self._read(0, rows, exact=exact)
        return merge(ray.get(self._search_all(queries, probes)), self._job.search)

    def store(self, numbers: Iterable[int], target: ShardSet) -> Iterator[Report]:
        import ray

        for report in _delay(self._search_blocks(numbers, target), BLOCKS_AHEAD):
            yield ray.get(report)

    def close(self) -> None:
        import ray

        for actor in self.actors:
            ray.kill(actor)

    def _search_blocks(self, numbers: Iterable[int], target: ShardSet) -> Iterator[Any]:
        """Yield a reference to the report of each block."""
        import ray

        # These tasks request no CPU, because the shards may hold all CPUs during the search.
        merge_and_store: Any = ray.remote(_merge_and_store).options(
            num_cpus=0, scheduling_strategy="SPREAD"
        )
        # Read the next block before the current one is searched, so that no shard has to wait for it.
        for number, rows, queries, probes in _delay(self._read_blocks(numbers), 1):
            neighbors = self._search_all(queries, probes)
            yield merge_and_store.remote(self._job.search, target, number, rows, *neighbors)

    def _read_blocks(self, numbers: Iterable[int]) -> Iterator[tuple[int, list[int], Any, Any]]:
        """Yield each block's number, its rows and the references returned by :meth:`_read`."""
        for number in numbers:
            rows = self._job.rows(number)
            queries, probes = self._read(number, np.arange(*rows))
            yield number, rows, queries, probes

    def _read(
        self, number: int, rows: npt.NDArray[np.integer], *, exact: bool = False
    ) -> tuple[Any, Any]:
        """Return references to the rows' vectors and to the cells that they probe."""
        actor = self.actors[number % len(self.actors)]
        queries = actor.read.remote(rows)
        if exact or not self._job.cells:
            return queries, None
        return queries, actor.probes.remote(queries)

    def _search_all(self, queries: Any, probes: Any) -> list[Any]:
        return [actor.search.remote(queries, probes) for actor in self.actors]


def _merge_and_store(
    search: NeighborSearch, target: ShardSet, number: int, rows: list[int], *neighbors: Neighbors
) -> Report:
    return target.write(number, as_shard(merge(neighbors, search), rows))


Fit = Callable[[int], tuple[int, Request]]
"""Returns the number of shards that fit, up to the given maximum, and the resources for each."""


@contextlib.contextmanager
def open_shards(
    job: SearchJob, fit: Fit, max_shards: int, report: Callable[[str], None]
) -> Iterator[Shards]:
    """Start at most ``max_shards`` shards in actors, and kill the actors when the context exits.

    Each block of queries needs all shards at the same time. If only some of the actors start, all are killed and the
    vectors are divided among fewer actors. ``report`` is as in :meth:`ShardActors.count_joined`.
    """
    num_shards, request = fit(max_shards)
    while True:
        shards = ShardActors(job, num_shards, request)
        try:
            num_joined = shards.count_joined(report)
            if num_joined == num_shards:
                yield shards
                return
        finally:
            shards.close()
        num_shards, request = fit(num_joined)


def num_shards(num_rows: int, request: Request) -> int:
    """Return the number of workers that fit on the cluster, or fewer if the shards would be too small."""
    return max(1, min(request.count, num_rows // MIN_ROWS_PER_SHARD))


def describe_cells(job: SearchJob, shards: Shards) -> dict[str, float]:
    """Return an inverted file's number of cells and its recall on a sample of rows, or {} for an exact search."""
    if not job.cells:
        return {}
    rows = inverted_file.sample_rows(job.num_rows, inverted_file.RECALL_QUERIES, job.cells.seed)
    neighbors = shards.search(rows)
    exact_neighbors = shards.search(rows, exact=True)
    return {
        "recall": round(inverted_file.recall(neighbors, exact_neighbors), 4),
        "recall_queries": len(rows),
        "num_cells": inverted_file.num_cells(job.num_rows),
        "num_probes": job.cells.num_probes,
    }


def request_for(capacity: Capacity, *, in_cells: bool) -> Request:
    """Return the resources for one shard: a GPU if the workers' faiss finds one, otherwise CPUs.

    Inverted files are always searched on CPUs.
    """
    if in_cells or capacity.gpus < 1:
        return capacity.processors()
    import ray

    # The faiss package on a GPU node may differ from the one on this node.
    count_gpus: Any = ray.remote(_count_faiss_gpus).options(num_cpus=0, num_gpus=1)
    return capacity.encoders() if ray.get(count_gpus.remote()) else capacity.processors()


def _count_faiss_gpus() -> int:
    import faiss

    return int(faiss.get_num_gpus())


def _delay(items: Iterable[Any], count: int) -> Iterator[Any]:
    """Yield the items, reading ``count`` items ahead."""
    waiting: deque[Any] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > count:
            yield waiting.popleft()
    yield from waiting
