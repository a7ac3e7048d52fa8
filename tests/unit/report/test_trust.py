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
    ("drop", "sentence"),
    [
        (
            Drop(-0.014, Interval(-0.024, -0.005), 0.0, -0.014, Interval(-0.024, -0.005)),
            "On average, the S of the front's members is 1.4 higher on test than on dev (90% interval: 0.5 to 2.4 higher). "
            "Selection on dev makes it 0.0 lower; noise or a shift between the splits makes it 1.4 higher. "
            "For R, which was not selected, S is 0.5 to 2.4 higher on test than on dev.",
        ),
        (
            Drop(0.02, Interval(-0.003, 0.043), 0.003, 0.017, Interval(0.001, 0.04)),
            "On average, the S of the front's members is 2.0 lower on test than on dev (90% interval: between 0.3 higher and 4.3 "
            "lower). Selection on dev makes it 0.3 lower; noise or a shift between the splits makes it 1.7 lower. "
            "For R, which was not selected, S is 0.1 to 4.0 lower on test than on dev.",
        ),
        (
            Drop(0.02, EVERYTHING, 0.003, 0.017, EVERYTHING),
            "On average, the S of the front's members is 2.0 lower on test than on dev. Selection on dev makes it 0.3 lower; "
            "noise or a shift between the splits makes it 1.7 lower.",
        ),
    ],
)
def test_drops_from_dev_to_test_in_words(
    tmp_path: Path, drop: Drop, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ledger(tmp_path, random_trials(2))
    monkeypatch.setattr(Summary, "certainty", dataclasses.replace(NOTHING, drops={"S": drop}))
    assert trust_sentences(summarize(load(tmp_path))) == [sentence]
