"""Artifacts and the cache of a node are readable by their owner only, whatever the umask."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from raysweep.storage import scratch
from raysweep.storage.cache import MANIFEST, cached
from raysweep.storage.folder import BucketFolder, LocalFolder, open_folder
from raysweep.storage.lease import turn
from raysweep.storage.private import make_private
from support.s3_server import S3Server


@pytest.fixture(autouse=True)
def permissive_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def read_modes(folder: Path) -> set[int]:
    """Return the permissions of a folder and of the folders in it."""
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    return {path.stat().st_mode & 0o777 for path in folders}


def test_missing_parents_are_private_and_existing_ones_unchanged(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    make_private(shared / "a" / "b")
    assert shared.stat().st_mode & 0o777 == 0o755
    assert read_modes(shared / "a") == {0o700}


def test_artifacts_are_private_even_in_a_shared_folder(tmp_path: Path) -> None:
    shared = tmp_path / "artifacts"
    shared.mkdir(mode=0o777)
    store = LocalFolder(shared)
    with turn(store, "encoded-1", print):
        store.put("encoded-1/read/00000-of-00001.arrow", b"rows")
        store.put("encoded-1/artifact.json", b"{}")
    assert read_modes(shared / "encoded-1") == {0o700}


def test_cache_of_a_node_is_private(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path / "cache"))
    store = open_folder(server.uri("private", tmp_path.name))
    assert isinstance(store, BucketFolder)
    store.bucket.write("encoded-1/rows.arrow", b"rows")
    store.bucket.write(f"encoded-1/{MANIFEST}", b"{}")
    cached(store, "encoded-1")
    assert read_modes(tmp_path / "cache") == {0o700}


def test_folder_of_a_process_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path / "cache"))
    scratch.process_folder.cache_clear()
    scratch.process_folder()
    scratch.process_folder.cache_clear()
    assert read_modes(tmp_path / "cache") == {0o700}
