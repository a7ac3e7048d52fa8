"""The search for neighbours spread over shards, each an actor that holds its block of vectors, or one shard in this process.

Shards read blocks of queries in turns, which go by reference to all shards at once; tasks merge what these answer, and
store it as the artifact's own shards. This process sees references and reports only, and few blocks are under way at a time.
"""

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from raysweep.cluster.resources import Capacity, Request
from raysweep.data import inverted_file
from raysweep.data.artifacts import Artifact
from raysweep.data.dataset import Sentences
from raysweep.data.inverted_file import Quantizer
from raysweep.data.neighbour_shard import NeighbourShard
from raysweep.data.neighbours import LabelledVectors, Neighbours, Search, VectorFile, merge
from raysweep.data.shards import Report, Shard, ShardSet, open_array

LEAST_ROWS_PER_SHARD = 2**15  # a smaller block is not worth the second or two in which an actor starts
FEW_ROWS = 2**17
QUERIES_OF_FEW = 2048  # so that even a small cluster has a block for everybody
QUERIES = 4096  # that faiss multiplies at once, so that larger blocks gain nothing
QUERIES_IN_CELLS = 16384  # a cell is multiplied with all queries of a block that probe it
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
    """An inverted file's cells: the seed that they are trained with, how many of them a query probes, and their store.

    The centroids are ``kept`` in storage, so that whoever goes on with the search has the same: another run, and a shard
    whose process died, for which Ray 2.60 may have dropped what the constructor was given (its issue 53727).
    """

    seed: int
    num_probes: int
    kept: ShardSet

    def train(self, source: VectorFile, threads: int | None = None) -> None:
        """Find the centroids, unless they are kept already."""
        if not self.kept.found():
            centroids = inverted_file.train(source, self.seed, threads)
            self.kept.write(0, Shard({"centroids": centroids}, {}))

    def centroids(self) -> npt.NDArray[np.float32]:
        """The centroids, (cells, d), once they were trained."""
        kept: npt.NDArray[np.float32] = self.kept.read(0).column("centroids").to_numpy_ndarray()
        return kept


@dataclass(frozen=True)
class SearchJob:
    """The vectors and how many there are, what is searched for, and for an inverted file its cells."""

    open_vectors: OpenVectors
    num_rows: int
    search: Search
    cells: Cells | None = None

    @property
    def num_queries(self) -> int:
        """How many queries one block has. It does not depend on how many shards there are, as what is stored does not."""
        if self.cells:
            return QUERIES_IN_CELLS
        return QUERIES_OF_FEW if self.num_rows <= FEW_ROWS else QUERIES

    def rows(self, number: int) -> list[int]:
        """The first row of a block of queries, and the row after its last."""
        start = number * self.num_queries
        return [start, min(start + self.num_queries, self.num_rows)]


def as_shard(found: Neighbours, rows: Sequence[int]) -> Shard:
    """A shard of the artifact: of the first of the ``rows`` to before the second. It reports how many have any neighbour."""
    has_neighbour = (found.ids >= 0).any(axis=(1, 2))
    return Shard(found.columns, {"num_with_neighbours": int(has_neighbour.sum()), "rows": list(rows)})


class ShardWorker:
    """One shard of the rows: the rows ``start`` to ``stop``. The job's cells are trained already."""

    def __init__(self, job: SearchJob, start: int, stop: int, threads: int | None) -> None:
        self.job = job
        self.source = job.open_vectors()
        self.shard = NeighbourShard(self.source, np.arange(start, stop), threads)
        if job.cells:
            self.quantizer = Quantizer(job.cells.centroids(), threads)
            self.shard.put_into_cells(self.quantizer.nearest_one)

    def read(self, rows: npt.NDArray[np.integer]) -> LabelledVectors:
        """Any rows, of this shard or of others."""
        return self.source.read(rows)

    def probes(self, queries: LabelledVectors) -> npt.NDArray[np.int32]:
        """The cells that the queries probe: of any shard the same."""
        assert self.job.cells is not None
        return self.quantizer.nearest(queries.vectors, self.job.cells.num_probes)

    def search(self, queries: LabelledVectors, probes: npt.NDArray[np.int32] | None) -> Neighbours:
        return self.shard.search(queries, self.job.search, probes)


class Shards(Protocol):
    """All shards together."""

    def search(self, rows: npt.NDArray[np.integer], *, exact: bool = False) -> Neighbours:
        """The neighbours of a few rows; with ``exact``, of an inverted file too."""
        ...

    def store(self, numbers: Iterable[int], into: ShardSet) -> Iterator[Report]:
        """Find the neighbours of these blocks of the job and store them, each block as the shard of its number."""
        ...


class ShardHere:
    """One shard of all rows in this process."""

    def __init__(self, job: SearchJob) -> None:
        if job.cells:
            job.cells.train(job.open_vectors())
        self._job = job
        self._worker = ShardWorker(job, 0, job.num_rows, None)

    def search(self, rows: npt.NDArray[np.integer], *, exact: bool = False) -> Neighbours:
        queries = self._worker.read(rows)
        probes = self._worker.probes(queries) if self._job.cells and not exact else None
        return merge([self._worker.search(queries, probes)], self._job.search)

    def store(self, numbers: Iterable[int], into: ShardSet) -> Iterator[Report]:
        for number in numbers:
            rows = self._job.rows(number)
            found = self.search(np.arange(*rows))
            yield into.write(number, as_shard(found, rows))


class ShardActors:
    """Shards of about the same size in actors, ``request`` for each, spread over the nodes."""

    def __init__(self, job: SearchJob, num_shards: int, request: Request) -> None:
        import ray

        self._job = job
        resources: dict[str, Any] = {
            "num_cpus": request.cpus,
            "num_gpus": request.gpus,
            "memory": request.memory_bytes or None,
            "scheduling_strategy": "SPREAD",
        }
        if job.cells:
            train = ray.remote(_train).options(**resources)
            ray.get(train.remote(job.open_vectors, job.cells, request.threads))
        restarts = {"max_restarts": RESTARTS, "max_task_retries": RESTARTS}
        actor: Any = ray.remote(ShardWorker).options(**resources, **restarts)
        bounds = np.linspace(0, job.num_rows, num_shards + 1).astype(int).tolist()
        self.actors = [actor.remote(job, start, stop, request.threads) for start, stop in itertools.pairwise(bounds)]

    def search(self, rows: npt.NDArray[np.integer], *, exact: bool = False) -> Neighbours:
        import ray

        answers = self._ask(*self._read(0, rows, exact=exact))
        return merge(ray.get(answers), self._job.search)

    def store(self, numbers: Iterable[int], into: ShardSet) -> Iterator[Report]:
        import ray

        # It asks for no CPU: the shards have them all, and wait for nobody else.
        merge_and_store: Any = ray.remote(_merge_and_store).options(num_cpus=0, scheduling_strategy="SPREAD")
        read = ((number, self._read(number, np.arange(*self._job.rows(number)))) for number in numbers)
        # The next block is read, and its cells are found, before this one is searched, so that no shard waits for them.
        asked = ((number, self._ask(*references)) for number, references in _delayed(read, 1))
        stored = (
            merge_and_store.remote(self._job.search, into, number, self._job.rows(number), *answers)
            for number, answers in asked
        )
        for report in _delayed(stored, BLOCKS_AHEAD):
            yield ray.get(report)

    def close(self) -> None:
        import ray

        for actor in self.actors:
            ray.kill(actor)

    def _read(self, number: int, rows: npt.NDArray[np.integer], *, exact: bool = False) -> tuple[Any, Any]:
        """References to the vectors of rows and to the cells they probe, which the shards read and find in turns."""
        actor = self.actors[number % len(self.actors)]
        queries = actor.read.remote(rows)
        if exact or not self._job.cells:
            return queries, None
        return queries, actor.probes.remote(queries)

    def _ask(self, queries: Any, probes: Any) -> list[Any]:
        return [actor.search.remote(queries, probes) for actor in self.actors]


def _merge_and_store(search: Search, into: ShardSet, number: int, rows: list[int], *answers: Neighbours) -> Report:
    return into.write(number, as_shard(merge(answers, search), rows))


@contextlib.contextmanager
def opened(job: SearchJob, num_shards: int, request: Request | None) -> Iterator[Shards]:
    """Shards in actors, ``request`` for each, which end with the context; without a request one shard in this process."""
    if request is None:
        yield ShardHere(job)
        return
    shards = ShardActors(job, num_shards, request)
    try:
        yield shards
    finally:
        shards.close()


def num_shards(num_rows: int, request: Request) -> int:
    """One for each worker that the cluster has room for, as long as each has rows enough."""
    return max(1, min(request.count, num_rows // LEAST_ROWS_PER_SHARD))


def describe_cells(job: SearchJob, shards: Shards) -> dict[str, float]:
    """The cells of an inverted file, and the recall that it has on a seeded sample of rows; of no other anything."""
    if not job.cells:
        return {}
    rows = inverted_file.sample_rows(job.num_rows, inverted_file.RECALL_QUERIES, job.cells.seed)
    found = shards.search(rows)
    exact = shards.search(rows, exact=True)
    return {
        "recall": round(inverted_file.recall(found, exact), 4),
        "recall_queries": len(rows),
        "num_cells": inverted_file.num_cells(job.num_rows),
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


def _train(open_vectors: OpenVectors, cells: Cells, threads: int) -> None:
    cells.train(open_vectors(), threads)


def _delayed(items: Iterable[Any], count: int) -> Iterator[Any]:
    """The items, each once ``count`` more of them were taken."""
    waiting: deque[Any] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > count:
            yield waiting.popleft()
    yield from waiting
