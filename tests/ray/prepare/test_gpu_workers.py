"""Chunks in actors that request GPUs, which Ray counts but the machine does not have."""

from collections.abc import Iterator

import numpy as np
import pytest

from raysweep.cluster.resources import Request
from raysweep.prepare.chunks import ChunkedJob
from raysweep.prepare.workers import Columns


class Summing:
    """Returns each chunk's sum of squares, and the actor's GPUs."""

    def __call__(self, chunk: Columns) -> Columns:
        import ray

        rows = np.arange(int(chunk["start"][0]), int(chunk["stop"][0]))
        return {"sum": np.array([(rows**2).sum()]), "gpus": np.array([len(ray.get_gpu_ids())])}


@pytest.fixture
def two_gpus() -> Iterator[None]:
    import ray

    ray.init(address="local", num_cpus=2, num_gpus=2, include_dashboard=False)
    yield
    ray.shutdown()


def test_chunks_on_gpus(two_gpus: None) -> None:
    job = ChunkedJob(Summing, (), num_rows=50, rows_per_chunk=7)
    results = list(job.run_on_cluster(Request(cpus=1, gpus=1, count=2)))
    expected = [
        sum(row**2 for row in range(start, min(start + 7, 50))) for start in range(0, 50, 7)
    ]
    assert [int(result["sum"][0]) for result in results] == expected
    assert {int(result["gpus"][0]) for result in results} == {1}
