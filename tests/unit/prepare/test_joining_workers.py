"""A search starts with the workers that have a node, with the results of all of them, and names the missing ones."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from raysweep.cluster.resources import Request
from raysweep.data.artifacts import Artifact
from raysweep.data.neighbors import NeighborSearch, VectorFile
from raysweep.data.shards import ShardSet
from raysweep.prepare import neighbor_shards
from raysweep.prepare.neighbor_shards import SearchJob, ShardHere

NUM_ROWS = 600


class SmallCluster:
    """Stands in for ``ray``: a cluster with room for a few actors, which run in this process; others stay pending."""

    def __init__(self, num_rooms: int) -> None:
        self.num_rooms = num_rooms
        self.alive: list[Any] = []

    def remote(self, work: Callable[..., Any]) -> Any:
        def start(*arguments: Any) -> Any:
            if not isinstance(work, type):
                return work(*arguments)
            handle = Handle(work(*arguments))
            self.alive.append(handle)
            return handle

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=start))

    def wait(
        self, references: list[Any], num_returns: int, timeout: float
    ) -> tuple[list[Any], list[Any]]:
        placed = self.alive[: self.num_rooms]
        return [one for one in references if one in placed], [
            one for one in references if one not in placed
        ]

    def get(self, value: Any) -> Any:
        return value

    def kill(self, handle: Any) -> None:
        self.alive.remove(handle)


class Handle:
    """An actor, whose calls return their results instead of references."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def __getattr__(self, name: str) -> Any:
        call = (lambda: self) if name == "__ray_ready__" else getattr(self.actor, name)
        return SimpleNamespace(remote=call)


def open_vectors() -> VectorFile:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(NUM_ROWS, 8))
    embeddings = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return VectorFile(
        embeddings, np.arange(NUM_ROWS), rng.integers(0, 3, NUM_ROWS), np.arange(NUM_ROWS)
    )


@pytest.mark.parametrize(("num_rooms", "num_shards"), [(1, 1), (2, 2), (8, 8)])
def test_search_uses_as_many_shards_as_workers_have_joined(
    num_rooms: int, num_shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SmallCluster(num_rooms)
    monkeypatch.setitem(sys.modules, "ray", cluster)
    monkeypatch.setattr(neighbor_shards, "JOIN_SECONDS", 0.0)
    monkeypatch.setattr(neighbor_shards, "QUERIES_OF_FEW", 256)
    job = SearchJob(partial(open_vectors), NUM_ROWS, NeighborSearch(5))
    fits: list[int] = []

    def fit(max_shards: int) -> tuple[int, Request]:
        fits.append(max_shards)
        return max_shards, Request(2, 0, max_shards)

    waits: list[str] = []
    target = ShardSet(Artifact(str(tmp_path), "actors"), 3)
    with neighbor_shards.open_shards(job, fit, 8, waits.append) as shards:
        assert len(cluster.alive) == num_shards
        list(shards.store(range(3), target))
    assert cluster.alive == []
    assert fits == ([8] if num_shards == 8 else [8, num_shards])
    missing = [wait for wait in waits if wait]
    assert bool(missing) == (num_shards < 8)
    counts = f"(missing workers={8 - num_rooms}, CPUs per worker=2)"
    assert all(f"{num_rooms} of 8" in wait and counts in wait for wait in missing)
    assert waits[-1] == ""

    expected = ShardSet(Artifact(str(tmp_path), "here"), 3)
    list(ShardHere(job).store(range(3), expected))
    for number in range(3):
        assert target.read(number).equals(expected.read(number))
