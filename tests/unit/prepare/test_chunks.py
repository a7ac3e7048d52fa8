"""Workers called on chunks in this process, and their results on disk."""

from pathlib import Path

import numpy as np
import pytest

from raysweep.prepare.chunks import ChunkedJob, write_columns
from raysweep.prepare.workers import Columns, rows_of


class Multiples:
    """A multiple of the number of each row, in columns of two shapes."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, chunk: Columns) -> Columns:
        multiples = self.factor * np.arange(*rows_of(chunk))
        return {"flat": multiples, "wide": np.stack([multiples, multiples], axis=1)}


def test_chunks_cover_all_rows_once_and_results_come_in_order(tmp_path: Path) -> None:
    job = ChunkedJob(Multiples, (2,), num_rows=10, rows_per_chunk=4)
    chunks = [(chunk["start"], chunk["stop"]) for chunk in job.chunks]
    assert chunks == [([0], [4]), ([4], [8]), ([8], [10])]
    seen: list[int] = []
    write_columns(tmp_path, job.run_here(), 10, seen.append)
    assert seen == [4, 8, 10]
    assert np.load(tmp_path / "flat.npy").tolist() == list(range(0, 20, 2))
    assert np.load(tmp_path / "wide.npy").shape == (10, 2)


def test_rows_that_do_not_arrive_are_an_error(tmp_path: Path) -> None:
    job = ChunkedJob(Multiples, (2,), num_rows=8, rows_per_chunk=4)
    with pytest.raises(RuntimeError, match="8 of 9 rows arrived"):
        write_columns(tmp_path, job.run_here(), 9, lambda done: None)
