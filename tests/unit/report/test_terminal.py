"""The table that a terminal shows."""

import re

import numpy as np

from raysweep.report.summary import summarize
from raysweep.report.terminal import MAX_ROWS
from raysweep.results.reader import load
from support.consoles import narrow, printed
from support.ledgers import MARKUP, StoredSweep, StoredTrial, write_ledger, write_run_with_markup


def test_front_table_fits_80_columns_without_cutting_scores(run):
    folder = run.folder
    summary = summarize(load(folder))
    text = printed(narrow(summary), width=80)
    assert max(map(len, text.splitlines())) <= 80
    for member in summary.members:
        for point in (member.dev, member.test):
            assert (
                f"{100 * point['polarity']:.1f}" in text
                and f"{100 * point['similarity']:.1f}" in text
            )
    assert "R on dev: P 63.0, S 47.0" in text and "knee" in text
    assert "accuracy" not in text and "…" not in text


def test_markup_is_shown_literally(tmp_path):
    write_run_with_markup(tmp_path)
    shown = printed(narrow(summarize(load(tmp_path))))
    assert MARKUP.split("|")[0] in shown.replace("\n", "")


def test_a_sweep_without_any_trial_has_a_table(tmp_path):
    write_ledger(tmp_path, [], StoredSweep(reference=False, oracle=False, finish=None))
    assert "Front of night-run" in printed(narrow(summarize(load(tmp_path))))


def test_large_fronts_show_evenly_spaced_and_marked_members(tmp_path):
    scores = [(0.6 + 0.003 * number, 0.5 - 0.000001 * number**2) for number in range(100)]
    write_ledger(tmp_path, [StoredTrial({"loss": "triplet"}, "completed", "", scores)])
    summary = summarize(load(tmp_path))
    assert len(summary.members) == 100
    shown = printed(narrow(summary), width=80)
    match = re.search(
        r"(\d+) of 100 members; raysweep show \S+ lists all of them", " ".join(shown.split())
    )
    assert match is not None
    num_shown = int(match[1])
    assert 20 <= num_shown <= MAX_ROWS
    rows = [line.split() for line in shown.splitlines()]
    steps = [
        int(cells[-3])
        for cells in rows
        if cells[-1:] and re.fullmatch(r"\d\d\.\d", cells[-1]) and cells[-4:-3] == ["0"]
    ]
    assert len(steps) == num_shown
    assert {1, 100} <= set(steps)
    marked = {member.dev.step for member in summary.members if member.is_knee or member.is_best}
    assert marked <= set(steps)
    gaps = np.diff(sorted(set(steps) - marked | {1, 100}))
    assert max(gaps) <= 2 * 100 / num_shown + 1
