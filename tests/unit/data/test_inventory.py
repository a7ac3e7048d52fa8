"""What a folder of artifacts holds, and what is removed of it."""

import os
import time
from pathlib import Path

import pytest

from raysweep.data.artifacts import MANIFEST, Store
from raysweep.data.inventory import remove, stored_artifacts
from raysweep.errors import InputError
from raysweep.storage.folder import open_folder

UNFINISHED = f".neighbors-{'0' * 20}.5e55aa00"
OTHERS = ("my-notes", ".my-notes", ".neighbors-0", "encoded-1", f"models-{'0' * 20}")  # of which none is an artifact


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three artifacts of 1, 2 and 3 KiB, used 30, 20 and 10 days ago; and what killed builders and others left."""
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


def test_artifacts_are_listed_by_their_last_use(store: Store) -> None:
    found = stored_artifacts(store.root)
    names = [store.artifact("encoded", {"number": number}).name for number in (3, 2, 1)]
    assert [each.name for each in found] == [UNFINISHED, *names]
    assert [each.is_whole for each in found] == [False, True, True, True]
    assert [round(each.days_unused) for each in found] == [0, 10, 20, 30]
    for each, kibibytes in zip(found, (0.5, 3, 2, 1), strict=True):
        files = list((store.root.path / each.name).iterdir())
        assert sum(path.stat().st_size for path in files if path.name != MANIFEST) == 1024 * kibibytes
        assert each.num_bytes == sum(path.stat().st_size for path in files)


def test_what_is_used_is_not_unused(store: Store) -> None:
    artifact = store.artifact("encoded", {"number": 1})
    store.note_use(artifact)
    used = next(each for each in stored_artifacts(store.root) if each.name == artifact.name)
    assert used.days_unused < 0.01


def test_only_what_is_asked_for_is_removed(store: Store) -> None:
    chosen = [each for each in stored_artifacts(store.root) if each.days_unused > 15]
    assert remove(chosen, store.root) == chosen
    left = {path.name for path in store.root.path.iterdir()}
    newest = store.artifact("encoded", {"number": 3}).name
    assert left == {newest, UNFINISHED, "smoke.prepared.json", *OTHERS}
    unfinished = store.root.path / UNFINISHED
    remove(stored_artifacts(store.root), store.root)
    assert unfinished.is_dir(), "somebody may be building it"
    two_days_ago = time.time() - 2 * 86_400
    for path in (unfinished / "ids.npy", unfinished):
        os.utime(path, (two_days_ago, two_days_ago))
    remove(stored_artifacts(store.root), store.root)
    assert {path.name for path in store.root.path.iterdir()} == {"smoke.prepared.json", *OTHERS}


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: no such folder"):
        stored_artifacts(open_folder(tmp_path / "nowhere"))
