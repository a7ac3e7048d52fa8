"""The best scores of each loss by rung, against a search through the scores of a run."""

from pathlib import Path

import pytest

from raysweep.paper import layout
from raysweep.paper.layout import NoLayoutError
from raysweep.paper.layouts import by_rung
from raysweep.paper.model_scores import Configuration, ModelScores, Scores
from raysweep.paper.sources import read_run
from raysweep.storage.folder import LocalFolder
from support.tables import GRID, csv_rows, grid, latex_rows, markdown_rows, trial, write_run


@pytest.fixture
def recording(tmp_path: Path) -> ModelScores:
    return read_run(LocalFolder(write_run(tmp_path / "run", grid(), model="m")))


def test_best_scores_name_their_configurations(recording: ModelScores) -> None:
    rows = csv_rows(layout.to_csv(by_rung([recording])))
    assert [(row["loss"], row["rung"]) for row in rows] == [
        (loss, rung)
        for loss in ("contrastive", "multiple_negatives", "triplet")
        for rung in ("1", "2")
    ]
    for row in rows:
        scores_of_loss = {
            margin: scores[int(row["rung"]) - 1]
            for (loss, margin), scores in GRID.items()
            if loss == row["loss"]
        }
        best_p = max(scores_of_loss, key=lambda margin: scores_of_loss[margin][0])
        best_s = max(scores_of_loss, key=lambda margin: scores_of_loss[margin][1])
        assert int(row["configurations"]) == len(scores_of_loss)
        assert float(row["polarity"]) == pytest.approx(100 * scores_of_loss[best_p][0])
        assert float(row["similarity"]) == pytest.approx(100 * scores_of_loss[best_s][1])
        assert row["polarity_of"] == (f"margin {best_p:g}" if best_p else "")
        assert row["similarity_of"] == (f"margin {best_s:g}" if best_s else "")


def test_the_best_over_rungs_is_bold(recording: ModelScores) -> None:
    rungs = by_rung([recording])
    _, *rows = markdown_rows(layout.to_markdown(rungs))
    assert [row[4] for row in rows[-2:]] == ["72.0", "**83.0**"]
    assert [row[6] for row in rows[-2:]] == ["**44.0**", "36.0"]
    assert latex_rows(layout.to_latex(rungs))[-1][4] == r"\textbf{83.0}"


def test_stopped_trials_are_in_their_own_rungs_only(tmp_path: Path) -> None:
    trials = [*grid(), trial("triplet", 5.0, [(0.99, 0.99)], "stopped")]
    rungs = by_rung([read_run(LocalFolder(write_run(tmp_path / "other", trials)))])
    rows = csv_rows(layout.to_csv(rungs))[-2:]
    assert [(row["configurations"], row["polarity_of"]) for row in rows] == [
        ("3", "margin 5"),
        ("2", "margin 1"),
    ]


def test_configurations_with_equal_names_are_counted_separately() -> None:
    """Learning rates agree to three digits, and scales differ in addition to a margin."""
    scores = {(2.001e-5, 20): 0.9, (2.004e-5, 20): 0.7, (3.1e-5, 20): 0.8, (3.1e-5, 30): 0.6}
    configurations = tuple(
        Configuration(
            {"loss": "triplet", "margin": 0.1, "scale": scale, "learning_rate": rate},
            {step: {"dev": Scores(polarity + step / 100, 0.4)} for step in (1, 2)},
        )
        for (rate, scale), polarity in scores.items()
    )
    rows = csv_rows(layout.to_csv(by_rung([ModelScores("m", "t", "t.csv", configurations)])))
    assert [(row["configurations"], row["polarity"]) for row in rows] == [("4", "91"), ("4", "92")]
    assert {row["polarity_of"] for row in rows} == {"margin 0.1, scale 20, learning_rate 2e-05"}


def test_several_rungs_are_required(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [trial("triplet", 0.1, [(0.7, 0.4)])])
    with pytest.raises(NoLayoutError, match="one rung"):
        by_rung([read_run(LocalFolder(folder))])
