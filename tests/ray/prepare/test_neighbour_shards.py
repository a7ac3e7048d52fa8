"""Neighbours by shards in actors: the same to the byte as by one shard in this process."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from raysweep.cluster import Capacity, Request, connected
from raysweep.config.sweep import ResourcesConfig
from raysweep.data.neighbours import Neighbours, Search, VectorFile
from raysweep.prepare import neighbour_shards
from raysweep.prepare.neighbour_shards import Cells, SearchJob, Shards, blocks_of

HALF = Request(cpus=0.5, gpus=0, count=2)
NUM_ROWS = 1500


@pytest.fixture(scope="module")
def one_cpu() -> Iterator[Capacity]:
    with connected(ResourcesConfig(num_cpus=1)) as capacity:
        yield capacity


def open_vectors() -> partial[VectorFile]:
    """Vectors in clumps, some copied: what is sent to a worker opens them there."""
    rng = np.random.default_rng(5)
    middles = rng.normal(size=(30, 16))
    rows = middles[rng.integers(0, 30, NUM_ROWS)] + 0.3 * rng.normal(size=(NUM_ROWS, 16))
    rows[:200] = rows[200]
    embeddings = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    labels, groups = rng.integers(0, 3, NUM_ROWS), rng.integers(0, NUM_ROWS, NUM_ROWS)
    return partial(VectorFile, embeddings, np.arange(NUM_ROWS), labels, groups)


def found_by(shards: Shards, job: SearchJob) -> list[Neighbours]:
    return list(shards.search(blocks_of(job.open_vectors(), 256, NUM_ROWS)))


@pytest.mark.parametrize("cells", [None, Cells(seed=3, num_probes=6)])
def test_two_actors_give_what_one_shard_here_gives(one_cpu: Capacity, cells: Cells | None) -> None:
    import ray

    job = SearchJob(open_vectors(), Search(5), cells)
    with neighbour_shards.opened(job, NUM_ROWS, 1, None) as here:
        expected = found_by(here, job)
        described = neighbour_shards.describe_cells(job, here, job.open_vectors())
    with neighbour_shards.opened(job, NUM_ROWS, 2, HALF) as actors:
        found = found_by(actors, job)
        assert neighbour_shards.describe_cells(job, actors, job.open_vectors()) == described
    assert len(found) == len(expected) == 6
    for one, other in zip(found, expected, strict=True):
        assert one.ids.tobytes() == other.ids.tobytes()
        assert one.cosines.tobytes() == other.cosines.tobytes()
    assert bool(described) == bool(cells)
    with pytest.raises(ray.exceptions.RayError):  # they ended
        ray.get(actors.actors[0].search.remote(None, None))


def test_only_few_blocks_are_under_way(one_cpu: Capacity) -> None:
    taken = []

    def blocks() -> Iterator[object]:
        for block in blocks_of(job.open_vectors(), 100, NUM_ROWS):
            taken.append(len(block))
            yield block

    job = SearchJob(open_vectors(), Search(5))
    with neighbour_shards.opened(job, NUM_ROWS, 2, HALF) as actors:
        next(actors.search(blocks()))
    assert len(taken) == 2 + neighbour_shards.BLOCKS_AHEAD


def test_a_shard_whose_process_died_reads_its_rows_again(one_cpu: Capacity) -> None:
    import ray

    job = SearchJob(open_vectors(), Search(5))
    with neighbour_shards.opened(job, NUM_ROWS, 2, HALF) as actors:
        found = actors.search(blocks_of(job.open_vectors(), 256, NUM_ROWS))
        first = next(found)
        ray.kill(actors.actors[0], no_restart=False)
        rest = list(found)
    with neighbour_shards.opened(job, NUM_ROWS, 1, None) as here:
        expected = found_by(here, job)
    assert [one.ids.tobytes() for one in (first, *rest)] == [other.ids.tobytes() for other in expected]
