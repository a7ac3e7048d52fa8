"""Scores by examples per rung: the table against pandas, and what it needs."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from raysweep.paper import markup
from raysweep.paper.by_examples import by_examples, table
from raysweep.paper.recording import Configuration, Recording, Scores, joined
from raysweep.paper.run_source import recording_of_run
from raysweep.paper.table import NoTableError
from raysweep.storage.folder import LocalFolder
from support.tables import csv_rows, latex_rows, markdown_rows, trial, write_run

NUMBERS = (50, 2000, 20000)


def scored() -> pd.DataFrame:
    """A row for each configuration of two models, with random scores after the last rung."""
    rng = np.random.default_rng(3)
    rows = [(model, n, margin) for model in ("m", "n") for n in NUMBERS for margin in (0.1, 0.5, 1.0)]
    frame = pd.DataFrame(rows, columns=["model", "num_examples", "margin"])
    return frame.assign(polarity=rng.uniform(0.6, 0.9, len(frame)), similarity=rng.uniform(0.2, 0.5, len(frame)))


def recordings_of(frame: pd.DataFrame, folder: Path) -> list[Recording]:
    """A run for each model."""
    found = []
    for model, rows in frame.groupby("model"):
        trials = [
            trial(
                "triplet", row.margin, [(0.6, 0.5), (row.polarity, row.similarity)], examples_per_rung=row.num_examples
            )
            for row in rows.itertuples()
        ]
        found.append(recording_of_run(LocalFolder(write_run(folder / str(model), trials, model=model))))
    return found


def test_statistics_are_those_of_pandas(tmp_path: Path) -> None:
    frame = scored()
    found = table(by_examples(recordings_of(frame, tmp_path)))
    rows = csv_rows(markup.csv_text(found))
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
                assert float(row[f"{score}_{name}"]) == pytest.approx(100 * part[score].agg(function), abs=1e-6)
    head, first, *_ = markdown_rows(markup.markdown(found))
    assert head[:5] == ["model", "N", "configurations", "P mean", "P std"]
    assert first[:4] == ["m", "50", "3", f"{100 * frame.polarity[:3].mean():.1f}"]
    assert latex_rows(markup.latex(found))[1] == first


def test_of_one_model_there_is_no_column_and_of_one_configuration_no_deviation(tmp_path: Path) -> None:
    frame = scored()
    one = frame[(frame.model == "m") & (frame.margin == 0.1)]
    found = by_examples(recordings_of(one, tmp_path))
    assert found.models == ["m"] and found.overall == found.of("m")
    rows = csv_rows(markup.csv_text(table(found)))
    assert list(rows[0])[:2] == ["num_examples", "configurations"]
    assert [row["polarity_std"] for row in rows] == [""] * 3
    assert [row["polarity_least"] for row in rows] == [row["polarity_most"] for row in rows]


def test_where_one_of_two_has_numbers_each_row_stands_once() -> None:
    scored_once = {1: {"dev": Scores(0.6, 0.4)}}
    with_numbers = tuple(Configuration({"loss": "triplet", "examples_per_rung": n}, scored_once) for n in (50, 100))
    without = (Configuration({"loss": "triplet"}, scored_once),)
    recordings = [Recording("m", "t", "t.csv", with_numbers), Recording("n", "u", "u.csv", without)]
    rows = csv_rows(markup.csv_text(table(by_examples(recordings))))
    assert [row["num_examples"] for row in rows] == ["50", "100"]


def test_a_run_for_each_number_is_one_model(tmp_path: Path) -> None:
    frame = scored()
    of_model = frame[frame.model == "m"]
    runs: list[Recording] = []
    for n, rows in of_model.groupby("num_examples"):
        runs += recordings_of(rows, tmp_path / str(n))
    (together,) = joined(runs)
    assert table(by_examples([together])).groups == table(by_examples(recordings_of(of_model, tmp_path))).groups


@pytest.mark.parametrize("value", ["many", True, 0, 2.5])
def test_numbers_of_a_recorded_table_that_are_none(value: object) -> None:
    configuration = Configuration({"examples_per_rung": value}, {1: {"dev": Scores(0.6, 0.4)}})
    recording = Recording("m", "t", "t.csv", (configuration,))
    with pytest.raises(NoTableError, match=f"has examples_per_rung {value!r}, which is no whole number above 0"):
        by_examples([recording])


def test_it_needs_several_numbers(tmp_path: Path) -> None:
    frame = scored()
    with pytest.raises(
        NoTableError, match="every configuration has examples_per_rung 2,000; the table compares several"
    ):
        by_examples(recordings_of(frame[frame.num_examples == 2000], tmp_path))
