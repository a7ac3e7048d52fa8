"""Tables of other tools, read as recordings."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.foreign_tables import read
from raysweep.config.space import Choices, Range
from raysweep.replay.simulator import Search, SearchSettings, replay

DESCRIPTION = """\
polarity: {column: val_acc, direction: maximize, range: [50, 90]}
similarity: {column: train_time, direction: minimize, range: [1, 100], log: true}
cost: train_time
parameters: [depth, width]
"""


def frame() -> pd.DataFrame:
    """Twelve configurations with an accuracy in percent and seconds."""
    random = np.random.default_rng(0)
    rows = []
    for number in range(12):
        depth, width = 1 + number % 3, float(10 ** random.uniform(1, 3))
        accuracy = 90 - 5 * abs(depth - 2) - 10 * abs(math.log10(width) - 2)
        rows.append(
            {"depth": depth, "width": width, "val_acc": accuracy, "train_time": 1 + width / 20}
        )
    return pd.DataFrame(rows)


def write_table(
    folder: Path, rows: pd.DataFrame, ranges: str = "[]", description: str = DESCRIPTION
) -> Path:
    path = folder / "mlp.parquet"
    rows.to_parquet(path)
    (folder / "mlp.table.yaml").write_text(f"{description}ranges: {ranges}\n")
    return path


def test_metrics_are_scaled_to_their_ranges(tmp_path: Path) -> None:
    rows = frame()
    recording = read(write_table(tmp_path, rows))
    assert recording.reference_point == (0.0, 0.0) and recording.reference is None
    assert [dict(trial.values) for trial in recording.trials] == rows[["depth", "width"]].to_dict(
        "records"
    )
    for trial, row in zip(recording.trials, rows.itertuples(), strict=True):
        (rung,) = trial.rungs
        expected = (row.val_acc - 50) / 40, 1 - math.log(row.train_time) / math.log(100)
        assert rung.points == (pytest.approx(expected),) and (rung.budget, rung.seconds) == (
            1,
            row.train_time,
        )


def test_the_ends_of_a_logarithmic_range_are_0_and_1(tmp_path: Path) -> None:
    low, high = 0.1, 0.7  # rounding can take the quotient of their logarithms above 1
    rows = frame().assign(train_time=[low, high] * 6)
    description = DESCRIPTION.replace("[1, 100]", f"[{low}, {high}]")
    recording = read(write_table(tmp_path, rows, description=description))
    assert {trial.rungs[0].points[0][1] for trial in recording.trials} == {0.0, 1.0}


@pytest.mark.parametrize("sampler", ["mfgp", "tpe", "random"])
@pytest.mark.parametrize("proposals", ["front", "area", "parego", "both"])
def test_searches_reach_every_configuration(sampler: str, proposals: str, tmp_path: Path) -> None:
    recording = read(write_table(tmp_path, frame()))
    search = Search(recording, SearchSettings(sampler, "growth", proposals), seed=0)
    steps = list(replay(recording, search, 2))
    assert len(steps) == 12 and steps[-1].area == pytest.approx(recording.area)


def test_few_numbers_are_choices_unless_described_as_a_range(tmp_path: Path) -> None:
    chosen = read(write_table(tmp_path, frame()))
    assert isinstance(chosen.space.parameters["depth"], Choices)
    ranged = read(write_table(tmp_path, frame(), "[depth]"))
    assert ranged.space.parameters["depth"] == Range(1, 3, False, True)
    assert ranged.space.parameters["width"] == chosen.space.parameters["width"]


def test_published_scores_have_a_rung_for_each_epoch(tmp_path: Path) -> None:
    rows = [
        "model,loss,margin,epoch,polarity,similarity",
        "a,triplet,0.5,1,60,45",
        "b,triplet,0.5,1,99,99",
    ]
    rows += ["a,triplet,0.5,2,70,40", "a,softmax,,1,65,44"]
    (tmp_path / "published.csv").write_text("\n".join(rows))
    recording = read(tmp_path / "published.csv", {"model": "a"})
    assert [dict(trial.values) for trial in recording.trials] == [
        {"model": "a", "loss": "triplet", "margin": 0.5},
        {"model": "a", "loss": "softmax"},
    ]
    rungs = [[(rung.budget, rung.points[0]) for rung in trial.rungs] for trial in recording.trials]
    assert rungs == [[(1, (0.6, 0.45)), (2, (0.7, 0.4))], [(1, (0.65, 0.44))]]
