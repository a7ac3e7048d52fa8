"""What a folder of artifacts holds, and what is removed of it."""

import os
import time
from pathlib import Path

import pytest

from raysweep.data.artifacts import DONE, Store
from raysweep.data.inventory import remove, stored_artifacts
from raysweep.errors import InputError

UNFINISHED = f".neighbours-{'0' * 20}.5e55aa00"
OTHERS = ("my-notes", ".my-notes", ".neighbours-0", "encoded-1", f"models-{'0' * 20}")  # of which none is an artifact


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three artifacts of 1, 2 and 3 KiB, used 30, 20 and 10 days ago; and what killed builders and others left."""
    store = Store(tmp_path / "artifacts")
    for number in (1, 2, 3):
        content = bytes(1024 * number)

        def write(folder: Path, content: bytes = content) -> dict[str, int]:
            (folder / "rows.npy").write_bytes(content)
            return {}

        path = store.path("encoded", {"number": number})
        store.build(path, {"number": number}, write)
        moment = time.time() - (40 - 10 * number) * 86_400
        for file in path.iterdir():
            os.utime(file, (moment, moment))
    unfinished = store.folder / UNFINISHED
    unfinished.mkdir()
    (unfinished / "ids.npy").write_bytes(bytes(512))
    (store.folder / "smoke.prepared.json").write_text("{}")
    for name in OTHERS:
        (store.folder / name).mkdir()
        (store.folder / name / DONE).write_text("{}")
        os.utime(store.folder / name / DONE, (0, 0))
    return store


def test_artifacts_are_listed_by_their_last_use(store: Store) -> None:
    found = stored_artifacts(store.folder)
    paths = [store.path("encoded", {"number": number}) for number in (3, 2, 1)]
    assert [each.path for each in found] == [store.folder / UNFINISHED, *paths]
    assert [each.is_whole for each in found] == [False, True, True, True]
    assert [round(each.days_unused) for each in found] == [0, 10, 20, 30]
    for each, kibibytes in zip(found, (0.5, 3, 2, 1), strict=True):
        files = [path for path in each.path.iterdir() if path.name != DONE]
        assert sum(path.stat().st_size for path in files) == 1024 * kibibytes
        assert each.num_bytes == sum(path.stat().st_size for path in each.path.iterdir())


def test_what_is_used_is_not_unused(store: Store) -> None:
    path = store.path("encoded", {"number": 1})
    store.note_use(path)
    used = next(each for each in stored_artifacts(store.folder) if each.path == path)
    assert used.days_unused < 0.01


def test_only_what_is_asked_for_is_removed(store: Store) -> None:
    chosen = [each for each in stored_artifacts(store.folder) if each.days_unused > 15]
    assert remove(chosen) == chosen
    left = {path.name for path in store.folder.iterdir()}
    newest = store.path("encoded", {"number": 3}).name
    assert left == {newest, UNFINISHED, "smoke.prepared.json", *OTHERS}
    unfinished = store.folder / UNFINISHED
    remove(stored_artifacts(store.folder))
    assert unfinished.is_dir(), "somebody may be building it"
    two_days_ago = time.time() - 2 * 86_400
    for path in (unfinished / "ids.npy", unfinished):
        os.utime(path, (two_days_ago, two_days_ago))
    remove(stored_artifacts(store.folder))
    assert {path.name for path in store.folder.iterdir()} == {"smoke.prepared.json", *OTHERS}


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: no such folder"):
        stored_artifacts(tmp_path / "nowhere")
