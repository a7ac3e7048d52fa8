"""Checkpoints on disk and in buckets: the latest complete one counts, and damaged ones are set aside."""

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


def test_latest_complete_checkpoint_counts(tmp_path: Path) -> None:
    """A process killed between writing a checkpoint and removing the previous one leaves two."""
    for number in (9, 10):
        checkpoint.write(
            tmp_path / str(number), number, {"x": torch.full((2,), float(number))}, {"n": number}
        )
        (tmp_path / str(number) / f"{number:09d}").rename(tmp_path / f"{number:09d}")
        (tmp_path / str(number)).rmdir()
    (tmp_path / "000000011").mkdir()
    latest = checkpoint.read(tmp_path)
    assert latest is not None
    assert (latest[0]["x"].tolist(), latest[1]["n"]) == ([10, 10], 10)


@pytest.mark.parametrize("name", ["values.json", "tensors"])
def test_damaged_checkpoint_is_set_aside(name: str, tmp_path: Path) -> None:
    checkpoint.write(tmp_path, 3, {"x": torch.zeros(2)}, {"n": 3})
    file = tmp_path / "000000003" / name
    file.write_bytes(file.read_bytes()[:10])
    with pytest.warns(UserWarning, match="000000003: damaged"):
        assert checkpoint.read(tmp_path) is None
    (aside,) = tmp_path.glob("damaged-000000003-*")
    assert (aside / name).stat().st_size == 10
    checkpoint.write(tmp_path, 3, {"x": torch.ones(2)}, {"n": 3})
    latest = checkpoint.read(tmp_path)
    assert latest is not None and latest[0]["x"].tolist() == [1, 1]


def test_flipped_bit_is_detected_and_previous_checkpoint_counts(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, 3, {"x": torch.zeros(2)}, {"n": 3})
    checkpoint.write(tmp_path / "later", 4, {"x": torch.ones(2)}, {"n": 4})
    later = tmp_path / "000000004"
    (tmp_path / "later" / later.name).rename(later)
    content = bytearray((later / "tensors").read_bytes())
    content[-1] ^= 1
    (later / "tensors").write_bytes(content)
    with pytest.warns(UserWarning, match="000000004: damaged.*checksum"):
        latest = checkpoint.read(tmp_path)
    assert latest is not None and latest[1] == {"schema": 1, "n": 3}


def test_unreadable_checkpoint_is_not_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.write(tmp_path, 3, {"x": torch.zeros(2)}, {"n": 3})

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", fail)
        with pytest.raises(OSError, match="Input/output error"):
            checkpoint.read(tmp_path)
    assert checkpoint.read(tmp_path) is not None


def test_checkpoint_garbled_by_the_disk_does_not_replace_the_previous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import safetensors.torch

    checkpoint.write(tmp_path, 3, {"x": torch.zeros(2)}, {"n": 3})
    save_file = safetensors.torch.save_file

    def garble(tensors: dict[str, torch.Tensor], path: Path) -> None:
        save_file({name: tensor + 1 for name, tensor in tensors.items()}, path)

    with monkeypatch.context() as patch:
        patch.setattr(safetensors.torch, "save_file", garble)
        with pytest.raises(OSError, match="000000004"):
            checkpoint.write(tmp_path, 4, {"x": torch.zeros(2)}, {"n": 4})
    assert [path.name for path in tmp_path.iterdir()] == ["000000003"]
    latest = checkpoint.read(tmp_path)
    assert latest is not None and latest[1]["n"] == 3


def test_checkpoint_is_flushed_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = note_flushes(monkeypatch)
    checkpoint.write(tmp_path, 3, {"x": torch.zeros(2)}, {"n": 3})
    unnamed = [path for path in flushed if Path(path).parent.name.startswith(".")]
    assert {Path(path).name for path in unnamed} == {"tensors", "values.json"}
    assert flushed[-1] == str(tmp_path)  # which holds the name


def test_previous_checkpoint_is_removed_only_after_the_new_name_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.write(tmp_path, 3, {"x": torch.zeros(2)}, {"n": 3})

    def fail(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink() == tmp_path:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        checkpoint.write(tmp_path, 4, {"x": torch.zeros(2)}, {"n": 4})
    assert (tmp_path / "000000003").is_dir()


class TruncatingStore:
    """A store that keeps only the first bytes of each file and reports success."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def put(self, name: str, path: Path) -> Any:
        return self.store.put(name, path.read_bytes()[:10])


@pytest.fixture
def stored(server: S3Server, tmp_path: Path) -> BucketFolder:
    """A trial's folder in a bucket, with one checkpoint, read without retries."""
    folder = open_folder(server.uri("checkpoints", tmp_path.name), on_wait=[].append)
    assert isinstance(folder, BucketFolder)
    folder.bucket.patience = 0.0
    checkpoint.write(folder, 3, {"x": torch.zeros(2)}, {"n": 3})
    return folder


def test_checkpoint_in_a_bucket_replaces_the_previous_one(stored: BucketFolder) -> None:
    checkpoint.write(stored, 4, {"x": torch.ones(2)}, {"n": 4})
    assert stored.names() == {"000000004"}
    latest = checkpoint.read(stored)
    assert latest is not None
    assert (latest[0]["x"].tolist(), latest[1]["n"]) == ([1, 1], 4)
    assert not list(stored.path.rglob("tensors"))  # this machine keeps no copy


def test_previous_checkpoint_is_removed_from_a_bucket_only_after_the_new_one_has_arrived(
    stored: BucketFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(vars(stored.bucket), "_store", TruncatingStore(stored.bucket._store))
        with pytest.raises(StorageError, match=r"10 of \d+ bytes arrived"):
            checkpoint.write(stored, 4, {"x": torch.ones(2)}, {"n": 4})
    assert "000000003" in stored.names()
    latest = checkpoint.read(stored)
    assert latest is not None and latest[1]["n"] == 3


def test_unreachable_bucket_loses_nothing(server: S3Server, stored: BucketFolder) -> None:
    before = stored.files()
    server.fail(share=1.0)
    try:
        with pytest.raises(StorageError, match="no response for"):
            checkpoint.read(stored)
    finally:
        server.fail()
    assert stored.files() == before
    assert checkpoint.read(stored) is not None
