"""The files of a report against the ledger."""

import dataclasses
import json
import math
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from raysweep.errors import InputError
from raysweep.report import tables, write
from raysweep.report.notes import notes
from raysweep.report.summary import summarize
from raysweep.results.account import sentence
from raysweep.results.ledger import Ledger
from raysweep.results.reader import load
from support.ledgers import (
    StoredSweep,
    StoredTrial,
    dev_front,
    random_trials,
    trials_of_every_status,
    write_ledger,
)


def test_front_json_lists_the_front_on_dev_then_on_test(run):
    folder, trials = run.folder, run.trials
    front = dev_front(trials)
    assert len(front) >= 3
    expected = []
    for split in ("dev", "test"):
        for point in front:
            p, s = point["polarity"], point["similarity"]
            p, s = (p - 0.02, s - 0.01) if split == "test" else (p, s)
            expected.append(
                {
                    "trial": point.trial,
                    "step": point.step,
                    "kind": "plain",
                    "value": None,
                    "split": split,
                    "polarity": round(100 * p, 4),
                    "similarity": round(100 * s, 4),
                    "retention": round(100 * point["retention"], 4),
                }
            )
    written = write.write(folder)
    assert json.loads((folder / "report" / "front.json").read_text()) == expected
    assert {path.name for path in (folder / "report").iterdir()} == {
        path.name for path in written.files
    }


def test_parquet_files_hold_every_row_of_the_ledger(run):
    folder, trials = run.folder, run.trials
    write.write(folder)
    results = load(folder)
    rows = json.loads((folder / "report" / "points.json").read_text())
    assert pq.read_table(folder / "report" / "points.parquet").to_pylist() == rows
    assert [(row["trial"], row["kind"], row["split"], row["polarity"]) for row in rows] == [
        (point.trial, point.kind, point.split, round(100 * point["polarity"], 4))
        for point in results.points
    ]
    rungs = pq.read_table(folder / "report" / "rungs.parquet").to_pylist()
    assert rungs == [dataclasses.asdict(rung) for rung in results.rungs]
    written = pq.read_table(folder / "report" / "trials.parquet").to_pylist()
    assert [json.loads(row["config"]) for row in written] == [config for config, *_ in trials]
    assert [row["status"] for row in written] == [status for _, status, *_ in trials]


@pytest.mark.parametrize(("gpus", "price"), [(0.5, 3.0), (0.0, 0.0)])
def test_costs_equal_those_of_the_ledger_and_add_up(tmp_path, gpus, price):
    trials = trials_of_every_status()
    write_ledger(tmp_path, trials, StoredSweep(gpus=gpus, price=price, finish=None))
    costs = {}  # of each trial, as its last event states it
    for event in map(json.loads, (tmp_path / "ledger.jsonl").read_text().splitlines()):
        if "cost" in event:
            costs[event["trial"]] = event["cost"]
    driver = Ledger(tmp_path)
    driver.open()  # without which no trial runs
    summary = write.write(tmp_path).summary
    driver.close()
    *rows, total = json.loads((tmp_path / "report" / "costs.json").read_text())
    assert (
        {row["kind"] for row in rows}
        == {status for _, status, *_ in trials}
        >= {"paused", "interrupted", "running"}
    )
    for row in (*rows, total):
        of_kind = [
            number
            for number, (_, status, *_) in enumerate(trials)
            if row["kind"] in (status, "all")
        ]
        assert row["num_trials"] == len(of_kind)
        assert row["num_rungs"] == sum(len(trials[number][3]) for number in of_kind)
        for name in ("seconds", "cpu_seconds", "gpu_seconds", *(["money"] if price else [])):
            assert row[name] == pytest.approx(math.fsum(costs[number][name] for number in of_kind))
        assert price or row["money"] is None
        saved = 0.0
        for number in of_kind:
            done = len(trials[number][3])
            if done and trials[number][1] == "stopped":
                saved += costs[number]["seconds"] / done * (5 - done)
        assert row["saved_seconds"] == pytest.approx(saved)
    assert total["saved_seconds"] > 0
    written = pq.read_table(tmp_path / "report" / "trials.parquet").to_pylist()
    of_trials = [cost if price else {**cost, "money": None} for cost in costs.values()]
    assert [{name: row[name] for name in costs[0]} for row in written] == of_trials
    table = tables.trial_table(summary)
    shown = [row[table.columns.index("seconds")] for row in table.rows]
    assert shown == [f"{cost['seconds']:,.0f}" for cost in costs.values()]
    for name in ("front.md", "report.html"):
        text = (tmp_path / "report" / name).read_text()
        assert sentence(summary.account) in text
        assert ("GPU-hours" in text, "money" in text) == (gpus > 0, price > 0)
        assert f"{total['seconds']:,.0f}" in text and f"{total['saved_seconds']:,.0f}" in text


def test_an_interrupted_sweep_has_a_note_on_missing_test_scores(tmp_path):
    trials = [trial._replace(status="interrupted", reason="Ctrl-C") for trial in random_trials(5)]
    write_ledger(tmp_path, trials, StoredSweep(finish=("interrupted", "Ctrl-C")))
    summary = write.write(tmp_path).summary
    assert summary.members and summary.splits == ("dev",) and set(summary.areas) == {"dev"}
    for name in ("report.html", "front.md"):
        text = (tmp_path / "report" / name).read_text()
        assert "The sweep was interrupted: Ctrl-C." in text and "test split was not scored" in text
    assert {
        row["split"] for row in json.loads((tmp_path / "report" / "front.json").read_text())
    } == {"dev"}


def test_a_ledger_with_a_truncated_last_line_reports_earlier_lines(tmp_path):
    write_ledger(tmp_path, random_trials(5), StoredSweep(finish=None))
    before = summarize(load(tmp_path))
    with (tmp_path / "ledger.jsonl").open("a") as ledger:
        ledger.write('{"event": "rung", "trial": 3, "st')
    summary = write.write(tmp_path).summary
    assert summary.members == before.members
    assert any("killed" in note for note in notes(summary))


def test_no_finished_rung_gives_a_note_and_valid_empty_files(tmp_path):
    write_ledger(tmp_path, [StoredTrial({"loss": "triplet"}, "failed", "out of memory", [])])
    summary = write.write(tmp_path).summary
    assert "No rungs have finished, so there is no front." in notes(summary)
    assert any("1 of 1 trials failed" in note for note in notes(summary))
    assert json.loads((tmp_path / "report" / "front.json").read_text()) == []
    assert pq.read_table(tmp_path / "report" / "rungs.parquet").num_rows == 0
    assert "No rungs have finished" in (tmp_path / "report" / "report.html").read_text()
    assert "out of memory" in (tmp_path / "report" / "front.md").read_text()


def test_a_report_replaces_an_earlier_one_unless_it_fails(run, monkeypatch):
    folder, trials = run.folder, run.trials
    write.write(folder)
    write.write(folder)
    before = {path.name: path.read_bytes() for path in (folder / "report").iterdir()}
    shutil.copy(folder / "ledger.jsonl", folder / "copy.jsonl")
    (folder / "ledger.jsonl").unlink()
    write_ledger(folder, trials[:4])

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(Path, "replace", fail)
        with pytest.raises(InputError, match="No space left"):
            write.write(folder)
    assert {path.name: path.read_bytes() for path in (folder / "report").iterdir()} == before
    write.write(folder)
    assert json.loads(before["front.json"]) != json.loads(
        (folder / "report" / "front.json").read_text()
    )


def test_unwritable_folders_and_folders_without_a_run_are_rejected(run, tmp_path_factory):
    folder = run.folder
    (folder / "report").write_text("in the way")
    with pytest.raises(InputError, match=r"report: cannot write the report"):
        write.write(folder)
    assert (folder / "report").read_text() == "in the way"
    with pytest.raises(InputError, match="not a run folder"):
        write.write(tmp_path_factory.mktemp("empty"))
