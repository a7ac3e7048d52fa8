"""Workers called on chunks in this process."""

import numpy as np

from raysweep.prepare.chunks import ChunkedJob
from raysweep.prepare.workers import Columns, rows_of


class Multiples:
    """A multiple of the number of each row, in columns of two shapes."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, chunk: Columns) -> Columns:
        multiples = self.factor * np.arange(*rows_of(chunk))
        return {"flat": multiples, "wide": np.stack([multiples, multiples], axis=1)}


def test_chunks_cover_all_rows_once_and_results_come_in_order() -> None:
    job = ChunkedJob(Multiples, (2,), num_rows=10, rows_per_chunk=4)
    chunks = [(chunk["number"], chunk["start"], chunk["stop"]) for chunk in job.chunks]
    assert chunks == [([0], [0], [4]), ([1], [4], [8]), ([2], [8], [10])]
    assert job.count == 3
    results = list(job.run_here())
    assert np.concatenate([columns["flat"] for columns in results]).tolist() == list(range(0, 20, 2))
    assert [columns["wide"].shape for columns in results] == [(4, 2), (4, 2), (2, 2)]


def test_only_the_chunks_that_are_asked_for_are_worked_on() -> None:
    job = ChunkedJob(Multiples, (1,), 10, 4, {"along": np.arange(10) * 3}, only=[2, 0])
    assert [chunk["along"] for chunk in job.chunks] == [[[24, 27]], [[0, 3, 6, 9]]]
    assert [columns["flat"].tolist() for columns in job.run_here()] == [[8, 9], [0, 1, 2, 3]]
    assert not list(ChunkedJob(Multiples, (1,), 10, 4, only=[]).run_here())
