"""Tampered checkpoints are set aside, and nothing in them runs."""

import json
from pathlib import Path

import pytest
import torch

from raysweep.training import checkpoint
from support.hostile import Canary

TAMPERED = {
    "pickled tensors": ("tensors", "PICKLE", "header"),
    "tensors with a huge header": ("tensors", (2**62).to_bytes(8, "little") + b"{}", "header"),
    "pickled values": ("values.json", "PICKLE", ""),
    "nested values": ("values.json", b"[" * 100_000, "values.json is nested too deeply"),
    "values of another type": ("values.json", b"[1]", "values.json does not contain the values"),
    "values without a schema": ("values.json", b"{}", "values.json does not contain the values"),
    "other tensors": ("values.json", json.dumps({"schema": 1, "checksum": 0}).encode(), "checksum"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered_checkpoint_is_set_aside(name: str, tmp_path: Path, canary: Canary) -> None:
    file, content, problem = TAMPERED[name]
    folder = tmp_path / "trial-0000"
    checkpoint.write(folder, 3, {"x": torch.zeros(2)}, {"n": 3})
    (folder / "000000003" / file).write_bytes(
        canary.pickle if isinstance(content, str) else content
    )
    with pytest.warns(UserWarning, match=f"{folder}/000000003: damaged.*{problem}") as warnings:
        assert checkpoint.read(folder) is None
    assert "\n" not in str(warnings[0].message)
    (aside,) = folder.iterdir()
    assert aside.name.startswith("damaged-000000003-")


def test_older_checkpoint_that_is_a_link_is_unlinked_only(tmp_path: Path, canary: Canary) -> None:
    folder = tmp_path / "trial-0000"
    checkpoint.write(folder, 3, {"x": torch.zeros(2)}, {"n": 3})
    (folder / "000000001").symlink_to(canary.folder)
    checkpoint.write(folder, 4, {"x": torch.zeros(2)}, {"n": 4})
    assert [path.name for path in folder.iterdir()] == ["000000004"]
