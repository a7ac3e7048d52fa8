"""The tables of P and S by loss, margin and model, in every format, against the scores that runs were given."""

import dataclasses
from pathlib import Path

import pytest

from raysweep.paper import markup
from raysweep.paper.by_margin import Score, by_margin
from raysweep.paper.recording import Recording
from raysweep.paper.run_source import recording_of_run
from raysweep.paper.table import NoTableError
from raysweep.storage.folder import LocalFolder
from support.ledgers import dev_front, point
from support.tables import GRID, csv_rows, grid, latex_rows, markdown_rows, trial, write_run


@pytest.fixture
def recordings(tmp_path: Path) -> list[Recording]:
    """Of two models; the second lacks a configuration, and its polarities are higher by 0.05."""
    write_run(tmp_path / "one", grid(), model="MiniLM_L6")
    better = [trial(loss, margin, [(p + 0.05, s) for p, s in scores]) for (loss, margin), scores in GRID.items()]
    write_run(tmp_path / "two", better[:-1], model="e5")
    return [recording_of_run(LocalFolder(tmp_path / name)) for name in ("one", "two")]


def test_each_cell_is_the_score_after_the_last_rung(recordings: list[Recording]) -> None:
    scores: tuple[tuple[Score, int], ...] = (("polarity", 0), ("similarity", 1))
    for score, place in scores:
        rows = csv_rows(markup.csv_text(by_margin(recordings, score)))
        assert list(rows[0]) == ["loss", "margin", "MiniLM_L6", "MiniLM_L6_std", "e5", "e5_std"]
        assert [row["loss"] for row in rows] == ["reference", "contrastive", "multiple_negatives", "triplet", "triplet"]
        for row in rows[1:]:
            margin = float(row["margin"]) if row["margin"] else None
            expected = GRID[row["loss"], margin][-1][place]
            assert float(row["MiniLM_L6"]) == pytest.approx(100 * expected)
            assert float(row["MiniLM_L6_std"]) == pytest.approx(25 if score == "polarity" else 8)
            if margin is None:
                assert row["e5"] == row["e5_std"] == ""
            else:
                assert float(row["e5"]) == pytest.approx(100 * expected + (5 if score == "polarity" else 0))


def test_the_best_of_each_column_is_marked_and_the_reference_stands_on_top(recordings: list[Recording]) -> None:
    head, *rows = markdown_rows(markup.markdown(by_margin(recordings, "polarity")))
    assert head == ["loss", "margin", "MiniLM_L6", "e5"]
    assert rows == [
        ["reference", "–", "63.0 (25.0)", "63.0 (25.0)"],  # noqa: RUF001
        ["contrastive", "0.5", "75.0 (25.0)", "80.0 (25.0)"],
        ["multiple_negatives", "–", "69.0 (25.0)", "–"],  # noqa: RUF001
        ["triplet", "0.1", "81.0 (25.0)", "86.0 (25.0)"],
        ["triplet", "1", "**83.0** (25.0)", "**88.0** (25.0)"],
    ]
    similarity = markdown_rows(markup.markdown(by_margin(recordings, "similarity")))
    assert similarity[1][2] == "47.0 (8.0)", "the reference is not in bold, though it is the best of all"
    assert [row[0] for row in similarity if "**" in row[2]] == ["multiple_negatives"]


def test_latex_has_the_same_cells(recordings: list[Recording]) -> None:
    text = markup.latex(by_margin(recordings, "polarity"))
    head, *rows = latex_rows(text)
    assert head == ["loss", "margin", r"MiniLM\_L6", "e5"]
    assert rows[2] == [r"multiple\_negatives", "--", "69.0 (25.0)", "--"]
    assert rows[4] == ["triplet", "1", r"\textbf{83.0} (25.0)", r"\textbf{88.0} (25.0)"]
    assert text.count(r"\midrule") == 4, "above the reference, and above each loss"
    assert r"\label{tab:by-margin-polarity}" in text


def test_the_caption_says_how_it_was_measured(recordings: list[Recording], tmp_path: Path) -> None:
    caption = by_margin(recordings, "polarity").caption
    assert "Scores on dev, k = 16, uniform rank weights." in caption
    assert "ended earlier" not in caption
    some = [dataclasses.replace(recordings[0], retrieval="", model="published"), *recordings[1:]]
    said = f"k = 16, uniform rank weights for {recordings[1].model}, which is not recorded for published."
    assert said in by_margin(some, "polarity").caption
    short = [*grid(), trial("triplet", 5.0, [(0.9, 0.3)], "stopped")]
    recording = recording_of_run(LocalFolder(write_run(tmp_path / "short", short)))
    assert "1 of 5 configurations ended earlier" in by_margin([recording], "polarity").caption


def test_what_else_differs_has_a_column(tmp_path: Path) -> None:
    trials = [*grid(learning_rate=1e-5), *grid(learning_rate=3e-5)]
    trials += [trial("multiple_negatives", None, [(0.7, 0.4)], scale=40.0, learning_rate=1e-5)]
    recording = recording_of_run(LocalFolder(write_run(tmp_path / "run", trials)))
    rows = csv_rows(markup.csv_text(by_margin([recording], "polarity")))
    assert len(rows) == 1 + 9
    named = [(row["loss"], row["margin"], row["others"]) for row in rows]
    assert len(set(named)) == len(named)
    assert named[:3] == [
        ("reference", "", ""),
        ("contrastive", "0.5", "learning_rate 1e-05"),
        ("contrastive", "0.5", "learning_rate 3e-05"),
    ]
    assert named[3:6] == [
        ("multiple_negatives", "scale 20", "learning_rate 1e-05"),
        ("multiple_negatives", "scale 20", "learning_rate 3e-05"),
        ("multiple_negatives", "scale 40", "learning_rate 1e-05"),
    ]


def test_a_parameter_that_only_some_have_tells_them_apart(tmp_path: Path) -> None:
    trials = [trial("triplet", 0.1, [(0.6, 0.4)], momentum=given) for given in (None, 0.5)]
    trials += [trial("contrastive", 0.1, [(0.5, 0.4)], momentum=0.5)]
    recording = recording_of_run(LocalFolder(write_run(tmp_path / "run", trials)))
    rows = csv_rows(markup.csv_text(by_margin([recording], "polarity")))
    named = [(row["loss"], row["others"]) for row in rows[1:]]
    assert named == [("contrastive", "momentum 0.5"), ("triplet", ""), ("triplet", "momentum 0.5")]


def test_the_split_is_test_where_every_point_is_on_test(tmp_path: Path) -> None:
    last = [point(number, 2, *scores[-1]) for number, scores in enumerate(GRID.values())]
    front = dev_front(grid())
    every, some, partial = (
        recording_of_run(LocalFolder(write_run(tmp_path / name, grid(), test_of=tested)))
        for name, tested in (("every", [*last, *front]), ("some", front), ("partial", front[1:]))
    )
    table = by_margin([every], "polarity")
    assert "Scores on test, k = 16" in table.caption
    assert [float(row["all-MiniLM-L6-v2"]) for row in csv_rows(markup.csv_text(table))] == [62, 73, 67, 79, 81]
    assert "Scores on dev," in by_margin([every], "polarity", "dev").caption
    assert "Scores on dev," in by_margin([some], "polarity").caption
    partly = by_margin([some], "polarity", "test")
    assert "Scores on test, which 2 of 4 points have" in partly.caption
    assert [row["loss"] for row in csv_rows(markup.csv_text(partly))] == ["reference", "triplet", "triplet"]
    with pytest.raises(NoTableError, match="only 4 of 5 front members are scored on test in partial"):
        by_margin([partial], "polarity", "test")


def test_what_cannot_be_shown(recordings: list[Recording], tmp_path: Path) -> None:
    with pytest.raises(NoTableError, match="nothing that it would show has scores on test"):
        by_margin(recordings, "polarity", "test")
    folder = write_run(tmp_path / "run", [grid()[0]._replace(config={"margin": 0.1})])
    with pytest.raises(NoTableError, match="no configuration has a parameter 'loss'"):
        by_margin([recording_of_run(LocalFolder(folder))], "polarity")
