"""Scores of the data sets of a sequence in reports."""

import dataclasses
import json
from pathlib import Path

from raysweep.metrics.scores import Pair
from raysweep.report import write
from raysweep.report.data_sets import data_sets_lines, data_sets_table
from raysweep.report.summary import summarize
from raysweep.results.events import PointsScored, RungFinished, TrialStarted
from raysweep.results.ledger import Ledger
from raysweep.results.reader import load
from raysweep.results.types import Point, ScoredSplit
from support.ledgers import INFO, REFERENCE, baseline, point, start_session

DEV: ScoredSplit = "dev"


def of_data_set(step: int | None, number: int, scores: Pair, split: ScoredSplit = DEV) -> Point:
    kind, trial = ("reference", None) if step is None else ("mask", 0)
    made = point(0, 1, *scores)
    return dataclasses.replace(
        made, trial=trial, step=step, kind=kind, value=float(number), split=split
    )


def write_run(folder: Path) -> None:
    """Write a run over two data sets: a trial that forgets 0.10 of P of the first one, and one that learned only that."""
    ledger = Ledger(folder)
    ledger.append(start_session(folder, dataclasses.replace(INFO, tasks=("sst2", "trec"))))
    references = (of_data_set(None, 1, (0.6, 0.5)), of_data_set(None, 2, (0.4, 0.45)))
    ledger.append(
        PointsScored(points=(baseline("dev", "reference", *REFERENCE["dev"]),), tasks=references)
    )
    ledger.append(TrialStarted(trial=0, config={"loss": "hypermask"}, num_rungs=2))
    rung = {"trial": 0, "seconds": 1.0, "loss": 0.3, "stop": None}
    learned = (of_data_set(1, 1, (0.9, 0.48)),)
    ledger.append(RungFinished(**rung, step=1, examples_seen=64, points=(), tasks=learned))
    at_end = (of_data_set(2, 1, (0.8, 0.48)), of_data_set(2, 2, (0.7, 0.44)))
    ledger.append(
        RungFinished(
            **rung, step=2, examples_seen=128, points=(point(0, 2, 0.75, 0.46),), tasks=at_end
        )
    )
    on_test = (of_data_set(2, 1, (0.78, 0.47), "test"), of_data_set(2, 2, (0.65, 0.43), "test"))
    ledger.append(PointsScored(points=(), tasks=on_test))
    ledger.append(TrialStarted(trial=1, config={"loss": "hypermask"}, num_rungs=2))
    unfinished = (dataclasses.replace(of_data_set(1, 1, (0.85, 0.46)), trial=1),)
    ledger.append(
        RungFinished(**{**rung, "trial": 1}, step=1, examples_seen=64, points=(), tasks=unfinished)
    )
    ledger.close()


def test_forgetting_is_shown_by_the_name_of_the_data_set(tmp_path: Path) -> None:
    write_run(tmp_path)
    summary = summarize(load(tmp_path))
    assert [(member.dev.step, member.dev.kind) for member in summary.members] == [(2, "plain")]
    table = data_sets_table(summary)
    assert table.columns[:7] == (
        "trial",
        "data set",
        "P R",
        "P learned",
        "P end",
        "P forgetting",
        "P test",
    )
    assert [row[:7] for row in table.rows] == [
        ("0", "sst2", "60.0", "90.0", "80.0", "10.0", "78.0"),
        ("0", "trec", "40.0", "70.0", "70.0", "0.0", "65.0"),
        ("0", "mean", "50.0", "80.0", "75.0", "5.0", "71.5"),
    ]
    assert any("sst2: P 80.0 (forgetting 10.0)" in line for line in data_sets_lines(summary))


def test_report_files_hold_the_data_sets(tmp_path: Path) -> None:
    write_run(tmp_path)
    write.write(tmp_path)
    first, second, unfinished = json.loads((tmp_path / "report" / "data_sets.json").read_text())
    assert (first["data_set"], first["learned"], first["end"]) == (
        "sst2",
        [90.0, 48.0],
        [80.0, 48.0],
    )
    assert (first["forgetting"], second["test"], second["reference"]) == (
        [10.0, 0.0],
        [65.0, 43.0],
        [40.0, 45.0],
    )
    assert (unfinished["trial"], unfinished["learned"], unfinished["end"]) == (
        1,
        [85.0, 46.0],
        None,
    )
    assert "| sst2 |" in (tmp_path / "report" / "front.md").read_text()
    assert "Data sets" in (tmp_path / "report" / "report.html").read_text()
