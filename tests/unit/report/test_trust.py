"""Sentences about the certainty of a report."""

import dataclasses
from pathlib import Path

import pytest

from raysweep.report.certainty import NOTHING
from raysweep.report.summary import Summary, summarize
from raysweep.report.trust import trust_sentences
from raysweep.results.reader import load
from raysweep.uncertainty.interval import EVERYTHING, Interval
from raysweep.uncertainty.selection import Drop
from support.ledgers import random_trials, write_ledger


@pytest.mark.parametrize(
    ("drop", "said"),
    [
        (
            Drop(-0.014, Interval(-0.024, -0.005), 0.0, -0.014, Interval(-0.024, -0.005)),
            "S of the front's members is 1.4 higher on test than on dev in the mean (90% interval: 0.5 to 2.4 higher). That they "
            "were chosen on dev makes it 0.0 lower; the rest, 1.4 higher, is a shift between the splits, or chance, that the same "
            "encoders show. S of R, which nobody chose, is 0.5 to 2.4 higher on test than on dev.",
        ),
        (
            Drop(0.02, Interval(-0.003, 0.043), 0.003, 0.017, Interval(0.001, 0.04)),
            "S of the front's members is 2.0 lower on test than on dev in the mean (90% interval: between 0.3 higher and 4.3 "
            "lower). That they were chosen on dev makes it 0.3 lower; the rest, 1.7 lower, is a shift between the splits, or "
            "chance, that the same encoders show. S of R, which nobody chose, is 0.1 to 4.0 lower on test than on dev.",
        ),
        (
            Drop(0.02, EVERYTHING, 0.003, 0.017, EVERYTHING),
            "S of the front's members is 2.0 lower on test than on dev in the mean. That they were chosen on dev makes it 0.3 "
            "lower; the rest, 1.7 lower, is a shift between the splits, or chance, that the same encoders show.",
        ),
    ],
)
def test_drops_from_dev_to_test_in_words(
    tmp_path: Path, drop: Drop, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ledger(tmp_path, random_trials(2))
    monkeypatch.setattr(Summary, "certainty", dataclasses.replace(NOTHING, drops={"S": drop}))
    assert trust_sentences(summarize(load(tmp_path))) == [said]
