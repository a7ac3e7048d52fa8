"""What a rung leaves for its points."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from raysweep.evaluation.operating_points import Head
from raysweep.results.readings import Reading
from raysweep.training.weights import read_point, save_point
from support.flushes import note_flushes

MODEL: Any = torch.nn.Linear(3, 2)
HEAD = Head(np.ones((2, 3), np.float32), np.zeros(2, np.float32), 2.9)
READING = Reading(((0, 1, "plain", None),), np.zeros((1, 4, 2), np.int64), np.ones((1, 4, 2), np.float32))


def test_a_rung_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power failure could leave the name with empty files, and the trial that goes on would keep them."""
    flushed = note_flushes(monkeypatch)
    folder = tmp_path / "points" / "trial-0000-step-001"
    save_point(folder, MODEL, HEAD, READING)
    within = re.compile(rf"{folder.parent}/\.{folder.name}\.[0-9a-f]{{8}}/?(.*)")
    names = {found[1] for each in flushed if (found := within.fullmatch(each))}
    assert names == {"", "trained.safetensors", "head.npz", "retrieved-dev.npz"}
    weights, head = read_point(folder)
    assert weights.keys() == {"weight", "bias"} and head is not None


def test_where_there_is_no_room_for_all_of_it_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", refuse)
    with pytest.raises(OSError, match="No space left"):
        save_point(tmp_path / "points" / "trial-0000-step-001", MODEL, HEAD, READING)
    assert not list((tmp_path / "points").iterdir())


def test_a_head_comes_back_with_its_temperature(tmp_path: Path) -> None:
    save_point(tmp_path / "point", MODEL, HEAD)
    _, head = read_point(tmp_path / "point")
    assert head is not None
    np.testing.assert_array_equal(head.weight, HEAD.weight)
    assert head.temperature == HEAD.temperature
    file = tmp_path / "point" / "head.npz"
    np.savez(file, weight=HEAD.weight, bias=HEAD.bias, temperature=np.ones(2))
    with pytest.raises(ValueError, match=r"head.npz: holds no weights .* and a temperature"):
        read_point(tmp_path / "point")
