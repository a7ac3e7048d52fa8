"""Scores by examples per rung, against pandas."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from raysweep.paper import layout
from raysweep.paper.layout import NoLayoutError
from raysweep.paper.layouts import by_examples
from raysweep.paper.model_scores import Configuration, ModelScores, Scores, join_runs
from raysweep.paper.sources import read_run
from raysweep.storage.folder import LocalFolder
from support.tables import csv_rows, latex_rows, markdown_rows, trial, write_run

NUMBERS = (50, 2000, 20000)


def random_scores() -> pd.DataFrame:
    """Return a row for each configuration of two models, with random scores after the last rung."""
    rng = np.random.default_rng(3)
    rows = [
        (model, n, margin) for model in ("m", "n") for n in NUMBERS for margin in (0.1, 0.5, 1.0)
    ]
    frame = pd.DataFrame(rows, columns=["model", "num_examples", "margin"])
    return frame.assign(
        polarity=rng.uniform(0.6, 0.9, len(frame)), similarity=rng.uniform(0.2, 0.5, len(frame))
    )


def write_runs(frame: pd.DataFrame, folder: Path) -> list[ModelScores]:
    """Write and read a run for each model."""
    models = []
    for model, rows in frame.groupby("model"):
        trials = [
            trial(
                "triplet",
                row.margin,
                [(0.6, 0.5), (row.polarity, row.similarity)],
                examples_per_rung=row.num_examples,
            )
            for row in rows.itertuples()
        ]
        models.append(read_run(LocalFolder(write_run(folder / str(model), trials, model=model))))
    return models


def test_statistics_are_those_of_pandas(tmp_path: Path) -> None:
    frame = random_scores()
    examples = by_examples(write_runs(frame, tmp_path))
    rows = csv_rows(layout.to_csv(examples))
    assert [(row["model"], int(row["num_examples"])) for row in rows] == [
        (model, n) for model in ("m", "n", "all") for n in NUMBERS
    ]
    aggregated = {"mean": "mean", "std": "std", "least": "min", "most": "max"}
    for row in rows:
        part = frame[frame.num_examples == int(row["num_examples"])]
        if row["model"] != "all":
            part = part[part.model == row["model"]]
        assert int(row["configurations"]) == len(part)
        for score in ("polarity", "similarity"):
            for name, function in aggregated.items():
                assert float(row[f"{score}_{name}"]) == pytest.approx(
                    100 * part[score].agg(function), abs=1e-6
                )
    head, first, *_ = markdown_rows(layout.to_markdown(examples))
    assert head[:5] == ["model", "N", "configurations", "P mean", "P std"]
    assert first[:4] == ["m", "50", "3", f"{100 * frame.polarity[:3].mean():.1f}"]
    assert latex_rows(layout.to_latex(examples))[1] == first


def test_one_model_has_no_column_and_one_configuration_no_deviation(tmp_path: Path) -> None:
    frame = random_scores()
    one = frame[(frame.model == "m") & (frame.margin == 0.1)]
    rows = csv_rows(layout.to_csv(by_examples(write_runs(one, tmp_path))))
    assert list(rows[0])[:2] == ["num_examples", "configurations"]
    assert [row["polarity_std"] for row in rows] == [""] * 3
    assert [row["polarity_least"] for row in rows] == [row["polarity_most"] for row in rows]


def test_models_without_numbers_are_left_out() -> None:
    rungs = {1: {"dev": Scores(0.6, 0.4)}}
    with_numbers = tuple(
        Configuration({"loss": "triplet", "examples_per_rung": n}, rungs) for n in (50, 100)
    )
    without = (Configuration({"loss": "triplet"}, rungs),)
    models = [ModelScores("m", "t", "t.csv", with_numbers), ModelScores("n", "u", "u.csv", without)]
    rows = csv_rows(layout.to_csv(by_examples(models)))
    assert [row["num_examples"] for row in rows] == ["50", "100"]


def test_runs_of_one_model_are_joined(tmp_path: Path) -> None:
    frame = random_scores()
    rows_of_m = frame[frame.model == "m"]
    runs: list[ModelScores] = []
    for n, rows in rows_of_m.groupby("num_examples"):
        runs += write_runs(rows, tmp_path / str(n))
    (together,) = join_runs(runs)
    (unsplit,) = write_runs(rows_of_m, tmp_path)
    assert layout.to_csv(by_examples([together])) == layout.to_csv(by_examples([unsplit]))


@pytest.mark.parametrize("value", ["many", True, 0, 2.5])
def test_invalid_numbers_are_rejected(value: object) -> None:
    configuration = Configuration({"examples_per_rung": value}, {1: {"dev": Scores(0.6, 0.4)}})
    model = ModelScores("m", "t", "t.csv", (configuration,))
    with pytest.raises(NoLayoutError, match=f"examples_per_rung is {value!r}; .*above 0"):
        by_examples([model])


def test_several_numbers_are_required(tmp_path: Path) -> None:
    frame = random_scores()
    with pytest.raises(NoLayoutError, match="examples_per_rung 2,000"):
        by_examples(write_runs(frame[frame.num_examples == 2000], tmp_path))
