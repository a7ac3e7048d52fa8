"""The figures of a report."""

import sys

import pytest

from raysweep.report.figures import front_figure, progress_figure
from raysweep.report.summary import summarize
from raysweep.results.reader import load
from support.ledgers import StoredSweep, StoredTrial, dev_front, random_trials, write_ledger


@pytest.mark.parametrize("case", ["usual", "single point", "no rung"])
def test_figures_are_wide_pngs(tmp_path, case):
    trials = random_trials(14)
    if case == "usual":
        write_ledger(tmp_path, trials, StoredSweep(test_of=dev_front(trials)))
    else:
        scores = [(0.8, 0.4)] if case == "single point" else []
        write_ledger(
            tmp_path,
            [StoredTrial({}, "interrupted", "", scores)],
            StoredSweep(reference=False, oracle=False),
        )
    summary = summarize(load(tmp_path))
    for draw in (front_figure, progress_figure):
        png = draw(summary)
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        assert int.from_bytes(png[16:20], "big") >= 1500
    assert "matplotlib.pyplot" not in sys.modules
