"""Run a worker over chunks of consecutive rows, in this process or with Ray Data on a cluster.

Workers memory-map artifacts and store large results themselves, so their inputs and outputs are small. Results arrive
in order.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from raysweep.cluster.resources import Request
from raysweep.prepare.workers import Columns, Worker

KEEP_SECONDS = 10.0  # time after which an idle worker is dropped to free memory


@dataclass(frozen=True)
class ChunkedJob:
    """A job that calls a worker on chunks of rows.

    ``arguments`` are passed to the worker's constructor. Each chunk includes its rows of ``columns``. If ``only`` is
    not None, only the chunks with these numbers are processed.
    """

    worker: Callable[..., Worker]
    arguments: tuple[Any, ...]
    num_rows: int
    rows_per_chunk: int
    columns: Columns = field(default_factory=dict)
    only: Sequence[int] | None = None

    @property
    def count(self) -> int:
        """Return the number of chunks that cover all rows."""
        return -(-self.num_rows // self.rows_per_chunk)

    @property
    def chunks(self) -> list[dict[str, list[Any]]]:
        """Return the chunks as columns of length 1: number, start, stop (exclusive) and ``columns``."""
        numbers = range(self.count) if self.only is None else self.only
        chunks = []
        for number in numbers:
            start, stop = self.rows(number)
            columns = {name: [column[start:stop].tolist()] for name, column in self.columns.items()}
            chunks.append({"number": [number], "start": [start], "stop": [stop], **columns})
        return chunks

    def rows(self, number: int) -> list[int]:
        """Return the start and stop (exclusive) of a chunk."""
        start = number * self.rows_per_chunk
        return [start, min(start + self.rows_per_chunk, self.num_rows)]

    def run_here(self) -> Iterator[Columns]:
        """Yield the results of the chunks in order, computed in this process."""
        if not (chunks := self.chunks):
            return
        worker = self.worker(*self.arguments)
        for chunk in chunks:
            yield worker({name: np.array(values) for name, values in chunk.items()})

    def run_on_cluster(self, request: Request) -> Iterator[Columns]:
        """Yield the results of the chunks in order, computed by up to ``request.count`` workers.

        Workers are actors on GPUs and tasks otherwise. Tasks reuse the processes of earlier stages.
        """
        import ray
        from ray.data import ActorPoolStrategy, DataContext, TaskPoolStrategy

        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        items = [{name: values[0] for name, values in chunk.items()} for chunk in self.chunks]
        if not items:
            return
        count = min(request.count, len(items))
        pool: dict[str, Any]
        if request.gpus:
            compute = ActorPoolStrategy(min_size=1, max_size=count)
            pool = {"fn": self.worker, "fn_constructor_args": self.arguments, "compute": compute}
        else:
            job = {"kind": self.worker, "arguments": self.arguments}
            pool = {
                "fn": call_cached_worker,
                "fn_kwargs": job,
                "compute": TaskPoolStrategy(size=count),
            }
        # These blocks are already in the object store, so reading them needs no task.
        chunks = ray.data.from_items(items, override_num_blocks=len(items))
        results = chunks.map_batches(
            **pool,
            batch_size=1,  # each block has one row; on GPUs, Ray rejects None
            batch_format="numpy",
            num_cpus=request.cpus,
            num_gpus=request.gpus,
            memory=request.memory_bytes or None,
        )
        for batch in results.iter_batches(batch_size=None, batch_format="numpy"):
            yield {name: np.asarray(column) for name, column in batch.items()}


def start_ray_data() -> None:
    """Run a minimal job so that Ray Data starts its own actors, which takes several seconds."""
    import ray
    from ray.data import DataContext

    DataContext.get_current().enable_progress_bars = False
    ray.data.from_items([{"row": 0}]).limit(1).materialize()


class _WorkerCache:
    """Cache of a process's worker, which loads data and models only once for a stage's tasks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: dict[str, Worker] = {}
        self._timer = threading.Timer(0, self._clear)  # a placeholder that is never started

    def take(self, key: str) -> Worker | None:
        """Remove and return the worker with this key, and drop all others."""
        self._timer.cancel()
        with self._lock:
            worker = self._workers.pop(key, None)
            self._workers.clear()
        return worker

    def put(self, key: str, worker: Worker) -> None:
        with self._lock:
            self._workers[key] = worker
        self._timer = threading.Timer(KEEP_SECONDS, self._clear)
        self._timer.daemon = True
        self._timer.start()

    def _clear(self) -> None:
        with self._lock:
            self._workers.clear()


_cache = _WorkerCache()


def call_cached_worker(
    chunk: Columns, kind: Callable[..., Worker], arguments: tuple[Any, ...]
) -> Columns:
    """Return a worker's result for a chunk, reusing the process's worker if it has the same arguments."""
    key = f"{kind!r} {arguments!r}"
    worker = _cache.take(key) or kind(*arguments)
    try:
        columns: Columns = worker(chunk)
        return columns
    finally:
        _cache.put(key, worker)
