"""Listing and removing the artifacts of a folder."""

import os
import time
from pathlib import Path

import pytest

from raysweep.data.artifacts import MANIFEST, Store, list_artifacts, remove_artifacts
from raysweep.errors import InputError
from raysweep.storage.folder import open_folder

UNFINISHED = f".neighbors-{'0' * 20}.5e55aa00"
# folders that are not artifacts
OTHERS = (
    "my-notes",
    ".my-notes",
    ".neighbors-0",
    "encoded-1",
    f"models-{'0' * 20}",
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three artifacts of 1, 2 and 3 KiB, used 30, 20 and 10 days ago, an unfinished one, and other files."""
    store = Store(str(tmp_path / "artifacts"))
    for number in (1, 2, 3):
        content = bytes(1024 * number)
        artifact = store.artifact("encoded", {"number": number})
        store.root.put(f"{artifact.name}/rows.npy", content)
        store.finish(artifact, {"number": number}, {})
        moment = time.time() - (40 - 10 * number) * 86_400
        for file in artifact.folder.iterdir():
            os.utime(file, (moment, moment))
    unfinished = store.root.path / UNFINISHED
    unfinished.mkdir()
    (unfinished / "ids.npy").write_bytes(bytes(512))
    (store.root.path / "smoke.prepared.json").write_text("{}")
    for name in OTHERS:
        (store.root.path / name).mkdir()
        (store.root.path / name / MANIFEST).write_text("{}")
        os.utime(store.root.path / name / MANIFEST, (0, 0))
    return store


def test_artifacts_are_sorted_by_last_use(store: Store) -> None:
    artifacts = list_artifacts(store.root)
    names = [store.artifact("encoded", {"number": number}).name for number in (3, 2, 1)]
    assert [artifact.name for artifact in artifacts] == [UNFINISHED, *names]
    assert [artifact.is_complete for artifact in artifacts] == [False, True, True, True]
    assert [round(artifact.days_unused) for artifact in artifacts] == [0, 10, 20, 30]
    for artifact, kibibytes in zip(artifacts, (0.5, 3, 2, 1), strict=True):
        files = list((store.root.path / artifact.name).iterdir())
        assert (
            sum(path.stat().st_size for path in files if path.name != MANIFEST) == 1024 * kibibytes
        )
        assert artifact.num_bytes == sum(path.stat().st_size for path in files)


def test_note_use_updates_the_last_use(store: Store) -> None:
    artifact = store.artifact("encoded", {"number": 1})
    store.note_use(artifact)
    stored = next(stored for stored in list_artifacts(store.root) if stored.name == artifact.name)
    assert stored.days_unused < 0.01


def test_only_the_given_artifacts_are_removed(store: Store) -> None:
    unused = [artifact for artifact in list_artifacts(store.root) if artifact.days_unused > 15]
    assert remove_artifacts(unused, store.root) == unused
    names = {path.name for path in store.root.path.iterdir()}
    newest = store.artifact("encoded", {"number": 3}).name
    assert names == {newest, UNFINISHED, "smoke.prepared.json", *OTHERS}


def test_recent_unfinished_artifacts_are_kept(store: Store) -> None:
    unfinished = store.root.path / UNFINISHED
    remove_artifacts(list_artifacts(store.root), store.root)
    assert unfinished.is_dir(), "another process may be building it"
    two_days_ago = time.time() - 2 * 86_400
    for path in (unfinished / "ids.npy", unfinished):
        os.utime(path, (two_days_ago, two_days_ago))
    remove_artifacts(list_artifacts(store.root), store.root)
    assert {path.name for path in store.root.path.iterdir()} == {"smoke.prepared.json", *OTHERS}


@pytest.mark.parametrize(
    "kind", ["sentences", "tokens", "encoded", "neighbors", "examples", "scores", "teacher"]
)
def test_every_kind_of_artifact_is_listed(kind: str, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    artifact = store.artifact(kind, {})
    store.finish(artifact, {}, {})
    assert [stored.name for stored in list_artifacts(store.root)] == [artifact.name]


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: no such folder"):
        list_artifacts(open_folder(tmp_path / "nowhere"))
