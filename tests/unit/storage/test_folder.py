import pickle
from pathlib import Path

import pytest

from raysweep.storage import scratch
from raysweep.storage.folder import Folder, LocalFolder, open_folder
from support.s3_server import S3Server


@pytest.fixture(params=["local", "bucket"])
def folder(request, server: S3Server, tmp_path: Path) -> Folder:
    return open_folder(tmp_path / "run" if request.param == "local" else server.uri("folders", tmp_path.name, "a run"))


def write(folder: Folder, name: str, content: str) -> None:
    path = folder.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_what_one_process_stores_another_fetches(folder: Folder) -> None:
    write(folder, "points/trial-0000/trained", "weights")
    write(folder, "points/trial-0000/dev", "scores")
    write(folder, "points/trial-00001/dev", "of another")
    folder.store("points")
    folder.let_go("points")
    other = pickle.loads(pickle.dumps(folder))
    point = other.within("points/trial-0000")
    assert point.location == f"{folder.location}/points/trial-0000"
    assert sorted(path.name for path in point.fetch().iterdir()) == ["dev", "trained"]
    assert other.fetch("points/trial-00001/dev").read_text() == "of another"
    assert point.sizes() == {"trained": 7, "dev": 6}
    assert folder.sizes("points") == {"trial-0000/trained": 7, "trial-0000/dev": 6, "trial-00001/dev": 10}


def test_fetching_brings_what_is_stored_and_no_more(folder: Folder) -> None:
    write(folder, "state/old", "1")
    folder.store("state")
    other = pickle.loads(pickle.dumps(folder))
    folder.remove("state/old")
    write(folder, "state/new", "2")
    folder.store("state/new")
    assert [path.name for path in other.fetch("state").iterdir()] == ["new"]
    assert not other.fetch("nothing").exists()


def test_removing_is_for_good_and_of_one_folder_only(folder: Folder) -> None:
    write(folder, "points/a/x", "1")
    write(folder, "points/ab", "2")
    folder.store()
    assert folder.exists("points/a") and folder.exists("points/ab") and not folder.exists("points/b")
    folder.remove("points/a")
    folder.remove("points/a")
    assert not folder.exists("points/a") and not (folder.path / "points/a").exists()
    assert folder.sizes() == {"points/ab": 1}


def test_copies_of_processes_that_are_gone_are_removed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path))
    scratch.process_folder.cache_clear()
    own = scratch.process_folder()
    left = own.with_name("999999999-12345678")
    left.mkdir()
    scratch.process_folder.cache_clear()
    again = scratch.process_folder()
    scratch.process_folder.cache_clear()
    assert again.parent == own.parent and own.exists() and not left.exists()


def test_links_are_removed_and_not_what_they_lead_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "file").touch()
    run = tmp_path / "run"
    (run / "points").mkdir(parents=True)
    (run / "points" / "folder").symlink_to(outside)
    (run / "points" / "file").symlink_to(outside / "file")
    (run / "checkpoints").symlink_to(outside)
    folder = LocalFolder(run)
    folder.remove("points/folder")
    folder.remove("points/file")
    for name in ("checkpoints/deep", "checkpoints/file", "../outside/file"):
        with pytest.raises(OSError, match="a symbolic link leads out of the folder"):
            folder.remove(name)
    folder.remove("checkpoints")
    assert not list((run / "points").iterdir()) and not (run / "checkpoints").exists()
    assert sorted(path.name for path in outside.iterdir()) == ["deep", "file"]
    through_a_link = tmp_path / "linked"
    through_a_link.symlink_to(run)
    LocalFolder(through_a_link).remove("points")
    assert not (run / "points").exists()
