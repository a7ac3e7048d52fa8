"""Turns at the same work: one process at a time, whoever fails or leaves."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from raysweep.storage.folder import Folder, LocalFolder, open_folder
from raysweep.storage.lease import turn
from support.s3_server import S3Server


class Holder:
    """Takes the turn in a thread of its own, and keeps it until it is let go, or fails with it."""

    def __init__(self, folder: Folder) -> None:
        self.said: list[str] = []
        self.holds = threading.Event()
        self.may_go = threading.Event()
        self.fails = False
        self._thread = threading.Thread(target=self._hold, args=[folder], daemon=True)
        self._thread.start()

    def _hold(self, folder: Folder) -> None:
        try:
            with turn(folder, "encoded-1", self.said.append):
                self.holds.set()
                self.may_go.wait(60)
                if self.fails:
                    raise OSError("what it holds the turn for went wrong")
        except OSError:
            pass

    def end(self) -> None:
        self.may_go.set()
        self._thread.join(60)


@pytest.fixture(params=["folder", "bucket"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "folder":
        return LocalFolder(tmp_path)
    server: S3Server = request.getfixturevalue("server")
    return open_folder(server.uri("turns", request.node.name.replace("[", "-").replace("]", "")), lambda text: None)


def wait_until(condition: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(600):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError("it does not come about")


def test_one_at_a_time_also_after_a_holder_that_failed(folder: Folder) -> None:
    first = Holder(folder)
    assert first.holds.wait(60)
    second = Holder(folder)
    wait_until(lambda: second.said)
    assert not second.holds.is_set()
    first.fails = True
    first.end()
    assert second.holds.wait(60)
    third = Holder(folder)  # comes when the first one's lock is gone, and the second one's is not
    wait_until(lambda: third.said)
    assert not third.holds.is_set()
    second.end()
    assert third.holds.wait(60)
    third.end()


def test_a_folder_that_nobody_may_write_to_holds_nobody_up(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("in the way of the folder")
    with turn(LocalFolder(place), "encoded-1", lambda text: None):
        pass
