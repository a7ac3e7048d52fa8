"""Checkpoints on disk: the latest whole one counts, and a damaged one does not."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from raysweep.storage.bucket import StorageError
from raysweep.storage.folder import BucketFolder, open_folder
from raysweep.training import checkpoint
from support.flushes import note_flushes
from support.s3_server import S3Server


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
def test_a_damaged_checkpoint_is_as_good_as_none_and_set_aside(name: str, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 3, {"x": torch.zeros(2)}, {"n": 3})
    file = tmp_path / "000000003" / name
    file.write_bytes(file.read_bytes()[:10])
    with pytest.warns(UserWarning, match="000000003: damaged, so the trial goes back"):
        assert checkpoint.load(tmp_path) is None
    (aside,) = tmp_path.glob("damaged-000000003-*")
    assert (aside / name).stat().st_size == 10
    checkpoint.save(tmp_path, 3, {"x": torch.ones(2)}, {"n": 3})
    found = checkpoint.load(tmp_path)
    assert found is not None and found[0]["x"].tolist() == [1, 1]


def test_a_single_bit_is_noticed_and_the_checkpoint_before_counts(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 3, {"x": torch.zeros(2)}, {"n": 3})
    checkpoint.save(tmp_path / "later", 4, {"x": torch.ones(2)}, {"n": 4})
    later = tmp_path / "000000004"
    (tmp_path / "later" / later.name).rename(later)
    content = bytearray((later / "tensors").read_bytes())
    content[-1] ^= 1
    (later / "tensors").write_bytes(content)
    with pytest.warns(UserWarning, match="its tensors are not those that were written"):
        found = checkpoint.load(tmp_path)
    assert found is not None and found[1] == {"schema": 1, "n": 3}


def test_what_cannot_be_read_now_is_not_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, 3, {"x": torch.zeros(2)}, {"n": 3})

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", fail)
        with pytest.raises(OSError, match="Input/output error"):
            checkpoint.load(tmp_path)
    assert checkpoint.load(tmp_path) is not None


def test_a_checkpoint_that_the_disk_garbles_does_not_replace_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import safetensors.torch

    checkpoint.save(tmp_path, 3, {"x": torch.zeros(2)}, {"n": 3})
    save_file = safetensors.torch.save_file

    def garble(tensors: dict[str, torch.Tensor], path: Path) -> None:
        save_file({name: tensor + 1 for name, tensor in tensors.items()}, path)

    with monkeypatch.context() as patched:
        patched.setattr(safetensors.torch, "save_file", garble)
        with pytest.raises(OSError, match="not stored as it was written"):
            checkpoint.save(tmp_path, 4, {"x": torch.zeros(2)}, {"n": 4})
    assert [path.name for path in tmp_path.iterdir()] == ["000000003"]
    found = checkpoint.load(tmp_path)
    assert found is not None and found[1]["n"] == 3


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = note_flushes(monkeypatch)
    checkpoint.save(tmp_path, 3, {"x": torch.zeros(2)}, {"n": 3})
    unnamed = [each for each in flushed if Path(each).parent.name.startswith(".")]
    assert {Path(each).name for each in unnamed} == {"tensors", "values.json"}
    assert flushed[-1] == str(tmp_path)  # which holds the name


def test_the_checkpoint_before_goes_only_when_the_new_ones_name_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, 3, {"x": torch.zeros(2)}, {"n": 3})

    def fail(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink() == tmp_path:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        checkpoint.save(tmp_path, 4, {"x": torch.zeros(2)}, {"n": 4})
    assert (tmp_path / "000000003").is_dir()


class CutShort:
    """A store that keeps the first bytes of each file and says that all is well."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def put(self, name: str, path: Path) -> Any:
        return self.store.put(name, path.read_bytes()[:10])


@pytest.fixture
def stored(server: S3Server, tmp_path: Path) -> BucketFolder:
    """A trial's folder in a bucket, with one checkpoint. Who reads it has no patience."""
    folder = open_folder(server.uri("checkpoints", tmp_path.name), on_wait=[].append)
    assert isinstance(folder, BucketFolder)
    folder.bucket.patience = 0.0
    checkpoint.save(folder, 3, {"x": torch.zeros(2)}, {"n": 3})
    return folder


def test_a_checkpoint_in_a_bucket_replaces_the_one_before(stored: BucketFolder) -> None:
    checkpoint.save(stored, 4, {"x": torch.ones(2)}, {"n": 4})
    assert stored.names() == {"000000004"}
    found = checkpoint.load(stored)
    assert found is not None
    assert (found[0]["x"].tolist(), found[1]["n"]) == ([1, 1], 4)
    assert not list(stored.path.rglob("tensors"))  # this machine keeps no copy


def test_in_a_bucket_the_one_before_goes_only_when_all_of_the_new_one_has_arrived(
    stored: BucketFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(vars(stored.bucket), "_store", CutShort(stored.bucket._store))
        with pytest.raises(StorageError, match=r"10 of \d+ bytes arrived"):
            checkpoint.save(stored, 4, {"x": torch.ones(2)}, {"n": 4})
    assert "000000003" in stored.names()
    found = checkpoint.load(stored)
    assert found is not None and found[1]["n"] == 3


def test_a_bucket_that_cannot_be_read_now_loses_nothing(server: S3Server, stored: BucketFolder) -> None:
    before = stored.files()
    server.fail(share=1.0)
    try:
        with pytest.raises(StorageError, match="no answer for"):
            checkpoint.load(stored)
    finally:
        server.fail()
    assert stored.files() == before
    assert checkpoint.load(stored) is not None
