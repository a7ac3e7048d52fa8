"""The published tables that ship with the package."""

import csv

import pytest

from raysweep.paper.published_scores import TABLES, digest
from support.paths import ROOT


def test_rows_become_points_of_a_split() -> None:
    points = {point.label: point for point in TABLES["sst2"].points("dev")}
    setfit = points["all-MiniLM-L6-v2, SetFit"]
    assert (setfit.kind, setfit.split, setfit.trial, setfit.step, setfit.width) == (
        "published",
        "dev",
        None,
        None,
        384,
    )
    assert (setfit["polarity"], setfit.std("polarity")) == pytest.approx((0.779, 0.29))
    assert (setfit["similarity"], setfit.std("similarity")) == pytest.approx((0.271, 0.069))
    untuned = points["all-MiniLM-L6-v2, untuned"]
    assert untuned["retention"] == 1
    assert setfit["retention"] == pytest.approx(setfit["similarity"] / untuned["similarity"])
    tuned = points["all-MiniLM-L6-v2, triplet 0.1"]
    assert (tuned.std("polarity"), tuned.get("accuracy")) == (0, None), "not published"


@pytest.mark.parametrize("name", sorted(TABLES))
def test_each_table_names_its_source_and_license(name: str) -> None:
    folder = ROOT / "raysweep" / "paper" / "published"
    text = (folder / TABLES[name].file).read_text(encoding="utf-8")
    head = "".join(line for line in text.splitlines() if line.startswith("#"))
    assert "https://" in head and "License" in head
    assert "Permission is hereby granted" in (folder / "LICENSE.txt").read_text(encoding="utf-8")
    rows = list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
    assert rows[0]["method"] == "untuned"
    assert len({row["method"] for row in rows}) == len(rows)


def test_digests_ignore_spaces_case_and_order() -> None:
    assert digest(["it 's a charming journey . ", "Bleak!"]) == digest(
        ["bleak", "It's a charming journey."]
    )
    assert digest(["bleak", "It's a charming journey."]) != digest(
        ["bleak", "It's a charming journey.", "bleak"]
    )
