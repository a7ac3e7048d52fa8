"""Workers called on chunks in this process, and the worker that a process keeps between calls."""

import gc
import time
import weakref

import numpy as np
import pytest

from raysweep.prepare import chunks
from raysweep.prepare.chunks import ChunkedJob
from raysweep.prepare.workers import Columns, row_range


class Multiples:
    """A multiple of the number of each row, in columns of two shapes."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, chunk: Columns) -> Columns:
        multiples = self.factor * np.arange(*row_range(chunk))
        return {"flat": multiples, "wide": np.stack([multiples, multiples], axis=1)}


def test_chunks_cover_all_rows_in_order() -> None:
    job = ChunkedJob(Multiples, (2,), num_rows=10, rows_per_chunk=4)
    bounds = [(chunk["number"], chunk["start"], chunk["stop"]) for chunk in job.chunks]
    assert bounds == [([0], [0], [4]), ([1], [4], [8]), ([2], [8], [10])]
    assert job.count == 3
    results = list(job.run_here())
    assert np.concatenate([columns["flat"] for columns in results]).tolist() == list(
        range(0, 20, 2)
    )
    assert [columns["wide"].shape for columns in results] == [(4, 2), (4, 2), (2, 2)]


def test_only_requested_chunks_are_processed() -> None:
    job = ChunkedJob(Multiples, (1,), 10, 4, {"tripled": np.arange(10) * 3}, only=[2, 0])
    assert [chunk["tripled"] for chunk in job.chunks] == [[[24, 27]], [[0, 3, 6, 9]]]
    assert [columns["flat"].tolist() for columns in job.run_here()] == [[8, 9], [0, 1, 2, 3]]
    assert not list(ChunkedJob(Multiples, (1,), 10, 4, only=[]).run_here())


made: "list[weakref.ref[Adder]]" = []


class Adder:
    def __init__(self, number: int) -> None:
        self.number = number
        made.append(weakref.ref(self))

    def __call__(self, chunk: Columns) -> Columns:
        if chunk["start"][0] < 0:
            raise ValueError("no such row")
        return {"sum": chunk["start"] + self.number}


@pytest.fixture(autouse=True)
def forget_workers() -> None:
    made.clear()


def add(start: int, number: int) -> int:
    chunk = {"start": np.array([start]), "stop": np.array([start + 1])}
    return int(chunks.call_cached_worker(chunk, Adder, (number,))["sum"][0])


def num_alive() -> int:
    gc.collect()
    return sum(reference() is not None for reference in made)


def test_worker_is_reused_until_another_job_starts() -> None:
    assert [add(start, 1) for start in (0, 4, 8)] == [1, 5, 9]
    assert len(made) == 1
    assert add(0, 2) == 2
    assert (len(made), num_alive()) == (2, 1)


def test_worker_is_reused_after_a_failed_call() -> None:
    with pytest.raises(ValueError, match="no such row"):
        add(-1, 3)
    assert add(0, 3) == 3
    assert len(made) == 1


def test_idle_worker_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "KEEP_SECONDS", 0.01)
    assert add(0, 4) == 4
    until = time.monotonic() + 20
    while num_alive() and time.monotonic() < until:
        time.sleep(0.01)
    assert num_alive() == 0
