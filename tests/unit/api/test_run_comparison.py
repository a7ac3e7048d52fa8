"""Compared runs as data frames, compared with the output of the command."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import raysweep
from raysweep.results.reader import load
from support.command_line import raysweep_here
from support.ledgers import StoredSweep, change_settings, dev_front, random_trials, write_ledger
from support.query_scores import write_query_scores


def write_run(folder: Path, name: str, seed: int, *, has_scores: bool) -> raysweep.RunResults:
    run = folder / name
    run.mkdir()
    trials = random_trials(12, seed)
    write_ledger(run, trials, StoredSweep(test_of=dev_front(trials)))
    change_settings(run, f"name: {name}\nbudget: {{trials: {12 + seed}}}\nseed: 3\n")
    if has_scores:
        write_query_scores(run, load(run))
    return raysweep.load_run(run)


@pytest.fixture(scope="module", params=[True, False])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of two runs with and without per-query scores."""
    folder = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate(("one", "two")):
        write_run(folder, name, seed, has_scores=request.param)
    return folder


@pytest.fixture(scope="module")
def comparison(folder: Path) -> raysweep.RunComparison:
    return raysweep.compare_runs([str(folder / "one"), raysweep.load_run(folder / "two")])


@pytest.fixture(scope="module")
def printed(folder: Path) -> dict[str, Any]:
    """Return the output of ``raysweep compare --format json``."""
    done = raysweep_here(
        folder, "compare", str(folder / "one"), str(folder / "two"), "--format", "json"
    )
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def test_runs_and_fronts_are_those_that_compare_prints(
    comparison: raysweep.RunComparison, printed: dict[str, Any]
) -> None:
    runs = comparison.runs.to_dict("records")
    assert [(row["label"], row["run"], row["status"], row["num_trials"]) for row in runs] == [
        (run["label"], run["run"], run["status"], run["num_trials"]) for run in printed["runs"]
    ]
    assert [{split: row[f"{split}_hypervolume"] for split in ("dev", "test")} for row in runs] == [
        run["hypervolume"] for run in printed["runs"]
    ]
    for run in printed["runs"]:
        for split, points in run["front"].items():
            front = comparison.fronts.query(f"label == '{run['label']}' and split == '{split}'")
            assert front.drop(columns=["label", "split"]).to_dict("records") == points


def test_differences_are_those_that_compare_prints(
    comparison: raysweep.RunComparison, printed: dict[str, Any]
) -> None:
    differences = comparison.differences
    assert len(differences) == len(printed["differences"]) == 2
    for row, difference in zip(differences.to_dict("records"), printed["differences"], strict=True):
        values = {name: None if pd.isna(value) else value for name, value in row.items()}
        bounds = [values.pop("low"), values.pop("high")]
        assert {**values, "interval": None if bounds == [None, None] else bounds} == difference
    areas = comparison.runs.dev_hypervolume
    assert differences.estimate[0] == pytest.approx(areas[1] - areas[0])


def test_tables_and_notes_are_those_that_compare_prints(
    comparison: raysweep.RunComparison, printed: dict[str, Any]
) -> None:
    dominations = comparison.dominations.to_dict("records")
    assert [{**row, "names": list(row["names"])} for row in dominations] == printed["dominations"]
    assert (
        comparison.settings.to_dict("split")["data"]
        == list(printed["settings"].values())
        == [[12, 13]]
    )
    assert comparison.settings.index.tolist() == list(printed["settings"]) == ["budget.trials"]
    assert comparison.settings.columns.tolist() == ["one", "two"]
    best = comparison.best_configurations
    assert (
        dict(zip(best.index, best.to_numpy().tolist(), strict=True))
        == printed["best_configurations"]
    )
    assert comparison.notes == printed["notes"]
    assert repr(comparison) == "RunComparison of one and two"


def test_a_comparison_is_drawn_and_written(
    comparison: raysweep.RunComparison, printed: dict[str, Any], tmp_path: Path
) -> None:
    comparison.write(tmp_path / "compared")
    assert json.loads((tmp_path / "compared" / "compare.json").read_text()) == printed
    assert (tmp_path / "compared" / "compare.png").read_bytes() == comparison.figure().png
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        comparison.write(tmp_path / "file")


def test_a_run_without_a_front_has_no_hypervolume(tmp_path: Path) -> None:
    write_run(tmp_path, "one", 0, has_scores=False)
    (tmp_path / "empty").mkdir()
    write_ledger(tmp_path / "empty", [], StoredSweep(finish=None))
    comparison = raysweep.compare_runs([tmp_path / "one", tmp_path / "empty"])
    assert comparison.runs.num_trials.tolist() == [12, 0]
    assert comparison.runs.dev_hypervolume.isna().tolist() == [False, True]
    assert set(comparison.fronts.label) == {"one"}
    assert comparison.differences.empty and comparison.dominations.empty


def test_runs_that_cannot_be_compared_are_rejected(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(raysweep.InputError, match="the number of runs is 1; allowed: at least 2"):
        raysweep.compare_runs([folder / "one"])
    with pytest.raises(raysweep.InputError, match="is given twice"):
        raysweep.compare_runs([folder / "one", folder / "one"])
    with pytest.raises(raysweep.InputError, match="not a run folder"):
        raysweep.compare_runs([folder / "one", tmp_path])
