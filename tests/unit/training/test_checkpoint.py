"""Checkpoints on disk: the latest whole one counts, and a damaged one does not."""

from pathlib import Path

import pytest
import torch

from raysweep.training import checkpoint


def test_the_latest_whole_checkpoint_counts(tmp_path: Path) -> None:
    """A process killed between writing one and removing the one before leaves two."""
    for number in (9, 10):
        checkpoint.save(tmp_path / str(number), number, {"x": torch.full((2,), float(number))}, {"n": number})
        (tmp_path / str(number) / f"{number:09d}").rename(tmp_path / f"{number:09d}")
        (tmp_path / str(number)).rmdir()
    (tmp_path / "000000011").mkdir()
    found = checkpoint.load(tmp_path)
    assert found is not None
    assert (found[0]["x"].tolist(), found[1]["n"]) == ([10, 10], 10)


@pytest.mark.parametrize("name", ["values.json", "tensors"])
def test_a_damaged_checkpoint_is_as_good_as_none(name: str, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 3, {"x": torch.zeros(2)}, {"n": 3})
    file = tmp_path / "000000003" / name
    file.write_bytes(file.read_bytes()[:10])
    with pytest.warns(UserWarning, match="000000003: damaged, so the trial starts anew"):
        assert checkpoint.load(tmp_path) is None
    checkpoint.save(tmp_path, 3, {"x": torch.ones(2)}, {"n": 3})
    found = checkpoint.load(tmp_path)
    assert found is not None and found[0]["x"].tolist() == [1, 1]
