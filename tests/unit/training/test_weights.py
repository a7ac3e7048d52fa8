"""Stored weights, heads and readings of rungs."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from raysweep.evaluation.operating_points import Head
from raysweep.results.readings import Reading
from raysweep.training.trainable import TrainedWeights
from raysweep.training.weights import read_point, save_point
from support.flushes import note_flushes

WEIGHTS = TrainedWeights(torch.nn.Linear(3, 2).state_dict())
HEAD = Head(np.ones((2, 3), np.float32), np.zeros(2, np.float32), 2.9)
READING = Reading(
    ((0, 1, "plain", None),), np.zeros((1, 4, 2), np.int64), np.ones((1, 4, 2), np.float32)
)


def test_point_is_flushed_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power failure could leave a folder of empty files, which a resumed trial would keep."""
    flushed = note_flushes(monkeypatch)
    folder = tmp_path / "points" / "trial-0000-step-001"
    save_point(folder, WEIGHTS, HEAD, READING)
    within = re.compile(rf"{folder.parent}/\.{folder.name}\.[0-9a-f]{{8}}/?(.*)")
    names = {match[1] for path in flushed if (match := within.fullmatch(path))}
    assert names == {"", "trained.safetensors", "head.npz", "retrieved-dev.npz"}
    weights, head = read_point(folder)
    assert weights.tensors.keys() == {"weight", "bias"} and head is not None


def test_full_disk_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="No space left"):
        save_point(tmp_path / "points" / "trial-0000-step-001", WEIGHTS, HEAD, READING)
    assert not list((tmp_path / "points").iterdir())


def test_head_is_restored_with_its_temperature(tmp_path: Path) -> None:
    save_point(tmp_path / "point", WEIGHTS, HEAD)
    _, head = read_point(tmp_path / "point")
    assert head is not None
    np.testing.assert_array_equal(head.weight, HEAD.weight)
    assert head.temperature == HEAD.temperature
    file = tmp_path / "point" / "head.npz"
    np.savez(file, weight=HEAD.weight, bias=HEAD.bias, temperature=np.ones(2))
    with pytest.raises(ValueError, match=r"head.npz: .*allowed: .*temperature"):
        read_point(tmp_path / "point")
