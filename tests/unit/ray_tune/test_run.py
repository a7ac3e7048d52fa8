"""Recording of a sweep's end: completed, failed, given up, or interrupted meanwhile."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raysweep.cluster.resources import Capacity, NodeSize
from raysweep.control.command import send
from raysweep.control.request import Request
from raysweep.controller.disk import measure_size
from raysweep.errors import InputError
from raysweep.ray_tune import run
from raysweep.results.reader import load
from raysweep.storage.folder import LocalFolder
from support.displays import ListDisplay
from support.sweeps import make, play, settings


@contextmanager
def _connected(*_: Any, **__: Any) -> Iterator[Capacity]:
    yield Capacity((NodeSize(1, 0),) * 2, num_present=2, num_alive=2)


@pytest.fixture
def end_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs a sweep without Ray and returns its status in the ledger.

    ``after_search`` is called at the end of the search, ``while_recorded`` before its end is in the
    ledger.
    """
    sweep, out = make(tmp_path, budget__trials="3")
    monkeypatch.setattr(run, "connected", _connected)
    monkeypatch.setattr(run, "head_address", lambda: "192.0.2.1:6379")
    monkeypatch.setattr(run, "open_session", lambda *_: object())

    def end(
        given_up: str | None = None,
        after_search: Callable[[], None] = lambda: None,
        while_recorded: Callable[[], None] = lambda: None,
    ) -> str:
        def search(*_: Any) -> None:
            play(sweep, finish=False)
            after_search()

        monkeypatch.setattr(run, "search", search)
        monkeypatch.setattr(run, "keep_readings", lambda *_: while_recorded())
        sweep.given_up = given_up
        plan: Any = SimpleNamespace(config=sweep.config)
        run.execute(plan, sweep.display, None, lambda session: sweep)
        return load(tmp_path).status

    end.printed = out.getvalue  # type: ignore[attr-defined]
    return end


def test_interruption_while_the_end_is_recorded(end_sweep: Any) -> None:
    assert end_sweep(while_recorded=lambda: os.kill(os.getpid(), signal.SIGINT)) == "completed"


def test_input_error_is_the_reason_in_the_ledger(end_sweep: Any, tmp_path: Path) -> None:
    def reject() -> None:
        raise InputError("the scores could not be stored")

    with pytest.raises(InputError, match="scores"):
        end_sweep(after_search=reject)
    results = load(tmp_path)
    assert (results.status, results.reason) == ("failed", "the scores could not be stored")
    assert not results.has_failed_for_good


def test_survivor_waits_while_the_sweep_runs(
    end_sweep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[str] = []

    @contextmanager
    def survived(location: str, head: str, stdout: int | None) -> Iterator[None]:
        watched.append(location)
        yield
        watched.remove(location)

    monkeypatch.setattr(run, "survived", survived)
    during_search: list[str] = []
    end_sweep(after_search=lambda: during_search.extend(watched))
    assert during_search == [str(tmp_path)]
    assert watched == []


def test_given_up_sweep_has_failed_for_good(end_sweep: Any, tmp_path: Path) -> None:
    assert end_sweep(given_up="3 of 3 trials failed") == "failed"
    results = load(tmp_path)
    assert (results.reason, results.has_failed_for_good) == ("3 of 3 trials failed", True)


def test_size_of_the_run_is_printed_at_the_end(end_sweep: Any, tmp_path: Path) -> None:
    end_sweep()
    (line,) = (line for line in end_sweep.printed().splitlines() if "checkpoints" in line)
    assert f"{measure_size(LocalFolder(tmp_path))} in {tmp_path}" in line
    assert "prune" not in line, "no checkpoint is left"


def test_local_folder_on_several_nodes_is_warned_of_once(end_sweep: Any) -> None:
    end_sweep()
    assert end_sweep.printed().count("warning: storage.runs is ") == 1


@pytest.fixture
def resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that checks and plans a resumed run with these missing stages, and does not execute it."""

    def check_and_plan(missing: list[str], **overrides: str) -> None:
        config, space = settings(tmp_path, "smoke", storage__runs=str(tmp_path), **overrides)
        ledger = SimpleNamespace(close=lambda: None)
        resumed: Any = SimpleNamespace(
            location="", ledger=ledger, points=[], prepared=object(), check_data=lambda *_: None
        )
        stages = [SimpleNamespace(kind=kind) for kind in missing]
        monkeypatch.setattr(
            run, "make_plan", lambda *_: SimpleNamespace(missing=stages, prepared=None)
        )
        monkeypatch.setattr(run, "execute", lambda *_: None)
        run.run(config, space, ListDisplay(), resumed=resumed)

    return check_and_plan


def test_resumed_run_needs_faiss_only_for_missing_neighbors(
    resume: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    resume([])
    resume(["examples"])
    with pytest.raises(InputError, match="faiss"):
        resume(["neighbors", "examples"])


def test_changed_setfit_model_of_a_resumed_run_is_checked_early(
    resume: Any, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="no such folder"):
        resume([], baselines__setfit=str(tmp_path / "missing"))


def test_requests_are_answered_while_guards_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, _ = make(tmp_path)
    play(sweep, finish=False)
    answers: list[str] = []

    def ask() -> None:
        answers.append(send(sweep.run, Request(action="workers", workers=1), seconds=20))

    def measure(*_: Any) -> Iterator[InputError]:
        asking = threading.Thread(target=ask)
        asking.start()
        while asking.is_alive():
            asking.join(0.05)
            yield InputError("not measured")

    monkeypatch.setattr("raysweep.export.guards.measure", measure)
    monkeypatch.setattr(run, "_find_missing_guards", lambda _: {sweep.front[0]: ["sts"]})
    run._measure_guards(sweep)
    assert len(answers) == 1
