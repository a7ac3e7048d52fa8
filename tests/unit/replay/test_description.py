"""Tables of other metrics: what their description makes of them, and what is refused with which words."""

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from raysweep.cli.commands import app
from raysweep.config.space import Choices, Range
from raysweep.errors import InputError
from raysweep.replay.simulator import Search, SearchSettings, replay
from raysweep.replay.table import RecordedSweep
from raysweep.replay.table_io import read
from support.paths import ROOT

DESCRIPTION = """\
polarity: {column: val_acc, direction: maximize, range: [50, 90]}
similarity: {column: train_time, direction: minimize, range: [1, 100], log: true}
"""


def frame() -> pd.DataFrame:
    """Twelve configurations with an accuracy in percent and seconds."""
    random = np.random.default_rng(0)
    rows = []
    for number in range(12):
        depth, width = 1 + number % 3, float(10 ** random.uniform(1, 3))
        accuracy = 90 - 5 * abs(depth - 2) - 10 * abs(math.log10(width) - 2)
        rows.append({"depth": depth, "width": width, "val_acc": accuracy, "train_time": 1 + width / 20})
    return pd.DataFrame(rows)


def stored(folder: Path, rows: pd.DataFrame, description: str = DESCRIPTION) -> Path:
    path = folder / "mlp.csv"
    rows.to_csv(path, index=False)
    (folder / "mlp.table.yaml").write_text(description)
    return path


def test_metrics_are_brought_to_one_scale(tmp_path: Path) -> None:
    rows = frame()
    table = read(stored(tmp_path, rows))
    assert table.reference_point == (0.0, 0.0) and table.reference is None
    assert [dict(trial.values) for trial in table.trials] == rows[["depth", "width"]].rename(
        columns={"width": "width_"}
    ).to_dict("records")
    for trial, row in zip(table.trials, rows.itertuples(), strict=True):
        (rung,) = trial.rungs
        expected = (row.val_acc - 50) / 40, 1 - math.log(row.train_time) / math.log(100)
        assert rung.points == (pytest.approx(expected),) and (rung.budget, rung.seconds) == (1, 1.0)


def test_a_budget_makes_rungs_and_a_cost_their_seconds(tmp_path: Path) -> None:
    rungs = [frame().assign(epoch=epoch, val_acc=frame()["val_acc"] - 10 / epoch) for epoch in (1, 2, 5)]
    rows = pd.concat(rungs).assign(seconds_spent=lambda made: 3.5 * made["epoch"], note="not searched")
    named = "budget: epoch\ncost: seconds_spent\nparameters: [depth, width]\n"
    table = read(stored(tmp_path, rows, DESCRIPTION + named))
    assert len(table.trials) == 12 and table.num_rungs == 3
    for trial in table.trials:
        assert [(rung.budget, rung.seconds) for rung in trial.rungs] == [(1, 3.5), (2, 7.0), (5, 17.5)]
        assert set(trial.values) == {"depth", "width_"}


@pytest.mark.parametrize("parameters", ["", "parameters: [depth, width]\n"])
def test_a_part_is_chosen_by_the_tables_own_columns(parameters: str, tmp_path: Path) -> None:
    rows = pd.concat([frame().assign(dataset="a"), frame().assign(dataset="b", val_acc=60.0)])
    path = stored(tmp_path, rows, DESCRIPTION + parameters)
    (chosen,) = {trial.rungs[0].points[0][0] for trial in read(path, {"dataset": "b"}).trials}
    assert chosen == pytest.approx(0.25)
    width = frame()["width"][3]
    (trial,) = read(path, {"width": str(width), "dataset": "a"}).trials
    assert trial.values["width_"] == pytest.approx(width)
    with pytest.raises(InputError, match=r"mlp.csv: no row has dataset 'c'; there are a, b"):
        read(path, {"dataset": "c"})


def test_the_ends_of_a_logarithmic_range_are_0_and_1(tmp_path: Path) -> None:
    low, high = 0.1, 0.7  # whose logarithms' quotient may be above 1 by rounding
    rows = frame().assign(train_time=[low, high] * 6)
    description = DESCRIPTION.replace("[1, 100]", f"[{low}, {high}]")
    table = read(stored(tmp_path, rows, description))
    assert {trial.rungs[0].points[0][1] for trial in table.trials} == {0.0, 1.0}


@pytest.mark.parametrize("sampler", ["mfgp", "tpe", "random"])
@pytest.mark.parametrize("proposals", ["front", "area", "parego", "both"])
def test_it_is_searched_whole(sampler: str, proposals: str, tmp_path: Path) -> None:
    table: RecordedSweep = read(stored(tmp_path, frame()))
    search = Search(table, SearchSettings(sampler, "growth", proposals), seed=0)
    steps = list(replay(table, search, 2))
    assert len(steps) == 12 and steps[-1].area == pytest.approx(table.area)


def test_without_a_fidelity_replay_says_what_it_compares(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = stored(tmp_path, frame())
    found = CliRunner().invoke(app, ["replay", str(path), "--seeds", "1", "--sampler", "random"])
    assert found.exit_code == 0, found.output
    assert "every trial has one rung, so this compares samplers" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("column", "cells", "message"),
    [
        ("val_acc", {3: 91.0}, "mlp.csv: row 4: val_acc is 91, not from 50 to 90, its range"),
        ("train_time", {0: 0.5}, "mlp.csv: row 1: train_time is 0.5, not from 1 to 100"),
        ("val_acc", {11: "high"}, "mlp.csv: row 12: val_acc is high, not a finite number"),
        ("val_acc", {2: None}, "mlp.csv: row 3: val_acc is nan, not a finite number"),
        ("width", {1: float("inf")}, "mlp.csv: row 2: width_ is inf; allowed: numbers"),
    ],
)
def test_a_bad_cell(column: str, cells: dict[int, object], message: str, tmp_path: Path) -> None:
    rows = frame().astype({column: object})
    for row, value in cells.items():
        rows.loc[row, column] = value
    with pytest.raises(InputError, match=message) as caught:
        read(stored(tmp_path, rows))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (DESCRIPTION.replace("val_acc", "acc"), "mlp.csv: no column 'acc'; the columns are depth, width, val_acc"),
        (DESCRIPTION + "budget: epoch\n", "mlp.csv: no column 'epoch'"),
        (DESCRIPTION + "parameters: [depth, wide]\n", "mlp.csv: no column 'wide'"),
        (DESCRIPTION + "budget: width\n", "mlp.csv: row 1: step is .*, not a whole number above 0"),
        (DESCRIPTION + "metric: x\n", "mlp.table.yaml: line 3: metric: unknown key.*; allowed: budget, cost"),
        (DESCRIPTION.replace("[50, 90]", "[90, 50]"), "line 1: polarity: range is from 90 to 50; its first"),
        (DESCRIPTION.replace("[50, 90]", "[50]"), "mlp.table.yaml: line 1: polarity.range"),
        (DESCRIPTION.replace("[1, 100]", "[0, 100]"), "line 2: similarity: range begins at 0, which has no logarithm"),
        (DESCRIPTION.replace("minimize", "down"), "line 2: similarity.direction: should be 'maximize' or 'minimize'"),
        (DESCRIPTION.splitlines()[0], "mlp.table.yaml: similarity: this key is required"),
    ],
)
def test_a_bad_description(description: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(stored(tmp_path, frame(), description))
    assert "\n" not in str(caught.value)


def test_few_numbers_are_choices_unless_they_are_called_a_range(tmp_path: Path) -> None:
    chosen = read(stored(tmp_path, frame()))
    assert isinstance(chosen.space.parameters["depth"], Choices)
    ranged = read(stored(tmp_path, frame(), DESCRIPTION + "ranges: [depth]\n"))
    assert ranged.space.parameters["depth"] == Range(1, 3, False, True)
    assert ranged.space.parameters["width_"] == chosen.space.parameters["width_"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("val_acc", "mlp.csv: ranges: 'val_acc' is no parameter; allowed: depth, width"),
        ("word", "row 1: word is a, not"),
    ],
)
def test_a_range_is_of_a_parameter_and_of_numbers(name: str, message: str, tmp_path: Path) -> None:
    rows = frame().assign(word="a") if name == "word" else frame()
    with pytest.raises(InputError, match=message):
        read(stored(tmp_path, rows, DESCRIPTION + f"ranges: [{name}]\n"))


@pytest.mark.parametrize("names", ["depth, depth", "depth, val_acc"])
def test_parameters_are_named_once_and_are_no_metrics(names: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mlp\.csv: parameters: '(depth|val_acc)' is named twice, or is a metric"):
        read(stored(tmp_path, frame(), DESCRIPTION + f"parameters: [{names}]\n"))


def test_the_guides_description_is_valid_and_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```yml\n(.*?)^```", (ROOT / "docs/guides/replay.md").read_text(), re.DOTALL | re.MULTILINE)
    rows = frame().assign(epoch=3, val_acc=lambda made: made["val_acc"] / 100)
    table = read(stored(tmp_path, rows[rows["val_acc"] >= 0.55], text))
    assert {trial.rungs[0].budget for trial in table.trials} == {3}
