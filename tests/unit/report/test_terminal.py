"""The table that a terminal shows."""

from raysweep.report.summary import summarise
from raysweep.report.terminal import terminal_table
from raysweep.results.reader import load
from support.consoles import printed
from support.ledgers import MARKUP, StoredSweep, write_ledger, write_run_with_markup


def test_terminal_table_fits_80_columns_and_shows_scores_whole(run):
    folder = run.folder
    summary = summarise(load(folder))
    text = printed(terminal_table(summary), width=80)
    assert max(map(len, text.splitlines())) <= 80
    for member in summary.members:
        for each in (member.dev, member.test):
            assert f"{100 * each.polarity:.1f}" in text and f"{100 * each.similarity:.1f}" in text
    assert "R on dev: P 63.0, S 47.0" in text and "knee" in text
    assert "accuracy" not in text and "…" not in text


def test_markup_of_the_run_is_shown_as_it_is(tmp_path):
    write_run_with_markup(tmp_path)
    shown = printed(terminal_table(summarise(load(tmp_path))))
    assert MARKUP.split("|")[0] in shown.replace("\n", "")


def test_a_sweep_without_any_trial_has_a_table(tmp_path):
    write_ledger(tmp_path, [], StoredSweep(reference=False, oracle=False, finish=None))
    assert "Front of night-run" in printed(terminal_table(summarise(load(tmp_path))))
