"""The tasks of the benchmark on digits, MNIST's files, and all methods on made files."""

import gzip
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import hypermask_digits
from benchmarks.hypermask_digits import MNIST, Images, compare, draw, read_idx, table

SIDE = 6


def write_idx(path: Path, array: np.ndarray) -> None:
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    content = header + array.astype(np.uint8).tobytes()
    if path.suffix == ".gz":
        content = gzip.compress(content)
    path.write_bytes(content)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write files in MNIST's format, whose images are bright in the row or column of the digit."""
    draws = np.random.default_rng(0)
    for prefix, count, suffix in (("train", 200, ""), ("t10k", 60, ".gz")):
        labels = np.arange(count) % 10
        pixels = draws.integers(0, 30, (count, SIDE, SIDE))
        for row, label in enumerate(labels):
            pixels[row, label % SIDE] += 100
            pixels[row, :, label // SIDE] += 100
        write_idx(tmp_path / f"{prefix}-images-idx3-ubyte{suffix}", pixels)
        write_idx(tmp_path / f"{prefix}-labels-idx1-ubyte{suffix}", labels)
    return tmp_path


def test_idx_files(folder: Path) -> None:
    train, test = hypermask_digits.read_mnist(folder)
    assert train.pixels.shape == (200, SIDE, SIDE)
    assert test.pixels.shape == (60, SIDE, SIDE)
    assert test.labels[:12].tolist() == [*range(10), 0, 1]
    assert 0 <= train.pixels.min() < train.pixels.max() <= 1


def test_damaged_idx_files(tmp_path: Path) -> None:
    path = tmp_path / "labels"
    for content in (b"", b"text of any kind", b"\0\0\x08\x01\0\0\0\x05abc"):
        path.write_bytes(content)
        with pytest.raises(SystemExit):
            read_idx(path)
    with pytest.raises(SystemExit):
        read_idx(tmp_path / "missing")


def test_permuted_tasks_reorder_padded_pixels() -> None:
    images = Images(np.arange(1, 9, dtype=np.float32).reshape(2, 2, 2), np.array([3, 4]))
    task = replace(MNIST[0], padding=1).tasks(images, seed=0)
    rows = task(1).inputs
    assert rows.shape == (2, 16)
    assert sorted(rows[0].tolist()) == [0] * 12 + [1, 2, 3, 4]
    assert (rows[1][rows[0] > 0] - rows[0][rows[0] > 0]).tolist() == [4] * 4
    assert rows.tolist() != task(2).inputs.tolist()
    assert rows.tolist() == replace(MNIST[0], padding=1).tasks(images, seed=0)(1).inputs.tolist()


def test_split_tasks_are_pairs_of_digits() -> None:
    images = Images(np.arange(4, dtype=np.float32).reshape(4, 1, 1), np.array([7, 1, 6, 2]))
    data = MNIST[1].tasks(images, seed=0)(3)
    assert data.inputs.flatten().tolist() == [0, 2]
    assert data.labels.tolist() == [1, 0]


def test_all_methods_run_20_iterations_on_files_in_the_format_of_mnist(
    folder: Path, tmp_path: Path
) -> None:
    mnist = hypermask_digits.read_mnist(folder)
    outcomes = {}
    for problem in MNIST:
        masks = replace(problem.masks, hidden_layers=(8,))
        training = replace(problem.training, num_iterations=20, batch_size=32, learning_rate=0.01)
        small = replace(problem, num_tasks=2, hidden_layers=(24,), masks=masks, training=training)
        outcomes[problem.name] = compare(small, lambda _: mnist, [0])
    for methods in outcomes.values():
        assert len(table(methods).splitlines()) == 2 + len(methods) == 8
        for outcome in methods.values():
            (accuracies,) = outcome.by_seed
            assert len(accuracies.right_after) == len(accuracies.at_end) == 2
    separate = outcomes["split"]["network per task"]
    assert separate.values("forgetting") == [0]
    assert separate.values("at_end")[0] > 80
    draw(outcomes, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"
