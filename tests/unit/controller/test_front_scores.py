"""Scoring of the front on the test split."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raysweep.controller.failures import RaisedError
from raysweep.controller.front_scores import FrontRung, FrontScores, ScoredRung
from raysweep.controller.node_health import WorkerNode
from raysweep.controller.sweep import Sweep
from raysweep.results.ledger import Ledger, read_events
from raysweep.results.reader import load
from raysweep.results.types import Calibration, Stage
from raysweep.terminal import duration
from support.sweeps import assemble, make, play, settings

CALIBRATION = {
    "split": "test",
    "temperature": 2.9,
    "cross_entropy_before": 0.377,
    "cross_entropy": 0.203,
    "error_before": 0.08,
    "error": 0.01,
}


def on_test(rung: FrontRung) -> ScoredRung:
    """Invented scores of a rung's points, and the calibration of its head, as a worker describes them."""
    scores = {
        "polarity": 0.7,
        "polarity_std": 0.1,
        "similarity": 0.4,
        "similarity_std": 0.1,
        "retention": 0.9,
    }
    points = [
        {"kind": kind, "value": value, "split": "test", "width": 384, **scores}
        for kind, value in rung.keys
    ]
    return ScoredRung(
        points,
        CALIBRATION,
        [{"kind": "labeled", "value": 0.3, "split": "test", "width": 386, **scores}],
    )


def searched(folder: Path) -> Sweep:
    """Return a sweep after its search, with several rungs on the front."""
    sweep, _ = make(folder, early_stopping__policy="none")
    play(sweep, finish=False)
    assert len(sweep.front) > 2
    return sweep


def resumed(folder: Path) -> Sweep:
    sweep, _ = assemble(*settings(folder, early_stopping__policy="none"), Ledger(folder))
    sweep.ledger.open()
    sweep.replay(list(read_events(folder / "ledger.jsonl")))
    return sweep


def names_of_front(sweep: Sweep) -> list[tuple[Any, ...]]:
    return sorted((point.trial, point.step, point.kind) for point in sweep.front)


def names_on_test(folder: Path) -> list[tuple[Any, ...]]:
    return sorted(
        (point.trial, point.step, point.kind)
        for point in load(folder).points
        if point.split == "test"
    )


def test_each_rung_of_the_front_is_assigned_once(tmp_path: Path) -> None:
    sweep = searched(tmp_path)
    scores = FrontScores(sweep, has_test=True)
    assert not scores.have_begun
    handed = []
    while (rung := scores.next()) is not None:
        handed += [(rung.trial, rung.step, kind) for kind, _ in rung.keys]
    assert scores.have_begun
    assert sorted(handed) == names_of_front(sweep)
    sweep.ledger.close()


def test_nothing_is_scored_without_a_test_split(tmp_path: Path) -> None:
    sweep = searched(tmp_path)
    scores = FrontScores(sweep, has_test=False)
    assert scores.next() is None
    assert scores.have_begun
    assert load(tmp_path).stage is None
    sweep.ledger.close()


def test_scores_are_stored_on_arrival_and_resume_scores_the_others(tmp_path: Path) -> None:
    sweep = searched(tmp_path)
    front = names_of_front(sweep)
    scores = FrontScores(sweep, has_test=True)
    first, second = scores.next(), scores.next()
    assert first is not None
    assert second is not None
    num_rungs = len({(trial, step) for trial, step, _ in front})
    assert load(tmp_path).stage == Stage("test", num_rungs)
    scores.take(second, on_test(second))
    assert load(tmp_path).stage == Stage("test", num_rungs, num_done=1)
    expected = [(second.trial, second.step, kind) for kind, _ in second.keys]
    assert names_on_test(tmp_path) == sorted(expected)
    (labeled,) = load(tmp_path).labeled
    assert (labeled.trial, labeled.step, labeled.kind) == (second.trial, second.step, "labeled")
    assert load(tmp_path).calibrations == (
        Calibration(trial=second.trial, step=second.step, **CALIBRATION),
    )
    sweep.ledger.close()  # as a kill does: the first is under way, and the others wait

    sweep = resumed(tmp_path)
    assert sweep.assign() is None
    scores = FrontScores(sweep, has_test=True)

    while (rung := scores.next()) is not None:
        assert load(tmp_path).stage is not None
        assert (rung.trial, rung.step) != (second.trial, second.step)
        scores.take(rung, on_test(rung))
    assert names_on_test(tmp_path) == front
    sweep.ledger.close()
    assert FrontScores(resumed(tmp_path), has_test=True).next() is None


def test_failed_rung_warns_once_and_has_no_scores(tmp_path: Path) -> None:
    sweep, out = make(tmp_path, early_stopping__policy="none")
    play(sweep, finish=False)
    scores = FrontScores(sweep, has_test=True)
    rung = scores.next()
    assert rung is not None
    scores.fail(rung, "its weights are gone")
    # as Tune's searcher hears of every trial that failed
    scores.fail(rung, "its process could not be started")
    warning = f"warning: test: trial {rung.trial} not scored at rung {rung.step} (reason=its weights are gone)"
    assert [line for line in out.getvalue().splitlines() if "not scored" in line] == [warning]
    sweep.ledger.close()
    assert names_on_test(tmp_path) == []
    assert FrontScores(resumed(tmp_path), has_test=True).next() == rung


def test_rung_that_raised_an_error_is_left_to_score(tmp_path: Path) -> None:
    sweep = searched(tmp_path)
    sweep.nodes.list_usable = lambda: {"a", "b"}
    scores = FrontScores(sweep, has_test=True)
    rung = scores.next()
    assert rung is not None
    num_left = sweep.num_to_score
    scores.fail_on_node(rung, RaisedError("RuntimeError: no GPU", None, WorkerNode("a", "node a")))
    assert sweep.num_to_score == num_left + 1
    *_, last = iter(scores.next, None)
    assert last == rung
    sweep.ledger.close()


def test_status_counts_scored_rungs(tmp_path: Path) -> None:
    sweep, out = make(tmp_path, early_stopping__policy="none")
    play(sweep, finish=False)
    sweep.display.seconds_between_lines = 0.0  # type: ignore[attr-defined]
    scores = FrontScores(sweep, has_test=True)
    scores.show()
    assert "test:" not in out.getvalue()
    rungs = []
    while (rung := scores.next()) is not None:
        rungs.append(rung)
    for done, rung in enumerate(rungs):
        scores.show()
        assert f"test: {done} of {len(rungs)} rungs scored" in out.getvalue().splitlines()[-1]
        scores.take(rung, on_test(rung))
    written = out.getvalue()
    scores.show()
    assert out.getvalue() == written
    sweep.ledger.close()


def test_time_left_counts_down_until_the_next_rung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("raysweep.controller.front_scores.time", clock)
    sweep, out = make(tmp_path, early_stopping__policy="none")
    play(sweep, finish=False)
    sweep.display.seconds_between_lines = 0.0  # type: ignore[attr-defined]
    scores = FrontScores(sweep, has_test=True)
    rungs = list(iter(scores.next, None))
    now[0] += 30
    scores.take(rungs[0], on_test(rungs[0]))
    left = 30 * (len(rungs) - 1)
    for seconds, expected in ((0, left), (20, left - 20), (left + 60, 0)):
        now[0] = 130.0 + seconds
        scores.show()
        assert f", {duration(expected)} left" in out.getvalue().splitlines()[-1]
    sweep.ledger.close()
