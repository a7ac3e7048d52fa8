"""Turns: one process at a time, also after failures."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from raysweep.storage.folder import Folder, LocalFolder, open_folder
from raysweep.storage.lease import turn
from support.s3_server import S3Server


class Holder:
    """Takes the turn in its own thread, and keeps it until it is released or fails."""

    def __init__(self, folder: Folder) -> None:
        self.messages: list[str] = []
        self.holds = threading.Event()
        self.may_go = threading.Event()
        self.fails = False
        self._thread = threading.Thread(target=self._hold, args=[folder], daemon=True)
        self._thread.start()

    def _hold(self, folder: Folder) -> None:
        try:
            with turn(folder, "encoded-1", self.messages.append):
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
    return open_folder(
        server.uri("turns", request.node.name.replace("[", "-").replace("]", "")), lambda text: None
    )


def wait_until(condition: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(600):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError("it does not come about")


def test_turns_are_exclusive_also_after_a_failure(folder: Folder) -> None:
    first = Holder(folder)
    assert first.holds.wait(60)
    second = Holder(folder)
    wait_until(lambda: second.messages)
    assert not second.holds.is_set()
    first.fails = True
    first.end()
    assert second.holds.wait(60)
    third = Holder(folder)  # comes when the first one's lock is gone, and the second one's is not
    wait_until(lambda: third.messages)
    assert not third.holds.is_set()
    second.end()
    assert third.holds.wait(60)
    third.end()


def test_read_only_folder_does_not_block(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("in the way of the folder")
    with turn(LocalFolder(place), "encoded-1", lambda text: None):
        pass
