"""A trial's checkpoint that an attacker has written: set aside, and nothing of it has run."""

import json
from pathlib import Path

import pytest
import torch

from raysweep.training import checkpoint
from support.hostile import Canary

SPOILT = {
    "pickled tensors": ("tensors", "PICKLE", "header"),
    "tensors with a huge header": ("tensors", (2**62).to_bytes(8, "little") + b"{}", "header"),
    "pickled values": ("values.json", "PICKLE", ""),
    "nested values": ("values.json", b"[" * 100_000, "values.json is nested too deeply"),
    "values that are none": ("values.json", b"[1]", "values.json holds no values of a checkpoint"),
    "values of no version": ("values.json", b"{}", "values.json holds no values of a checkpoint"),
    "other tensors": ("values.json", json.dumps({"schema": 1, "checksum": 0}).encode(), "not those that were written"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_checkpoint_that_was_tampered_with_is_set_aside(name: str, tmp_path: Path, canary: Canary) -> None:
    file, content, said = SPOILT[name]
    folder = tmp_path / "trial-0000"
    checkpoint.save(folder, 3, {"x": torch.zeros(2)}, {"n": 3})
    (folder / "000000003" / file).write_bytes(canary.pickle if isinstance(content, str) else content)
    with pytest.warns(UserWarning, match=f"{folder}/000000003: damaged, so the trial goes back .*{said}") as warned:
        assert checkpoint.load(folder) is None
    assert "\n" not in str(warned[0].message)
    (aside,) = folder.iterdir()
    assert aside.name.startswith("damaged-000000003-")


def test_older_checkpoints_are_not_removed_through_a_link(tmp_path: Path, canary: Canary) -> None:
    folder = tmp_path / "trial-0000"
    checkpoint.save(folder, 3, {"x": torch.zeros(2)}, {"n": 3})
    (folder / "000000001").symlink_to(canary.folder)
    checkpoint.save(folder, 4, {"x": torch.zeros(2)}, {"n": 4})
    assert [path.name for path in folder.iterdir()] == ["000000004"]
