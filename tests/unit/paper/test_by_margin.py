"""P and S by loss, margin and model, in every format, against the scores of runs."""

import dataclasses
from pathlib import Path

import pytest

from raysweep.paper import layout
from raysweep.paper.layout import NoLayoutError
from raysweep.paper.layouts import Score, by_margin
from raysweep.paper.model_scores import ModelScores
from raysweep.paper.sources import read_run
from raysweep.storage.folder import LocalFolder
from support.ledgers import dev_front, point
from support.tables import GRID, csv_rows, grid, latex_rows, markdown_rows, trial, write_run


@pytest.fixture
def recordings(tmp_path: Path) -> list[ModelScores]:
    """Return two models; the second lacks a configuration, and its polarities are higher by 0.05."""
    write_run(tmp_path / "one", grid(), model="MiniLM_L6")
    better = [
        trial(loss, margin, [(p + 0.05, s) for p, s in scores])
        for (loss, margin), scores in GRID.items()
    ]
    write_run(tmp_path / "two", better[:-1], model="e5")
    return [read_run(LocalFolder(tmp_path / name)) for name in ("one", "two")]


def test_each_cell_is_the_score_after_the_last_rung(recordings: list[ModelScores]) -> None:
    scores: tuple[tuple[Score, int], ...] = (("polarity", 0), ("similarity", 1))
    for score, place in scores:
        rows = csv_rows(layout.to_csv(by_margin(recordings, score)))
        assert list(rows[0]) == ["loss", "margin", "MiniLM_L6", "MiniLM_L6_std", "e5", "e5_std"]
        assert [row["loss"] for row in rows] == [
            "reference",
            "contrastive",
            "multiple_negatives",
            "triplet",
            "triplet",
        ]
        for row in rows[1:]:
            margin = float(row["margin"]) if row["margin"] else None
            expected = GRID[row["loss"], margin][-1][place]
            assert float(row["MiniLM_L6"]) == pytest.approx(100 * expected)
            assert float(row["MiniLM_L6_std"]) == pytest.approx(25 if score == "polarity" else 8)
            if margin is None:
                assert row["e5"] == row["e5_std"] == ""
            else:
                assert float(row["e5"]) == pytest.approx(
                    100 * expected + (5 if score == "polarity" else 0)
                )


def test_the_best_of_each_column_is_bold_and_the_reference_comes_first(
    recordings: list[ModelScores],
) -> None:
    head, *rows = markdown_rows(layout.to_markdown(by_margin(recordings, "polarity")))
    assert head == ["loss", "margin", "MiniLM_L6", "e5"]
    assert rows == [
        ["reference", "–", "63.0 (25.0)", "63.0 (25.0)"],  # noqa: RUF001
        ["contrastive", "0.5", "75.0 (25.0)", "80.0 (25.0)"],
        ["multiple_negatives", "–", "69.0 (25.0)", "–"],  # noqa: RUF001
        ["triplet", "0.1", "81.0 (25.0)", "86.0 (25.0)"],
        ["triplet", "1", "**83.0** (25.0)", "**88.0** (25.0)"],
    ]
    similarity = markdown_rows(layout.to_markdown(by_margin(recordings, "similarity")))
    assert similarity[1][2] == "47.0 (8.0)", (
        "the reference is not in bold, though it is the best of all"
    )
    assert [row[0] for row in similarity if "**" in row[2]] == ["multiple_negatives"]


def test_latex_has_the_same_cells(recordings: list[ModelScores]) -> None:
    text = layout.to_latex(by_margin(recordings, "polarity"))
    head, *rows = latex_rows(text)
    assert head == ["loss", "margin", r"MiniLM\_L6", "e5"]
    assert rows[2] == [r"multiple\_negatives", "--", "69.0 (25.0)", "--"]
    assert rows[4] == ["triplet", "1", r"\textbf{83.0} (25.0)", r"\textbf{88.0} (25.0)"]
    assert text.count(r"\midrule") == 4, "above the reference, and above each loss"
    assert r"\label{tab:by-margin-polarity}" in text


def test_the_caption_states_the_measurement(recordings: list[ModelScores], tmp_path: Path) -> None:
    caption = by_margin(recordings, "polarity").caption
    assert "Scores on dev, k = 16, uniform rank weights." in caption
    assert "ended earlier" not in caption
    models = [dataclasses.replace(recordings[0], retrieval="", model="published"), *recordings[1:]]
    text = f"k = 16, uniform rank weights for {recordings[1].model}, retrieval settings not recorded for published."
    assert text in by_margin(models, "polarity").caption
    short = [*grid(), trial("triplet", 5.0, [(0.9, 0.3)], "stopped")]
    recording = read_run(LocalFolder(write_run(tmp_path / "short", short)))
    assert "1 of 5 configurations ended earlier" in by_margin([recording], "polarity").caption


def test_other_differences_have_a_column(tmp_path: Path) -> None:
    trials = [*grid(learning_rate=1e-5), *grid(learning_rate=3e-5)]
    trials += [trial("multiple_negatives", None, [(0.7, 0.4)], scale=40.0, learning_rate=1e-5)]
    recording = read_run(LocalFolder(write_run(tmp_path / "run", trials)))
    rows = csv_rows(layout.to_csv(by_margin([recording], "polarity")))
    assert len(rows) == 1 + 9
    names = [(row["loss"], row["margin"], row["others"]) for row in rows]
    assert len(set(names)) == len(names)
    assert names[:3] == [
        ("reference", "", ""),
        ("contrastive", "0.5", "learning_rate 1e-05"),
        ("contrastive", "0.5", "learning_rate 3e-05"),
    ]
    assert names[3:6] == [
        ("multiple_negatives", "scale 20", "learning_rate 1e-05"),
        ("multiple_negatives", "scale 20", "learning_rate 3e-05"),
        ("multiple_negatives", "scale 40", "learning_rate 1e-05"),
    ]


def test_parameters_of_only_some_configurations_distinguish_them(tmp_path: Path) -> None:
    trials = [trial("triplet", 0.1, [(0.6, 0.4)], momentum=momentum) for momentum in (None, 0.5)]
    trials += [trial("contrastive", 0.1, [(0.5, 0.4)], momentum=0.5)]
    recording = read_run(LocalFolder(write_run(tmp_path / "run", trials)))
    rows = csv_rows(layout.to_csv(by_margin([recording], "polarity")))
    names = [(row["loss"], row["others"]) for row in rows[1:]]
    assert names == [("contrastive", "momentum 0.5"), ("triplet", ""), ("triplet", "momentum 0.5")]


def test_the_split_is_test_if_every_point_is_on_test(tmp_path: Path) -> None:
    last = [point(number, 2, *scores[-1]) for number, scores in enumerate(GRID.values())]
    front = dev_front(grid())
    every, some, partial = (
        read_run(LocalFolder(write_run(tmp_path / name, grid(), test_of=tested)))
        for name, tested in (("every", [*last, *front]), ("some", front), ("partial", front[1:]))
    )
    complete = by_margin([every], "polarity")
    assert "Scores on test, k = 16" in complete.caption
    assert [float(row["all-MiniLM-L6-v2"]) for row in csv_rows(layout.to_csv(complete))] == [
        62,
        73,
        67,
        79,
        81,
    ]
    assert "Scores on dev," in by_margin([every], "polarity", "dev").caption
    assert "Scores on dev," in by_margin([some], "polarity").caption
    partly = by_margin([some], "polarity", "test")
    assert "Scores on test (available for 2 of 4 points)" in partly.caption
    assert [row["loss"] for row in csv_rows(layout.to_csv(partly))] == [
        "reference",
        "triplet",
        "triplet",
    ]
    with pytest.raises(NoLayoutError, match="4 of 5 .* test in partial"):
        by_margin([partial], "polarity", "test")


def test_missing_scores_and_losses_are_reported(
    recordings: list[ModelScores], tmp_path: Path
) -> None:
    with pytest.raises(NoLayoutError, match="scores on test"):
        by_margin(recordings, "polarity", "test")
    folder = write_run(tmp_path / "run", [grid()[0]._replace(config={"margin": 0.1})])
    with pytest.raises(NoLayoutError, match="'loss'"):
        by_margin([read_run(LocalFolder(folder))], "polarity")
