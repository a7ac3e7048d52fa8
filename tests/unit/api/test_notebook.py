"""The display in notebooks, on a stand-in for IPython, and the length of what notebooks show of objects."""

import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from rich.text import Text

import raysweep
from raysweep.api.notebook import MAX_LINES, NotebookDisplay, make_display
from raysweep.api.progress import Progress

SCREEN = 1200  # characters


class Cell:
    """The output of a notebook's cell: the versions of the data that was displayed and updated."""

    def __init__(self) -> None:
        self.versions: list[dict[str, str]] = []

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> "Cell":
        assert raw and display_id
        assert not self.versions, "it is displayed only once"
        self.update(data, raw=True)
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.versions.append(data)

    @property
    def lines(self) -> list[str]:
        return self.versions[-1]["text/plain"].splitlines()


class Shell:
    kernel = object()


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    cell = Cell()
    # then its consoles display texts by default
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    ipython: Any = ModuleType("IPython")
    ipython.get_ipython = Shell
    ipython.display = ModuleType("IPython.display")
    ipython.display.display = cell.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return cell


def test_a_notebook_shows_warnings_the_last_events_and_the_status(cell: Cell) -> None:
    display = make_display(None)
    display.warn("beware of <b>")
    for number in range(20):
        display.line(f"event {number}")
    display.status("the text", view=Text("the view"))
    events = [f"event {number}" for number in range(20 - MAX_LINES, 20)]
    assert cell.lines == ["warning: beware of <b>", *events, "the view"]
    assert "beware of &lt;b&gt;" in cell.versions[-1]["text/html"]


def test_a_notebook_is_updated_at_most_once_a_second(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    display = NotebookDisplay()
    for number in range(30):
        display.status(f"status {number}")
        now[0] += 0.1
    assert 2 <= len(cell.versions) <= 4


def test_no_status_remains_after_the_work(cell: Cell) -> None:
    display = NotebookDisplay()
    with display.live():
        display.line("an event")
        display.status("27%, 0:34 left")
        assert cell.lines == ["an event", "27%, 0:34 left"]
    assert cell.lines == ["an event"]


def test_a_callback_replaces_the_display_of_the_notebook(cell: Cell) -> None:
    progress: list[Progress] = []
    make_display(progress.append).line("an event")
    assert [str(one) for one in progress] == ["an event"]
    assert cell.versions == []


@pytest.mark.parametrize("shell", [lambda: None, object], ids=["no shell", "a terminal"])
def test_without_a_notebook_nothing_is_shown(
    cell: Cell, shell: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", shell)
    make_display(None).line("an event")
    assert cell.versions == []


def test_reprs_fit_on_a_screen() -> None:
    sweep = raysweep.load_sweep("demo", {"budget.trials": 7})
    config = raysweep.trial_config(loss="triplet", learning_rate=1e-5)
    assert max(len(repr(value)) for value in (sweep, config)) <= SCREEN
    assert "'demo'" in repr(sweep) and "7 trials" in repr(sweep)
