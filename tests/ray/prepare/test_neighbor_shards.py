"""Neighbors found by shards in actors are byte-identical to those of one shard in this process."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysweep.cluster.connection import connected
from raysweep.cluster.resources import Capacity, Request
from raysweep.config.sweep import ResourcesConfig
from raysweep.data.artifacts import Artifact
from raysweep.data.neighbors import NeighborSearch, VectorFile
from raysweep.data.shards import ShardSet
from raysweep.prepare import neighbor_shards
from raysweep.prepare.neighbor_shards import Cells, SearchJob, ShardHere

NUM_ROWS = 1500


@pytest.fixture(scope="module")
def one_cpu() -> Iterator[Capacity]:
    with connected(ResourcesConfig(num_cpus=1)) as capacity:
        yield capacity


def open_vectors() -> partial[VectorFile]:
    """Return clustered vectors, some of them equal, that the receiving worker opens."""
    rng = np.random.default_rng(5)
    centers = rng.normal(size=(30, 16))
    rows = centers[rng.integers(0, 30, NUM_ROWS)] + 0.3 * rng.normal(size=(NUM_ROWS, 16))
    rows[:200] = rows[200]
    embeddings = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    labels, groups = rng.integers(0, 3, NUM_ROWS), rng.integers(0, NUM_ROWS, NUM_ROWS)
    return partial(VectorFile, embeddings, np.arange(NUM_ROWS), labels, groups)


@pytest.fixture
def make_shards(tmp_path: Path) -> Callable[[str, SearchJob], ShardSet]:
    """Return a function that creates one shard per block of a job, in an artifact with the given name."""

    def make(name: str, job: SearchJob) -> ShardSet:
        return ShardSet(Artifact(str(tmp_path), name), -(-job.num_rows // job.num_queries))

    return make


def job_of(folder: Path, *, inverted: bool) -> SearchJob:
    """Return an exact search, or one of cells that are stored in a folder."""
    centroids = ShardSet(Artifact(str(folder), "centroids"), 1)
    cells = Cells(seed=3, num_probes=6, shards=centroids) if inverted else None
    return SearchJob(open_vectors(), NUM_ROWS, NeighborSearch(5), cells)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbor_shards, "QUERIES_OF_FEW", 256)
    monkeypatch.setattr(neighbor_shards, "QUERIES_IN_CELLS", 256)


def fit_halves(max_shards: int) -> tuple[int, Request]:
    return max_shards, Request(cpus=0.5, gpus=0, count=max_shards)


def open_actors(
    job: SearchJob, num_shards: int, report: Callable[[str], None] = print
) -> AbstractContextManager[Any]:
    return neighbor_shards.open_shards(job, fit_halves, num_shards, report)


def contents(shards: ShardSet) -> list[bytes]:
    folder = Path(shards.artifact.location, shards.artifact.name)
    return [path.read_bytes() for path in sorted(folder.iterdir())]


@pytest.mark.parametrize("inverted", [False, True])
def test_two_actors_equal_one_local_shard(
    one_cpu: Capacity,
    make_shards: Callable[[str, SearchJob], ShardSet],
    tmp_path: Path,
    inverted: bool,
) -> None:
    import ray

    job = job_of(tmp_path / "cells-here", inverted=inverted)
    expected = make_shards("here", job)
    numbers = range(expected.count)
    here = ShardHere(job)
    reports = list(here.store(numbers, expected))
    described = neighbor_shards.describe_cells(job, here)
    job = job_of(tmp_path / "cells-actors", inverted=inverted)
    stored = make_shards("actors", job)
    with open_actors(job, 2) as actors:
        assert list(actors.store(numbers, stored)) == reports
        assert neighbor_shards.describe_cells(job, actors) == described
    assert sum(report["num_rows"] for report in reports) == NUM_ROWS
    assert len(contents(stored)) == 6
    assert contents(stored) == contents(expected)
    assert bool(described) == inverted
    with pytest.raises(ray.exceptions.RayError):  # they ended
        ray.get(actors.actors[0].search.remote(None, None))


def test_few_blocks_are_in_flight(
    one_cpu: Capacity, make_shards: Callable[[str, SearchJob], ShardSet]
) -> None:
    submitted = []

    def numbers() -> Iterator[int]:
        for number in range(6):
            submitted.append(number)
            yield number

    job = SearchJob(open_vectors(), NUM_ROWS, NeighborSearch(5))
    with open_actors(job, 2) as actors:
        next(actors.store(numbers(), make_shards("few", job)))
    assert len(submitted) == 2 + neighbor_shards.BLOCKS_AHEAD


@pytest.mark.parametrize("inverted", [False, True])
def test_dead_shard_is_restarted_with_its_rows_and_cells(
    one_cpu: Capacity,
    make_shards: Callable[[str, SearchJob], ShardSet],
    tmp_path: Path,
    inverted: bool,
) -> None:
    import ray

    job = job_of(tmp_path, inverted=inverted)
    expected, restarted = make_shards("here", job), make_shards("actors", job)
    with open_actors(job, 2) as actors:
        stored = actors.store(range(restarted.count), restarted)
        next(stored)
        ray.kill(actors.actors[0], no_restart=False)
        assert len(list(stored)) == restarted.count - 1
    list(ShardHere(job).store(range(expected.count), expected))
    assert contents(restarted) == contents(expected)


def test_search_starts_with_the_workers_that_have_joined(
    one_cpu: Capacity,
    make_shards: Callable[[str, SearchJob], ShardSet],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node has room for two of the eight workers, of which a busy machine may start only one in time."""
    monkeypatch.setattr(neighbor_shards, "JOIN_SECONDS", 0.5)
    monkeypatch.setattr(neighbor_shards, "QUIET_JOIN_SECONDS", 0.25)
    job = SearchJob(open_vectors(), NUM_ROWS, NeighborSearch(5))
    expected, stored = make_shards("here", job), make_shards("actors", job)
    waits: list[str] = []
    with open_actors(job, 8, waits.append) as actors:
        num_joined = len(actors.actors)
        assert num_joined in (1, 2)
        list(actors.store(range(stored.count), stored))
    list(ShardHere(job).store(range(expected.count), expected))
    assert contents(stored) == contents(expected)
    assert any(
        f"{num_joined} of 8" in wait
        and f"(missing workers={8 - num_joined}, CPUs per worker=0.5)" in wait
        for wait in waits
    )
    assert waits[-1] == ""
