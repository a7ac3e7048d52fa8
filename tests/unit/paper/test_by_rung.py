"""The best of each loss rung by rung, against a search through the scores that a run was given."""

from pathlib import Path

import pytest

from raysweep.paper import markup
from raysweep.paper.by_rung import by_rung, table
from raysweep.paper.recording import Configuration, Recording, Scores
from raysweep.paper.run_source import recording_of_run
from raysweep.paper.table import NoTableError
from raysweep.storage.folder import LocalFolder
from support.ledgers import REFERENCE
from support.tables import GRID, csv_rows, grid, latex_rows, markdown_rows, trial, write_run


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return recording_of_run(LocalFolder(write_run(tmp_path / "run", grid(), model="m")))


def test_best_polarity_and_best_similarity_are_of_the_configurations_that_are_named(recording: Recording) -> None:
    rows = csv_rows(markup.csv_text(table(by_rung([recording]))))
    assert [(row["loss"], row["rung"]) for row in rows] == [
        (loss, rung) for loss in ("contrastive", "multiple_negatives", "triplet") for rung in ("1", "2")
    ]
    for row in rows:
        of_loss = {
            margin: scores[int(row["rung"]) - 1] for (loss, margin), scores in GRID.items() if loss == row["loss"]
        }
        best_p = max(of_loss, key=lambda margin: of_loss[margin][0])
        best_s = max(of_loss, key=lambda margin: of_loss[margin][1])
        assert int(row["configurations"]) == len(of_loss)
        assert float(row["polarity"]) == pytest.approx(100 * of_loss[best_p][0])
        assert float(row["similarity"]) == pytest.approx(100 * of_loss[best_s][1])
        assert row["polarity_of"] == (f"margin {best_p:g}" if best_p else "")
        assert row["similarity_of"] == (f"margin {best_s:g}" if best_s else "")


def test_the_best_over_rungs_is_marked(recording: Recording) -> None:
    found = table(by_rung([recording]))
    _, *rows = markdown_rows(markup.markdown(found))
    assert [row[4] for row in rows[-2:]] == ["72.0", "**83.0**"]
    assert [row[6] for row in rows[-2:]] == ["**44.0**", "36.0"]
    assert latex_rows(markup.latex(found))[-1][4] == r"\textbf{83.0}"


def test_the_reference_and_rungs_that_fewer_trials_reached(tmp_path: Path, recording: Recording) -> None:
    (courses,) = by_rung([recording]).models
    assert courses.reference is not None
    assert courses.reference.polarity == REFERENCE["dev"][0]
    trials = [*grid(), trial("triplet", 5.0, [(0.99, 0.99)], "stopped")]
    (courses,) = by_rung([recording_of_run(LocalFolder(write_run(tmp_path / "other", trials)))]).models
    triplet = courses.losses[-1]
    assert [(best.num_configurations, best.polarity_of) for best in triplet.bests] == [(3, "margin 5"), (2, "margin 1")]


def test_configurations_whose_names_read_alike_are_several() -> None:
    """Learning rates that agree to three digits, and scales beside a margin."""
    scores = {(2.001e-5, 20): 0.9, (2.004e-5, 20): 0.7, (3.1e-5, 20): 0.8, (3.1e-5, 30): 0.6}
    configurations = tuple(
        Configuration(
            {"loss": "triplet", "margin": 0.1, "scale": scale, "learning_rate": rate},
            {step: {"dev": Scores(polarity + step / 100, 0.4)} for step in (1, 2)},
        )
        for (rate, scale), polarity in scores.items()
    )
    rows = csv_rows(markup.csv_text(table(by_rung([Recording("m", "t", "t.csv", configurations)]))))
    assert [(row["configurations"], row["polarity"]) for row in rows] == [("4", "91"), ("4", "92")]
    assert {row["polarity_of"] for row in rows} == {"margin 0.1, scale 20, learning_rate 2e-05"}


def test_it_needs_several_rungs(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [trial("triplet", 0.1, [(0.7, 0.4)])])
    with pytest.raises(NoTableError, match="every configuration has one rung; the table compares several"):
        by_rung([recording_of_run(LocalFolder(folder))])
