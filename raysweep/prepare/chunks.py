"""A worker called on chunks of consecutive rows, in this process or by Ray Data on a cluster, and its results on disk.

Inputs are artifacts that every worker memory-maps, so hardly more than row numbers goes out and only results come back, in
order. No stage has a read or write task that could starve for a CPU.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from raysweep.cluster import Request
from raysweep.prepare import kept_worker
from raysweep.prepare.workers import Columns, Worker


@dataclass(frozen=True)
class ChunkedJob:
    """A worker, made of ``arguments``, to be called on the rows 0..num_rows, ``rows_per_chunk`` at a time.

    Each chunk takes its rows of the ``columns`` along.
    """

    worker: Callable[..., Worker]
    arguments: tuple[Any, ...]
    num_rows: int
    rows_per_chunk: int
    columns: Columns = field(default_factory=dict)

    @property
    def chunks(self) -> list[dict[str, list[Any]]]:
        """Each chunk as one row: its first row, the row after its last, and what travels along."""
        return [self._chunk(start) for start in range(0, self.num_rows, self.rows_per_chunk)]

    def _chunk(self, start: int) -> dict[str, list[Any]]:
        stop = min(start + self.rows_per_chunk, self.num_rows)
        along = {name: [column[start:stop].tolist()] for name, column in self.columns.items()}
        return {"start": [start], "stop": [stop], **along}

    def run_here(self) -> Iterator[Columns]:
        """The results of the chunks in order, from one worker in this process."""
        worker = self.worker(*self.arguments)
        for chunk in self.chunks:
            yield worker({name: np.array(values) for name, values in chunk.items()})

    def run_on_cluster(self, request: Request) -> Iterator[Columns]:
        """The results of the chunks in order, from so many tasks or, on GPUs, actors at a time.

        Tasks run in processes that are there already and stay for the next stage. On a GPU a process ends with its task.
        """
        import pyarrow as pa
        import ray
        from ray.data import ActorPoolStrategy, DataContext, TaskPoolStrategy

        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        # Blocks that are already in the object store: reading them takes no task.
        blocks = [pa.table(chunk) for chunk in self.chunks]
        count = min(request.count, len(blocks))
        pool: dict[str, Any]
        if request.gpus:
            compute = ActorPoolStrategy(min_size=1, max_size=count)
            pool = {"fn": self.worker, "fn_constructor_args": self.arguments, "compute": compute}
        else:
            job = {"kind": self.worker, "arguments": self.arguments}
            pool = {"fn": kept_worker.call, "fn_kwargs": job, "compute": TaskPoolStrategy(size=count)}
        results = ray.data.from_arrow(blocks).map_batches(
            **pool, batch_size=None, batch_format="numpy", num_cpus=request.cpus, num_gpus=request.gpus
        )
        for batch in results.iter_batches(batch_size=None, batch_format="numpy"):
            yield {name: np.asarray(column) for name, column in batch.items()}


def write_columns(folder: Path, results: Iterable[Columns], num_rows: int, progress: Callable[[int], None]) -> None:
    """Write each column into one ``.npy`` file of ``num_rows`` rows; ``progress`` is told the rows written so far."""
    files: dict[str, np.memmap[Any, Any]] = {}
    done = 0
    for columns in results:
        end = done + len(next(iter(columns.values())))
        for name, column in columns.items():
            if name not in files:
                shape = (num_rows, *column.shape[1:])
                files[name] = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", column.dtype, shape)
            files[name][done:end] = column
        done = end
        progress(done)
    if done != num_rows:
        raise RuntimeError(f"{done} of {num_rows} rows arrived")
    for file in files.values():
        file.flush()
