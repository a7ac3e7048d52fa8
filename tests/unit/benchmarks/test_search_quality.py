"""The benchmark itself: what is played, kept and taken from the file, and what the figures are made of."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import search_quality
from benchmarks.recorded import Recorded
from benchmarks.regret import Curve
from benchmarks.search_cells import Cell, Kept, Played
from benchmarks.search_peers import registry
from benchmarks.search_peers.listed import Listed, shuffled
from raysweep.replay.recordings import RecordedRung, RecordedSweep, RecordedTrial


def recorded(name: str, *, counts: bool = True) -> Recorded:
    """Ten configurations along a front, so that six are near the best; or one far ahead of the others."""
    trials = []
    for number in range(10):
        angle = math.pi / 4 + (number - 4.5) / 14
        reach = 0.9 if counts or number == 4 else 0.1
        point = reach * math.sin(angle), reach * math.cos(angle)
        trials.append(RecordedTrial({"x": float(number)}, (RecordedRung(1, 1.0, (point,)),)))
    return Recorded(name, RecordedSweep(tuple(trials), (0.0, 0.0)))


def entry(
    name: str, kind: registry.Kind, shift: int = 0, *, is_slow: bool = False
) -> registry.Entry:
    """Random search under another name and with other seeds."""
    return registry.Entry(
        name,
        lambda table, seed: Listed(table, shuffled(table, seed + shift)),
        kind,
        is_slow=is_slow,
        module="listed",
    )


DEFAULT, PEER, SLOW, BASE = (
    entry("default", "own", 100),
    entry("peer", "outside", 200),
    entry("slow peer", "outside", 300, is_slow=True),
    entry("random", "base"),
)
MISSING = registry.Entry("absent", None, missing="not installed (absent)")


def plan(tables: list[Recorded], num_seeds: int = 20) -> search_quality.Plan:
    return search_quality.Plan(tables, [DEFAULT, PEER, SLOW, MISSING, BASE], num_seeds)


def played(made: search_quality.Plan, kept: Kept) -> dict[str, Any]:
    search_quality.play(made, kept, 1)
    return search_quality.report(made, kept)


def test_figures_cover_the_recordings_that_count(capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = recorded("good"), recorded("bad", counts=False)
    made, kept = plan([good, bad]), Kept(None)
    figures = json.loads(json.dumps(played(made, kept)))
    assert figures["tables_counted"] == ["good"] and figures["missing"] == {
        "absent": "not installed (absent)"
    }

    def mean_area(row: registry.Entry, workers: int, seeds: int) -> float:
        return float(
            np.mean([kept[Cell(good, row, workers, seed)].curve.area for seed in range(seeds)])
        )

    for workers in (1, 8):
        peers = [mean_area(PEER, workers, 20)] + ([mean_area(SLOW, 1, 10)] if workers == 1 else [])
        expected = mean_area(DEFAULT, workers, 20) / min(peers)
        assert figures["default_over_best_peer"][str(workers)] == pytest.approx(expected)
        low, high = figures["default_over_best_peer_interval"][str(workers)]
        assert low < expected < high
    assert figures["ratio"] == pytest.approx(1 / max(figures["default_over_best_peer"].values()))
    rows = figures["tables"]["bad"]["workers"]["8"]["rows"]
    assert set(rows) == {"default", "peer", "random"}, "slow rows play one worker"
    shown = capsys.readouterr().out
    assert "no row: absent: not installed" in shown and "10 seeds at most and 1 worker" in shown
    assert "slow peer" in shown and "does not count" in shown


def test_recordings_that_do_not_count_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    figures = played(plan([recorded("bad", counts=False)], 3), Kept(None))
    assert figures["tables_counted"] == [] and figures["ratio"]
    assert "no recording counts" in capsys.readouterr().out


def test_stored_results_are_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cells.jsonl"
    made = plan([recorded("good")], 4)
    first = played(made, Kept(file))
    assert len(file.read_text().splitlines()) == len(list(made.cells()))
    with file.open("a") as cut_short:
        cut_short.write('{"key": ["good", "')

    monkeypatch.setattr(Cell, "play", _refuse)
    assert played(made, Kept(file)) == first


def _refuse(cell: Cell) -> Played:
    raise AssertionError(f"{cell.key} was played again")


@pytest.mark.parametrize(
    "changed",
    [
        lambda cell: Cell(recorded("good", counts=False), cell.entry, 1, 0),
        lambda cell: Cell(cell.recorded, cell.entry, 8, 0),
        lambda cell: Cell(cell.recorded, cell.entry, 1, 1),
        # depends on raysweep's search, too
        lambda cell: Cell(cell.recorded, entry("peer", "own", 200), 1, 0),
    ],
)
def test_stored_results_belong_to_one_recording_row_code_and_seed(
    changed: Callable[[Cell], Cell], tmp_path: Path
) -> None:
    file = tmp_path / "cells.jsonl"
    cell = Cell(recorded("good"), PEER, 1, 0)
    Kept(file).add(cell, Played(Curve(0.5, (1.0, 2.0, float("inf"))), 0.1))
    with file.open("a") as cut_short:
        cut_short.write('{"key": ["good", "')
    again = Kept(file)
    again.add(Cell(cell.recorded, PEER, 1, 7), Played(Curve(0.25, (1.0, 2.0, 3.0)), 0.1))
    found = Kept(file)
    assert found[cell] == Played(Curve(0.5, (1.0, 2.0, float("inf"))), 0.1)
    assert Cell(cell.recorded, PEER, 1, 7) in found and changed(cell) not in found


def test_several_processes_yield_the_same_results(tmp_path: Path) -> None:
    made = plan([recorded("good")], 3)
    alone, together = Kept(None), Kept(None)
    search_quality.play(made, alone, 1)
    search_quality.play(made, together, 2)
    for cell in made.cells():
        assert alone[cell].curve == together[cell].curve


def test_rows_that_need_rungs_are_skipped_without_them() -> None:
    flat = recorded("flat")
    long = Recorded(
        "long", replace(flat.sweep, trials=tuple(_trained_on(trial) for trial in flat.sweep.trials))
    )
    halved = replace(PEER, name="peer, ASHA 2", needs_rungs=True)
    made = search_quality.Plan([flat, long], [DEFAULT, PEER, halved, BASE], 3)
    figures = played(made, kept := Kept(None))
    rows = {name: set(table["workers"]["1"]["rows"]) for name, table in figures["tables"].items()}
    assert rows == {
        "flat": {"default", "peer", "random"},
        "long": {"default", "peer", "peer, ASHA 2", "random"},
    }
    assert {
        cell.recorded.name for cell in made.cells() if cell.entry == halved and cell in kept
    } == {"long"}


def _trained_on(trial: RecordedTrial) -> RecordedTrial:
    (rung,) = trial.rungs
    return replace(trial, rungs=(rung, replace(rung, budget=2, seconds=2.0)))
