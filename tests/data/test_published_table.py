"""The published table that ships with raysweep matches its source files."""

import csv
from pathlib import Path

import pytest

from raysweep.paper.published_scores import TABLES
from support.paths import DATA

LOSSES = {
    "multiple_negatives": "MultipleNegativesRankingLoss",
    "online_contrastive": "OnlineContrastiveLoss",
    "contrastive": "ContrastiveLoss",
    "triplet": "TripletLoss",
}


def read_rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_tuned_rows_are_from_the_last_epoch() -> None:
    recorded = {
        (row["loss"], float(row["margin"] or 0)): (float(row["polarity"]), float(row["similarity"]))
        for row in read_rows(DATA / "replay" / "sst2_published_epochs.csv")
        if (row["model"], row["epoch"]) == ("minilm-6", "5")
    }
    _, _, *tuned = TABLES["sst2"].points("test")
    assert len(tuned) == len(recorded) == 17
    for point in tuned:
        assert point.label is not None
        loss, _, margin = point.label.removeprefix("all-MiniLM-L6-v2, ").partition(" ")
        scores = 100 * point["polarity"], 100 * point["similarity"]
        assert scores == pytest.approx(recorded.pop((LOSSES[loss], float(margin or 0))))


def test_table_recognizes_its_queries_by_their_texts() -> None:
    texts = [row["text"] for row in read_rows(DATA / "sst2" / "test.csv")]
    table = TABLES["sst2"]
    assert len(texts) == table.num_queries
    assert table.measured_on(reversed(texts))
    assert not table.measured_on([*texts[1:], texts[1]])
