"""Calibration of the heads that front members use."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from raysweep.report import write
from raysweep.report.calibration import MAX_LINES, calibration_table
from raysweep.report.summary import summarize
from raysweep.results.events import PointsScored, RungFinished, TrialStarted
from raysweep.results.ledger import Ledger
from raysweep.results.reader import load
from raysweep.results.types import Calibration
from support.consoles import narrow, printed
from support.ledgers import point, start_session

DEV = Calibration(None, None, "dev", 2.9, 0.377, 0.203, 0.081, 0.012)
TEST = dataclasses.replace(DEV, split="test", cross_entropy=0.215)


def write_run(folder: Path, kinds: Iterable[str]) -> None:
    """Write a trial whose rungs are on the front, one of each kind; the first is scored on test."""
    ledger = Ledger(folder)
    ledger.append(start_session(folder))
    ledger.append(TrialStarted(trial=0, config={"loss": "softmax"}, num_rungs=8))
    for step, kind in enumerate(kinds, 1):
        value = None if kind == "plain" else 0.3
        made = dataclasses.replace(
            point(0, step, 0.6 + 0.01 * step, 0.5 - 0.01 * step), kind=kind, value=value
        )
        calibration = dataclasses.replace(DEV, trial=0, step=step)
        rung = {"trial": 0, "step": step, "examples_seen": 64 * step, "seconds": 1.0, "loss": 0.3}
        ledger.append(RungFinished(**rung, stop=None, points=(made,), calibration=calibration))
    on_test = dataclasses.replace(
        point(0, 1, 0.6, 0.4), kind="class_concat", value=0.3, split="test"
    )
    ledger.append(
        PointsScored(points=(on_test,), calibration=dataclasses.replace(TEST, trial=0, step=1))
    )
    ledger.close()


def test_calibration_of_the_heads_of_members_is_shown(tmp_path: Path) -> None:
    write_run(tmp_path, ["class_concat", "plain", "class_concat"])
    summary = write.write(tmp_path).summary
    assert calibration_table(summary).rows == (
        ("0", "1", "dev", "2.90", "0.377", "0.203", "8.1", "1.2"),
        ("0", "1", "test", "2.90", "0.377", "0.215", "8.1", "1.2"),
        ("0", "3", "dev", "2.90", "0.377", "0.203", "8.1", "1.2"),
    )
    written = (tmp_path / "report" / "front.md").read_text()
    assert "| 0 | 1 | test | 2.90 | 0.377 | 0.215 | 8.1 | 1.2 |" in written
    assert "0.215" in (tmp_path / "report" / "report.html").read_text()
    shown = printed(narrow(summary))
    line = "trial 0, rung 3, on dev: temperature 2.90, cross-entropy 0.377 -> 0.203, calibration error 8.1 -> 1.2"
    assert line in " ".join(shown.split())


def test_terminal_lists_only_the_last_calibrations(tmp_path: Path) -> None:
    write_run(tmp_path, ["class_concat"] * 6)
    shown = printed(narrow(summarize(load(tmp_path))))
    assert shown.count("on dev: temperature") + shown.count("on test: temperature") == MAX_LINES
    assert "calibration: 3 more in front.md" in shown


def test_no_calibration_without_members_that_use_a_head(tmp_path: Path) -> None:
    write_run(tmp_path, ["plain", "plain"])
    summary = write.write(tmp_path).summary
    assert calibration_table(summary).rows == ()
    assert "Calibration" not in (tmp_path / "report" / "front.md").read_text()
    assert "temperature" not in printed(narrow(summary))
