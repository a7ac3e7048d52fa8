"""z-tests against the closed form, from runs, their published rows, and files."""

import math
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from raysweep.errors import InputError
from raysweep.paper import layouts
from raysweep.paper.layout import NoLayoutError, to_csv, to_markdown
from raysweep.paper.model_scores import ModelScores
from raysweep.paper.sources import read_rows, read_run
from raysweep.paper.write import write_layouts
from raysweep.results.events import PointsScored
from raysweep.results.ledger import Ledger
from raysweep.storage.folder import LocalFolder
from support.ledgers import baseline, dev_front
from support.points import with_spreads
from support.tables import csv_rows, grid, markdown_rows, write_run


def recording(folder: Path, **info: object) -> ModelScores:
    """A run of a grid whose P has a deviation of 0.25 over 900 queries, k = 16, and a published row without one."""
    write_run(folder, grid(), **info)  # type: ignore[arg-type]
    ledger = Ledger(folder)
    published = baseline("dev", "published", 0.80, 0.30, label="a paper, triplet 1", width=384)
    published = with_spreads(published, 0.0, 0.0)
    ledger.append(PointsScored(points=(published,)))
    ledger.close()
    return read_run(LocalFolder(folder))


def rows_by_name(recordings: list[ModelScores], against: str) -> dict[str, dict[str, str]]:
    """Return the rows by name."""
    return {row["row"]: row for row in csv_rows(to_csv(layouts.z_tests(recordings, against)))}


def test_each_row_is_tested_against_the_named_one(tmp_path: Path) -> None:
    rows = rows_by_name([recording(tmp_path / "run")], "triplet margin 1")
    assert list(rows) == [
        "reference",
        "published a paper, triplet 1",
        "contrastive margin 0.5",
        "multiple_negatives",
        "triplet margin 0.1",
        "triplet margin 1",
    ]
    itself = rows.pop("triplet margin 1")
    assert itself["polarity"] == "83" and itself["z"] == itself["p_holm"] == ""
    p_values = {}
    for name, row in rows.items():
        share, other, sentences = float(row["polarity"]) / 100, 0.83, 900 * 16
        together = (share + other) / 2
        effects = [
            0.25**2 * 16 / (p * (1 - p)) for p in (other if "published" in name else share, other)
        ]
        variance = together * (1 - together) / sentences
        binomial_z = (share - other) / math.sqrt(2 * variance)
        z = (share - other) / math.sqrt(variance * sum(effects))
        assert float(row["difference"]) == pytest.approx(100 * (share - other))
        assert float(row["binomial_z"]) == pytest.approx(binomial_z, abs=1e-5)
        assert float(row["design_effect"]) == pytest.approx(sum(effects) / 2, abs=1e-5)
        assert float(row["z"]) == pytest.approx(z, abs=1e-5)
        p_values[name] = 2 * stats.norm.sf(abs(z))
    assert rows["published a paper, triplet 1"]["polarity_std"] == ""
    smallest = min(p_values, key=lambda name: p_values[name])
    assert float(rows[smallest]["p_holm"]) == pytest.approx(5 * p_values[smallest], abs=1e-6)
    assert float(rows["triplet margin 0.1"]["p_holm"]) == pytest.approx(
        p_values["triplet margin 0.1"], abs=1e-6
    )


def test_rows_of_files_are_tested_if_their_counts_are_known(tmp_path: Path) -> None:
    published = pd.DataFrame(
        {
            "model": "theirs",
            "loss": "TripletLoss",
            "margin": [0.1, 1.0],
            "polarity": [80.6, 83.2],
            "similarity": [35, 30],
        }
    )
    ours = recording(tmp_path / "run")
    without = read_rows(published, Path("published.csv"))
    untested = layouts.z_tests([ours, *without], "reference")
    assert list(untested.groups) == ["all-MiniLM-L6-v2"] * 6 + ["theirs"] * 2
    for row in csv_rows(to_csv(untested))[-2:]:
        assert row["difference"] == row["z"] == row["p_holm"] == ""
    counted = read_rows(published.assign(num_queries=872, k=16), Path("published.csv"))
    tests = layouts.z_tests([ours, *counted], "reference")
    table = csv_rows(to_csv(tests))
    assert [row["model"] for row in table[-2:]] == ["theirs"] * 2
    share, reference = 0.806, 0.63
    sentences = (872 * 16, 900 * 16)
    together = (share * sentences[0] + reference * sentences[1]) / sum(sentences)
    effect = 0.25**2 * 16 / (reference * (1 - reference))
    variance = together * (1 - together) * effect * (1 / sentences[0] + 1 / sentences[1])
    assert float(table[-2]["z"]) == pytest.approx(
        (share - reference) / math.sqrt(variance), abs=1e-5
    )
    assert "against all-MiniLM-L6-v2: reference." in tests.caption
    head, *lines = markdown_rows(to_markdown(tests))
    assert head[:3] == ["model", "row", "P"] and lines[-1][:3] == [
        "theirs",
        "triplet margin 1",
        "83.2",
    ]


def test_impossible_tests_are_reported(tmp_path: Path) -> None:
    linear = recording(tmp_path / "linear", rank_weights="linear")
    with pytest.raises(NoLayoutError, match="'reference'.*uniform rank weights"):
        layouts.z_tests([linear], "reference")
    one, other = recording(tmp_path / "one"), recording(tmp_path / "other", model="e5", k=8)
    assert (
        len([row for row in rows_by_name([one, other], "e5: reference").values() if row["z"]]) == 5
    ), "those of k = 8"
    with pytest.raises(
        InputError, match="--z-test 'reference' .*several rows; .*: reference; e5: "
    ):
        layouts.z_tests([one, other], "reference")
    with pytest.raises(
        InputError, match="--z-test 'triplet' .*: reference; .*; .*: triplet margin 1$"
    ):
        layouts.z_tests([one], "triplet")


@pytest.mark.parametrize(("column", "value"), [("k", 0), ("k", 2.5), ("num_queries", -3)])
def test_counts_must_be_whole_numbers(column: str, value: float) -> None:
    frame = pd.DataFrame(
        {"loss": ["a", "b"], "polarity": 0.5, "similarity": 0.5, "num_queries": 9, "k": 4},
        dtype=object,
    )
    frame.loc[1, column] = value
    with pytest.raises(InputError, match=rf"t.csv: row 2: {column} is {value:g}.*; .*above 0"):
        read_rows(frame, Path("t.csv"))


def test_files_are_written_on_request_and_removed_without(tmp_path: Path) -> None:
    trials = grid()
    run = LocalFolder(write_run(tmp_path / "run", trials, test_of=dev_front(trials)))
    to = tmp_path / "tables"
    written = write_layouts([run], to, z_test="reference")
    assert [file.name for file in written.files["z_tests"]] == [
        "z_tests.md",
        "z_tests.tex",
        "z_tests.csv",
    ]
    assert (to / "z_tests.tex").read_text().count(r"\midrule") == 1
    written = write_layouts([run], to)
    assert "z_tests" not in written.files and "z_tests" not in written.left_out
    assert not list(to.glob("z_tests*")) and (to / "by_rung.md").exists()
    linear = LocalFolder(write_run(tmp_path / "linear", grid(), rank_weights="linear"))
    assert (
        "uniform rank weights"
        in write_layouts([linear], to, z_test="reference").left_out["z_tests"]
    )
