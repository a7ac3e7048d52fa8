"""The search for neighbours spread over shards, each an actor that holds its block of vectors, or one shard in this process.

Blocks of queries go out by reference to all shards at once; what the shards answer is merged as it comes back, in order.
Few blocks are under way at a time, so nothing here grows with the data.
"""

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from raysweep.cluster import Capacity, Request
from raysweep.data import inverted_file
from raysweep.data.artifacts import Artifact, open_array
from raysweep.data.dataset import Sentences
from raysweep.data.inverted_file import Quantizer
from raysweep.data.neighbour_shard import NeighbourShard
from raysweep.data.neighbours import LabelledVectors, Neighbours, Search, VectorFile, merge

LEAST_ROWS_PER_SHARD = 2**15  # a smaller block is not worth the second or two in which an actor starts
MOST_QUERIES = 4096  # that faiss multiplies at once, so that larger blocks gain nothing
MOST_QUERIES_IN_CELLS = 16384  # a cell is multiplied with all queries of a block that probe it
LEAST_QUERIES = 256
MULTIPLICATIONS_PER_BLOCK = 2**40  # of one shard: half a minute of one core, so that progress is seen
BLOCKS_AHEAD = 2  # beyond the one that is merged, so that no shard waits for the next
RESTARTS = 3  # of a shard whose process or node died; it reads its block again

OpenVectors = Callable[[], VectorFile]
"""Opens the vectors on the worker that calls it, so that each reads what it needs from where it is."""


@dataclass(frozen=True)
class TrainVectors:
    """Opens the embeddings of the training sentences: memory maps of two artifacts, which the worker fetches."""

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
    """An inverted file's cells: the seed that they are trained with, and how many of them a query probes."""

    seed: int
    num_probes: int


@dataclass(frozen=True)
class SearchJob:
    """The vectors, what is searched for, and for an inverted file its cells."""

    open_vectors: OpenVectors
    search: Search
    cells: Cells | None = None

    def num_queries(self, num_rows: int, width: int) -> int:
        """How many queries one block has where a shard has so many rows."""
        if self.cells:
            return MOST_QUERIES_IN_CELLS
        return int(np.clip(MULTIPLICATIONS_PER_BLOCK // (num_rows * width), LEAST_QUERIES, MOST_QUERIES))


class ShardWorker:
    """One shard of the rows: the rows ``start`` to ``stop``. ``centroids`` are those of the job's cells."""

    def __init__(
        self, job: SearchJob, start: int, stop: int, threads: int | None, centroids: npt.NDArray[np.float32] | None
    ) -> None:
        self.job = job
        self.shard = NeighbourShard(job.open_vectors(), np.arange(start, stop), threads)
        if centroids is not None:
            self.quantizer = Quantizer(centroids, threads)
            self.shard.put_into_cells(self.quantizer.nearest_one)

    def probes(self, queries: LabelledVectors) -> npt.NDArray[np.int32]:
        """The cells that the queries probe: of any shard the same."""
        assert self.job.cells is not None
        return self.quantizer.nearest(queries.vectors, self.job.cells.num_probes)

    def search(self, queries: LabelledVectors, probes: npt.NDArray[np.int32] | None) -> Neighbours:
        return self.shard.search(queries, self.job.search, probes)


class Shards(Protocol):
    """All shards together."""

    def search(self, blocks: Iterable[LabelledVectors], *, exact: bool = False) -> Iterator[Neighbours]:
        """The neighbours of each block of queries, in order; with ``exact``, of an inverted file too."""
        ...


class ShardHere:
    """One shard of all rows in this process."""

    def __init__(self, job: SearchJob) -> None:
        source = job.open_vectors()
        centroids = inverted_file.train(source, job.cells.seed) if job.cells else None
        self._job = job
        self._worker = ShardWorker(job, 0, len(source), None, centroids)

    def search(self, blocks: Iterable[LabelledVectors], *, exact: bool = False) -> Iterator[Neighbours]:
        for block in blocks:
            probes = self._worker.probes(block) if self._job.cells and not exact else None
            yield merge([self._worker.search(block, probes)], self._job.search)


class ShardActors:
    """Shards of about the same size in actors, ``request`` for each, spread over the nodes."""

    def __init__(self, job: SearchJob, num_rows: int, num_shards: int, request: Request) -> None:
        import ray

        self._job = job
        resources = {"num_cpus": request.cpus, "num_gpus": request.gpus, "scheduling_strategy": "SPREAD"}
        centroids = None
        if job.cells:
            train = ray.remote(_train).options(**resources)
            centroids = train.remote(job.open_vectors, job.cells.seed, request.threads)
        restarts = {"max_restarts": RESTARTS, "max_task_retries": RESTARTS}
        actor: Any = ray.remote(ShardWorker).options(**resources, **restarts)
        bounds = np.linspace(0, num_rows, num_shards + 1).astype(int).tolist()
        self.actors = [
            actor.remote(job, start, stop, request.threads, centroids) for start, stop in itertools.pairwise(bounds)
        ]

    def search(self, blocks: Iterable[LabelledVectors], *, exact: bool = False) -> Iterator[Neighbours]:
        import ray

        sent = (self._send(number, block, exact) for number, block in enumerate(blocks))
        # The cells of the next block are found before this one is searched, so that no shard waits for them.
        asked = (self._ask(*references) for references in _delayed(sent, 1))
        for answers in _delayed(asked, BLOCKS_AHEAD):
            yield merge(ray.get(answers), self._job.search)

    def close(self) -> None:
        import ray

        for actor in self.actors:
            ray.kill(actor)

    def _send(self, number: int, block: LabelledVectors, exact: bool) -> tuple[Any, Any]:
        """References to the block and to the cells it probes, which the shards find in turns."""
        import ray

        queries = ray.put(block)
        if exact or not self._job.cells:
            return queries, None
        actor = self.actors[number % len(self.actors)]
        return queries, actor.probes.remote(queries)

    def _ask(self, queries: Any, probes: Any) -> list[Any]:
        return [actor.search.remote(queries, probes) for actor in self.actors]


@contextlib.contextmanager
def opened(job: SearchJob, num_rows: int, num_shards: int, request: Request | None) -> Iterator[Shards]:
    """Shards in actors, ``request`` for each, which end with the context; without a request one shard in this process."""
    if request is None:
        yield ShardHere(job)
        return
    shards = ShardActors(job, num_rows, num_shards, request)
    try:
        yield shards
    finally:
        shards.close()


def num_shards(num_rows: int, request: Request) -> int:
    """One for each worker that the cluster has room for, as long as each has rows enough."""
    return max(1, min(request.count, num_rows // LEAST_ROWS_PER_SHARD))


def blocks_of(source: VectorFile, num_queries: int, stop: int, start: int = 0) -> Iterator[LabelledVectors]:
    """The rows from ``start`` to ``stop``, so many at a time."""
    for first in range(start, stop, num_queries):
        yield source.read(np.arange(first, min(first + num_queries, stop)))


def describe_cells(job: SearchJob, shards: Shards, source: VectorFile) -> dict[str, float]:
    """The cells of an inverted file, and the recall that it has on a seeded sample of rows; of no other anything."""
    if not job.cells:
        return {}
    rows = inverted_file.sample_rows(len(source), inverted_file.RECALL_QUERIES, job.cells.seed)
    queries = source.read(rows)
    (found,) = shards.search([queries])
    (exact,) = shards.search([queries], exact=True)
    return {
        "recall": round(inverted_file.recall(found, exact), 4),
        "recall_queries": len(rows),
        "num_cells": inverted_file.num_cells(len(source)),
        "num_probes": job.cells.num_probes,
    }


def request_for(capacity: Capacity, *, in_cells: bool) -> Request:
    """What a shard asks for: a GPU where the workers' faiss sees one; inverted files are searched on CPUs."""
    if in_cells or capacity.gpus < 1 or not _workers_see_gpus():
        return capacity.processors()
    return capacity.encoders()


def _workers_see_gpus() -> bool:
    """Whether faiss sees a GPU where there is one: it may be another faiss than on the node of this process."""
    import ray

    sees_gpu = ray.remote(_faiss_sees_gpus).options(num_cpus=0, num_gpus=1)
    return bool(ray.get(sees_gpu.remote()))


def _faiss_sees_gpus() -> bool:
    import faiss

    return bool(faiss.get_num_gpus())


def _train(open_vectors: OpenVectors, seed: int, threads: int) -> npt.NDArray[np.float32]:
    return inverted_file.train(open_vectors(), seed, threads)


def _delayed(items: Iterable[Any], count: int) -> Iterator[Any]:
    """The items, each once ``count`` more of them were taken."""
    waiting: deque[Any] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > count:
            yield waiting.popleft()
    yield from waiting
