"""A sweep that has ended says so in its ledger, whoever interrupts while it does."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raysweep.cluster.resources import Capacity, NodeSize
from raysweep.controller.node_meter import NodeMeter
from raysweep.controller.sweep import Sweep
from raysweep.errors import InputError
from raysweep.ray_tune import run
from raysweep.results.reader import load
from support.sweeps import make, play


class _Session:
    """A search that is over at once. ``at_end`` happens while the sweep winds up, ``after_search`` before."""

    at_end = staticmethod(lambda: None)
    after_search = staticmethod(lambda: None)

    @classmethod
    def open(cls, *_: Any) -> "_Session":
        return cls()

    def search(self, sweep: Sweep) -> None:
        play(sweep, finish=False)
        self.after_search()

    def keep_readings(self, sweep: Sweep) -> None:
        self.at_end()


@contextmanager
def _connected(*_: Any, **__: Any) -> Iterator[Capacity]:
    yield Capacity((NodeSize(1, 0),) * 2, num_present=2, num_alive=2)


@contextmanager
def _metered(budget: Any) -> Iterator[NodeMeter]:
    yield NodeMeter(budget)


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a sweep whose session behaves so; its status afterwards."""
    sweep, out = make(tmp_path, budget__trials="3")
    for name, stand_in in (("connected", _connected), ("metered", _metered), ("Session", _Session)):
        monkeypatch.setattr(run, name, stand_in)

    def end(given_up: str | None = None, **behavior: Any) -> str:
        sweep.given_up = given_up
        for name, action in behavior.items():
            monkeypatch.setattr(_Session, name, staticmethod(action))
        plan: Any = SimpleNamespace(config=sweep.config)
        run._run(plan, sweep.display, None, lambda session: sweep)
        return load(tmp_path).status

    end.printed = out.getvalue  # type: ignore[attr-defined]
    return end


def test_an_interruption_while_a_sweep_winds_up_takes_nothing_away(ended: Any, tmp_path: Path) -> None:
    assert ended(at_end=lambda: os.kill(os.getpid(), signal.SIGINT)) == "completed"


def test_what_its_user_can_mend_is_the_reason_in_the_ledger_too(ended: Any, tmp_path: Path) -> None:
    def refuse() -> None:
        raise InputError("the scores could not be stored")

    with pytest.raises(InputError, match="the scores could not be stored"):
        ended(after_search=refuse)
    results = load(tmp_path)
    assert (results.status, results.reason) == ("failed", "the scores could not be stored")
    assert not results.has_failed_for_good


def test_a_sweep_that_is_given_up_has_failed_for_good(ended: Any, tmp_path: Path) -> None:
    assert ended(given_up="3 of 3 trials failed") == "failed"
    results = load(tmp_path)
    assert (results.reason, results.has_failed_for_good) == ("3 of 3 trials failed", True)


def test_a_local_folder_on_several_nodes_is_warned_of_once(ended: Any) -> None:
    ended()
    assert ended.printed().count("warning: storage.runs is ") == 1
