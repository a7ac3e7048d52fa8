"""Cells of the report's tables."""

import dataclasses

import pytest

from raysweep.report import write
from raysweep.report.notes import notes
from raysweep.report.statuses import STATUS_STYLES, with_sign
from raysweep.report.summary import summarize
from raysweep.report.tables import describe, front_table, settings_table, trial_table
from raysweep.results.events import SweepSteered, TrialEnded
from raysweep.results.ledger import Ledger
from raysweep.results.reader import load
from raysweep.results.types import TrialStatus
from raysweep.results.views import varied_parameters
from support.ledgers import (
    NUM_RUNGS,
    StoredSweep,
    StoredTrial,
    trials_of_every_status,
    write_ledger,
)


def test_configurations_list_varied_parameters_main_ones_first(tmp_path):
    configs = [
        {
            "weight_decay": 0.01,
            "learning_rate": 3e-5,
            "loss": "triplet",
            "margin": 0.1,
            "batch_size": 64,
        },
        {
            "weight_decay": 0.02,
            "learning_rate": 3e-5,
            "loss": "multiple_negatives",
            "margin": None,
            "batch_size": 64,
        },
    ]
    write_ledger(
        tmp_path, [StoredTrial(config, "completed", "", [(0.8, 0.4)]) for config in configs]
    )
    names = varied_parameters(load(tmp_path).trials)
    assert names == ("loss", "margin", "weight_decay")
    assert describe(configs[0], names) == "triplet, margin 0.1, weight_decay 0.01"
    assert describe(configs[1], names) == "multiple_negatives, weight_decay 0.02"
    assert varied_parameters(load(tmp_path).trials[:1]) == (
        "loss",
        "margin",
        "learning_rate",
        "batch_size",
    )


@pytest.mark.parametrize(
    ("towers", "expected"),
    [
        (("both", "both"), None),
        (("query", "both"), ["nothing", "everything"]),
        (("separate", "query"), ["everything", "nothing"]),
    ],
)
def test_front_states_what_to_re_index(tmp_path, towers, expected):
    trials = [
        StoredTrial({"loss": "triplet", "tower": tower}, "completed", "", [scores])
        for tower, scores in zip(towers, [(0.7, 0.5), (0.8, 0.4)], strict=True)
    ]
    write_ledger(tmp_path, trials)
    summary = summarize(load(tmp_path))
    members = tuple(
        dataclasses.replace(
            member,
            dev=dataclasses.replace(member.dev, kind="query" if tower == "query" else "plain"),
        )
        for tower, member in zip(towers, summary.members, strict=True)
    )
    front = dataclasses.replace(summary.front, members=members)
    summary = dataclasses.replace(summary, front=front)
    table = front_table(summary)
    assert [member.dev.trial for member in members] == [0, 1]
    if expected is None:
        assert "re-index" not in table.columns
    else:
        column = table.columns.index("re-index")
        assert [row[column] for row in table.rows] == expected
    assert any("two encoders" in note for note in notes(summary)) == ("separate" in towers)


def test_every_status_has_a_distinct_sign(tmp_path):
    trials = trials_of_every_status()
    write_ledger(
        tmp_path,
        trials,
        StoredSweep(finish=("budget", "1 minute is spent"), limit={"budget.minutes": 1}),
    )
    summary = write.write(tmp_path).summary
    signs = [{with_sign(status), STATUS_STYLES[status].marker} for _, status, *_ in trials]
    assert len(set(map(frozenset, signs))) == len({status for _, status, *_ in trials}) == 6
    paused = sum(status == "paused" for _, status, *_ in trials)
    for name, run in (
        ("front.md", tmp_path),
        ("report.html", f"{tmp_path.parent.name}/{tmp_path.name}"),
    ):
        text = (tmp_path / "report" / name).read_text().replace("\N{NO-BREAK SPACE}", " ")
        assert (
            f"{paused} of 40 trials remained paused; raysweep run --resume {run} --budget.minutes 2 may resume them."
            in text
        )
        # among the costs, and in the page under early stopping
        others = 2 if name == "report.html" else 1
        assert text.count("■ paused") == paused + others
    assert summary.account.of("paused").num_trials == paused


def test_a_trial_stopped_by_a_user_is_not_an_early_stop(tmp_path):
    """A trial that ends before it receives the request keeps its own status."""
    statuses = ["stopped", "running", "running"]
    write_ledger(
        tmp_path,
        [StoredTrial({"loss": "triplet"}, status, "", [(0.8, 0.4)]) for status in statuses],
        StoredSweep(finish=None),
    )
    ledger = Ledger(tmp_path)
    for trial, status in ((1, TrialStatus.STOPPED), (2, TrialStatus.COMPLETED)):
        ledger.append(SweepSteered(request=str(trial), action="stop-trial", trial=trial))
        ledger.append(TrialEnded(trial=trial, status=status))
    ledger.close()
    summary = summarize(load(tmp_path))
    (seconds,) = {trial.seconds for trial in summary.results.trials if trial.trial == 0}
    # of trial 0, after one rung
    assert summary.account.total.saved_seconds == pytest.approx(seconds * (NUM_RUNGS - 1))
    shown = [row[2].replace("\N{NO-BREAK SPACE}", " ") for row in trial_table(summary).rows]
    assert shown == ["▼ stopped", "◀ stopped by a person", "● completed"]
    assert ("trials", "3 of 8: 1 stopped, 1 stopped by a person, 1 completed") in settings_table(
        summary
    ).rows
    assert (
        len({style.sign for style in STATUS_STYLES.values()})
        == len({style.marker for style in STATUS_STYLES.values()})
        == 7
    )
