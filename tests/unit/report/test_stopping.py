"""The page's section on early stopping, compared with counts of the stored trials."""

from collections import Counter
from pathlib import Path

from raysweep.output import ABSENT
from raysweep.report.page.trials import stopping_table, stopping_text
from raysweep.report.statuses import with_sign
from raysweep.report.summary import summary_of
from raysweep.storage.folder import LocalFolder
from support.ledgers import NUM_RUNGS, trials_of_every_status, write_ledger


def test_rungs_count_evaluated_and_ended_trials(tmp_path: Path) -> None:
    trials = trials_of_every_status(40)
    write_ledger(tmp_path, trials)
    table = stopping_table(summary_of(LocalFolder(tmp_path)))
    assert len(table.rows) == max(len(trial.scores) for trial in trials)
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        step = int(cells["rung"])
        evaluated = [trial for trial in trials if len(trial.scores) >= step]
        best = max(0.5 * sum(trial.scores[step - 1]) for trial in evaluated)
        last = [trial.status for trial in trials if len(trial.scores) == step]
        # as the sweep is over
        endings = Counter("interrupted" if status == "running" else status for status in last)
        assert int(cells["trials"]) == len(evaluated)
        assert cells["best objective"] == f"{100 * best:.1f}"
        assert endings
        for status in ("completed", "paused", "interrupted", "stopped"):
            shown = cells.get(f"last: {with_sign(status)}", ABSENT)
            assert shown == (str(endings[status]) if endings[status] else ABSENT)


def test_text_states_the_trained_share(tmp_path: Path) -> None:
    trials = trials_of_every_status(40)
    write_ledger(tmp_path, trials)
    text = stopping_text(summary_of(LocalFolder(tmp_path)))
    num_trained, num_planned = sum(len(trial.scores) for trial in trials), NUM_RUNGS * len(trials)
    assert (
        f"{num_trained} of {num_planned} rungs were trained ({num_trained / num_planned:.0%})"
        in text
    )
