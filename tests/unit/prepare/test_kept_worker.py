"""A worker is made once for all chunks of a job, and not kept for longer than it is needed."""

import gc
import time
import weakref

import numpy as np
import pytest

from raysweep.prepare import kept_worker
from raysweep.prepare.workers import Columns

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
def nothing_made() -> None:
    made.clear()


def add(start: int, number: int) -> int:
    chunk = {"start": np.array([start]), "stop": np.array([start + 1])}
    return int(kept_worker.call(chunk, Adder, (number,))["sum"][0])


def num_alive() -> int:
    gc.collect()
    return sum(each() is not None for each in made)


def test_one_worker_serves_all_chunks_of_a_job_and_goes_when_another_comes() -> None:
    assert [add(start, 1) for start in (0, 4, 8)] == [1, 5, 9]
    assert len(made) == 1
    assert add(0, 2) == 2
    assert (len(made), num_alive()) == (2, 1)


def test_a_call_that_fails_leaves_the_worker_for_the_next() -> None:
    with pytest.raises(ValueError, match="no such row"):
        add(-1, 3)
    assert add(0, 3) == 3
    assert len(made) == 1


def test_a_worker_that_nobody_calls_any_more_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_worker, "KEEP_SECONDS", 0.01)
    assert add(0, 4) == 4
    until = time.monotonic() + 20
    while num_alive() and time.monotonic() < until:
        time.sleep(0.01)
    assert num_alive() == 0
