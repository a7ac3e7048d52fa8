from pathlib import Path

import pytest

from raysweep.errors import InputError
from raysweep.storage import cache, scratch
from raysweep.storage.cache import cached
from raysweep.storage.folder import BucketFolder, open_folder
from support.s3_server import S3Server

KIB = 1024


@pytest.fixture
def store(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BucketFolder:
    """Two artifacts of 40 KiB, and a cache that holds 100."""
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path))
    monkeypatch.setenv(cache.LIMIT_VARIABLE, str(100 * KIB / 2**30))
    folder = open_folder(server.uri("cache", tmp_path.name))
    assert isinstance(folder, BucketFolder)
    for name in ("encoded-1", "encoded-2", "encoded-3"):
        folder.bucket.write(f"{name}/rows.npy", bytes(40 * KIB))
    return folder


def leave(tmp_path: Path, name: str, num_bytes: int) -> Path:
    """A copy of a process that is gone, or with a hidden name one that was killed while it downloaded."""
    place = tmp_path / "artifacts" / name
    place.mkdir(parents=True)
    (place / "rows.npy").write_bytes(bytes(num_bytes))
    return place


def test_a_copy_is_what_is_stored_and_is_downloaded_once(store: BucketFolder) -> None:
    place = cached(store, "encoded-1")
    assert (place / "rows.npy").read_bytes() == bytes(40 * KIB)
    store.bucket.delete(["encoded-1/rows.npy"])
    assert cached(store, "encoded-1") == place


def test_what_no_process_uses_makes_room(store: BucketFolder, tmp_path: Path) -> None:
    left = [leave(tmp_path, name, 30 * KIB) for name in ("examples-1", ".examples-2.0123abcd")]
    first = cached(store, "encoded-1")
    second = cached(store, "encoded-2")
    assert first.is_dir() and second.is_dir()
    assert not any(place.exists() for place in left)


def test_a_cache_that_what_is_in_use_fills_is_refused_with_the_size(store: BucketFolder) -> None:
    places = [cached(store, name) for name in ("encoded-1", "encoded-2")]
    with pytest.raises(InputError, match=rf"takes 0.000114; set {cache.LIMIT_VARIABLE} to that or more"):
        cached(store, "encoded-3")
    assert all((place / "rows.npy").stat().st_size == 40 * KIB for place in places)


def test_what_is_not_stored_is_not_there(store: BucketFolder) -> None:
    with pytest.raises(FileNotFoundError):
        cached(store, "encoded-9")
