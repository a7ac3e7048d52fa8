import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from raysweep.data.artifacts import Artifact, Store
from raysweep.data.shards import Shard, ShardSet
from raysweep.errors import InputError
from raysweep.storage import cache, scratch
from raysweep.storage.bucket import Bucket
from raysweep.storage.cache import cached
from raysweep.storage.folder import BucketFolder, open_folder
from support.s3_server import S3Server

KIB = 1024
SHARD = "00000-of-00001.arrow"
NESTED = "folder/data.json"


@pytest.fixture
def store(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BucketFolder:
    """Two artifacts of 40 KiB, and a cache that holds 100."""
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path))
    monkeypatch.setenv(cache.LIMIT_VARIABLE, str(100 * KIB / 2**30))
    folder = open_folder(server.uri("cache", tmp_path.name))
    assert isinstance(folder, BucketFolder)
    for name in ("encoded-1", "encoded-2", "encoded-3"):
        folder.bucket.write(f"{name}/rows.npy", bytes(40 * KIB))
        folder.bucket.write(f"{name}/{cache.MANIFEST}", b"{}")
    return folder


def leave(tmp_path: Path, name: str, num_bytes: int) -> Path:
    """Create a copy of an ended process, or under a hidden name, one of a killed download."""
    place = leave_part(tmp_path, name, num_bytes)
    if not name.startswith("."):
        (place / cache.MANIFEST).touch()
    return place


def leave_part(tmp_path: Path, name: str, num_bytes: int) -> Path:
    place = tmp_path / "artifacts" / name
    place.mkdir(parents=True)
    (place / "rows.npy").write_bytes(bytes(num_bytes))
    return place


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({}, "home/.cache/raysweep"),
        ({"XDG_CACHE_HOME": "xdg"}, "xdg/raysweep"),
        ({"XDG_CACHE_HOME": "xdg", scratch.VARIABLE: "own"}, "own"),
    ],
)
def test_cache_is_in_the_users_folder_for_caches(
    environment: dict[str, str], folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CACHE_HOME", scratch.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in environment.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    assert scratch.cache_folder() == tmp_path / folder


def test_artifact_is_downloaded_once(store: BucketFolder) -> None:
    place = cached(store, "encoded-1")
    assert (place / "rows.npy").read_bytes() == bytes(40 * KIB)
    store.bucket.delete(["encoded-1/rows.npy"])
    assert cached(store, "encoded-1") == place


def test_unused_copies_are_evicted(store: BucketFolder, tmp_path: Path) -> None:
    left = [leave(tmp_path, name, 30 * KIB) for name in ("examples-1", ".examples-2.0123abcd")]
    first = cached(store, "encoded-1")
    second = cached(store, "encoded-2")
    assert first.is_dir() and second.is_dir()
    assert not any(place.exists() for place in left)


def test_cache_full_of_used_copies_is_reported_with_the_needed_size(store: BucketFolder) -> None:
    places = [cached(store, name) for name in ("encoded-1", "encoded-2")]
    with pytest.raises(
        InputError, match=rf"encoded-3 .* 0.01 GiB; set {cache.LIMIT_VARIABLE} to at least 0.01"
    ):
        cached(store, "encoded-3")
    assert all((place / "rows.npy").stat().st_size == 40 * KIB for place in places)


def test_artifacts_larger_than_the_cache_are_rejected_before_the_download(
    store: BucketFolder, tmp_path: Path
) -> None:
    cache.check_room(store, ["encoded-1", "encoded-2", "encoded-1"])
    with pytest.raises(InputError, match=rf"0.01 GiB.*set {cache.LIMIT_VARIABLE} to at least 0.01"):
        cache.check_room(store, ["encoded-1", "encoded-2", "encoded-3"])
    cache.check_room(open_folder(tmp_path), ["encoded-1", "encoded-2", "encoded-3"])
    assert not (tmp_path / "artifacts").exists()


def test_needed_size_in_the_message_is_sufficient(
    store: BucketFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.bucket.write("encoded-4/rows.npy", bytes(11 * 2**20))  # 0.0107 GiB
    store.bucket.write(f"encoded-4/{cache.MANIFEST}", b"{}")
    with pytest.raises(InputError, match="need 0.02 GiB;"):
        cached(store, "encoded-4")
    monkeypatch.setenv(cache.LIMIT_VARIABLE, "0.02")
    assert cached(store, "encoded-4").is_dir()


def test_partial_copies_are_evicted_first(store: BucketFolder, tmp_path: Path) -> None:
    whole = leave(tmp_path, "examples-1", 30 * KIB)
    os.utime(whole, (0, 0))
    part = leave(tmp_path, ".examples-2.0123abcd", 50 * KIB)
    cached(store, "encoded-1")
    assert whole.is_dir() and not part.exists()


def test_partial_copy_is_downloaded_again(store: BucketFolder, tmp_path: Path) -> None:
    part = leave_part(tmp_path, "encoded-1", 10 * KIB)
    assert cached(store, "encoded-1") == part
    assert (part / "rows.npy").stat().st_size == 40 * KIB


def test_leftovers_of_a_killed_download_are_removed(store: BucketFolder, tmp_path: Path) -> None:
    part = leave(tmp_path, ".encoded-1.0123abcd", 90 * KIB)
    assert cached(store, "encoded-1").is_dir()
    assert not part.exists()


def test_process_killed_while_evicting_leaves_only_hidden_parts(
    store: BucketFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = leave(tmp_path, "examples-1", 90 * KIB)

    def be_killed(path: Path, **_: object) -> None:
        (path / cache.MANIFEST).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", be_killed)
        with pytest.raises(KeyboardInterrupt):
            cached(store, "encoded-1")
    assert not copy.exists()
    assert cached(store, "encoded-1").is_dir()
    assert not list(copy.parent.glob(".examples-1.????????"))


def test_partly_removed_artifact_is_missing(store: BucketFolder, tmp_path: Path) -> None:
    manifest = f"encoded-1/{cache.MANIFEST}"
    store.bucket.delete([manifest])
    with pytest.raises(FileNotFoundError, match="the artifact is missing or incomplete"):
        cached(store, "encoded-1")
    assert not (tmp_path / "artifacts" / "encoded-1").exists()
    store.bucket.write(manifest, b"{}")  # prepared again
    assert cached(store, "encoded-1").is_dir()


def test_unknown_artifact_is_missing(store: BucketFolder) -> None:
    with pytest.raises(FileNotFoundError):
        cached(store, "encoded-9")


def prepare(store: BucketFolder, name: str) -> bytes:
    """Store an artifact with the checksums of its files, and return the content of its shard."""
    shards = ShardSet(Artifact(store.location, name), 1)
    report = shards.write(0, Shard({"rows": np.arange(5000)}, {}))
    store.bucket.write(f"{name}/dataset.json", b"{}")
    store.bucket.write(f"{name}/{NESTED}", b"nested")
    Store(store.location).finish(Artifact(store.location, name), {}, {}, [report])
    return store.bucket.read(f"{name}/{SHARD}")


def use_as_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for lock in cache.in_use.values():
        lock.close()
    monkeypatch.setattr(cache, "in_use", {})


def flip_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_manifest_has_the_checksum_of_every_file(store: BucketFolder) -> None:
    content = prepare(store, "tokens-1")
    manifest = json.loads(store.bucket.read(f"tokens-1/{cache.MANIFEST}"))
    assert manifest[cache.CHECKSUMS] == {
        SHARD: zlib.crc32(content),
        "dataset.json": zlib.crc32(b"{}"),
        NESTED: zlib.crc32(b"nested"),
    }


def test_checksums_of_a_resumed_build_are_the_same(store: BucketFolder) -> None:
    prepare(store, "tokens-1")
    before = store.bucket.read(f"tokens-1/{cache.MANIFEST}")
    artifact = Artifact(store.location, "tokens-1")
    report = ShardSet(artifact, 1).read_reports()[0]
    Store(store.location).finish(artifact, {}, {}, [report])
    assert store.bucket.read(f"tokens-1/{cache.MANIFEST}") == before


@pytest.mark.parametrize("name", [SHARD, "dataset.json", NESTED, cache.MANIFEST])
@pytest.mark.parametrize("damage", [flip_bit, Path.unlink, lambda file: file.write_bytes(b"")])
def test_damaged_copy_is_fetched_again(
    store: BucketFolder,
    name: str,
    damage: Callable[[Path], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = prepare(store, "tokens-1")
    copy = cached(store, "tokens-1")
    original = (copy / name).read_bytes()
    use_as_new_process(monkeypatch)
    damage(copy / name)
    assert cached(store, "tokens-1") == copy
    assert (copy / name).read_bytes() == original
    assert (copy / SHARD).read_bytes() == content


def test_bit_flipped_on_the_way_is_noticed(
    store: BucketFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = prepare(store, "tokens-1")
    download = Bucket.download
    flipped: list[str] = []

    def flip_once(bucket: Bucket, name: str, path: Path, num_bytes: int) -> None:
        download(bucket, name, path, num_bytes)
        if name.endswith(SHARD) and not flipped:
            flipped.append(name)
            flip_bit(path)

    monkeypatch.setattr(Bucket, "download", flip_once)
    copy = cached(store, "tokens-1")
    assert flipped
    assert (copy / SHARD).read_bytes() == content


def test_shard_damaged_in_the_store_is_reported(store: BucketFolder) -> None:
    content = prepare(store, "tokens-1")
    store.bucket.write(f"tokens-1/{SHARD}", content[:-1] + b"?")
    with pytest.raises(InputError, match=rf"{store.location}/tokens-1/{SHARD}"):
        cached(store, "tokens-1")


@pytest.mark.parametrize("name", ["../../outside", "folder/../../../outside", "{folder}/outside"])
def test_checksums_of_files_outside_the_copy_are_rejected(
    store: BucketFolder, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"unchanged")
    prepare(store, "tokens-1")
    manifest = json.dumps({cache.CHECKSUMS: {name.format(folder=tmp_path): 1}})
    store.bucket.write(f"tokens-1/{cache.MANIFEST}", manifest.encode())
    with pytest.raises(InputError):
        cached(store, "tokens-1")
    assert outside.read_bytes() == b"unchanged"
