import errno
import fcntl
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raysweep.storage import scratch
from raysweep.storage.folder import Folder, LocalFolder, open_folder
from support.flushes import note_flushes
from support.s3_server import S3Server


@pytest.fixture(params=["local", "bucket"])
def folder(request, server: S3Server, tmp_path: Path) -> Folder:
    return open_folder(
        tmp_path / "run"
        if request.param == "local"
        else server.uri("folders", tmp_path.name, "a run")
    )


def write(folder: Folder, name: str, content: str) -> None:
    path = folder.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_stored_files_are_fetched_by_another_process(folder: Folder) -> None:
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
    assert folder.sizes("points") == {
        "trial-0000/trained": 7,
        "trial-0000/dev": 6,
        "trial-00001/dev": 10,
    }


def test_fetch_brings_exactly_the_stored_files(folder: Folder) -> None:
    write(folder, "state/old", "1")
    folder.store("state")
    other = pickle.loads(pickle.dumps(folder))
    folder.remove("state/old")
    write(folder, "state/new", "2")
    folder.store("state/new")
    assert [path.name for path in other.fetch("state").iterdir()] == ["new"]
    assert not other.fetch("nothing").exists()


def test_remove_deletes_one_folder_permanently(folder: Folder) -> None:
    write(folder, "points/a/x", "1")
    write(folder, "points/ab", "2")
    folder.store()
    assert (
        folder.exists("points/a") and folder.exists("points/ab") and not folder.exists("points/b")
    )
    folder.remove("points/a")
    folder.remove("points/a")
    assert not folder.exists("points/a") and not (folder.path / "points/a").exists()
    assert folder.sizes() == {"points/ab": 1}


@pytest.fixture
def new_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Path]]:
    """Return a new folder for each call, as for processes that share a cache."""
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path))

    def folder_of_a_process() -> Path:
        scratch.process_folder.cache_clear()
        return scratch.process_folder()

    yield folder_of_a_process
    scratch.process_folder.cache_clear()


def test_copies_of_ended_processes_are_removed(new_scratch: Callable[[], Path]) -> None:
    own = new_scratch()
    program = "import os; from raysweep.storage import scratch; print(scratch.process_folder(), flush=True); os._exit(1)"
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    left = Path(killed.stdout.strip())
    assert left.parent == own.parent and left.is_dir()
    again = new_scratch()
    assert own.is_dir() and again.is_dir() and not left.exists()
    assert {each.suffix for each in own.parent.iterdir()} == {"", ".lock"}
    assert len(list(own.parent.glob("*.lock"))) == 2


def test_copies_of_another_container_are_kept(
    new_scratch: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process id is unknown here."""
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: 999_999_999)
        theirs = new_scratch()
    new_scratch()
    assert theirs.is_dir()


def test_nothing_is_removed_without_file_locks(
    new_scratch: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    first = new_scratch()
    second = new_scratch()
    assert first.is_dir() and second.is_dir()


def test_stored_files_and_their_names_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = LocalFolder(tmp_path)
    write(folder, "points/trial-0000/deep/trained", "weights")
    flushed = note_flushes(monkeypatch)
    folder.store("points/trial-0000")
    names = [
        "points/trial-0000/deep",
        "points/trial-0000/deep/trained",
        "points/trial-0000",
        "points",
        "",
    ]
    assert {str(tmp_path / name) for name in names} == set(flushed)
    flushed.clear()
    folder.store("points/trial-0000/deep/trained")
    assert {str(tmp_path / name) for name in names} == set(flushed)


def test_failed_flush_raises_unless_the_file_system_cannot_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = LocalFolder(tmp_path)
    write(folder, "file", "1")
    os.mkfifo(tmp_path / "pipe")

    def fail(number: int) -> Callable[[int], None]:
        def fsync(_: int) -> None:
            raise OSError(number, os.strerror(number))

        return fsync

    # as of a pipe, and of folders on some network file systems
    monkeypatch.setattr(os, "fsync", fail(errno.EINVAL))
    folder.store()
    monkeypatch.setattr(os, "fsync", fail(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        folder.store("file")


def test_links_are_removed_without_their_targets(tmp_path: Path) -> None:
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
