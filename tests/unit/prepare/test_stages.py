"""Distribution of a stage over a cluster."""

from typing import Any

import pytest

from raysweep.cluster.resources import Capacity, NodeSize
from raysweep.data.neighbors import NeighborSearch
from raysweep.prepare.neighbor_shards import SearchJob
from raysweep.prepare.stages import Coordinator

GIB = 2**30
UNUSED: Any = None


@pytest.mark.parametrize(
    ("nodes", "num_rows", "expected"),
    [
        ([(32, 64)] * 2, 4_600_000, 8),  # one process per eight CPUs
        ([(32, 4)] * 2, 4_600_000, 6),  # 6.6 GiB of vectors and the processes in 8 GiB
        ([(32, 4)] * 2, 1_000_000, 8),
        ([(32, 4)] * 2, 40_000, 1),
        ([(32, 0)] * 2, 4_600_000, 8),  # unknown memory
        ([(2, 1)], 4_600_000, 1),  # never more than a node has
    ],
)
def test_number_of_shards_fits_the_memory(
    nodes: list[tuple[int, int]], num_rows: int, expected: int
) -> None:
    capacity = Capacity(tuple(NodeSize(cpus, 0, gib * GIB) for cpus, gib in nodes))
    num_shards, request = Coordinator(UNUSED, capacity)._shards_that_fit(
        SearchJob(UNUSED, num_rows, NeighborSearch(8)), 384
    )
    assert num_shards == expected
    assert request.count >= num_shards
    assert request.memory_bytes * num_shards <= sum(gib for _, gib in nodes) * GIB
