"""The page's box of commands that usually follow a sweep. The suggested commands work."""

import dataclasses
import json
import shlex

from raysweep.report.page.sections import next_steps, steps
from raysweep.report.summary import summarize
from raysweep.results.reader import load
from support.command_line import raysweep_here
from support.ledgers import write_ledger


def test_steps_of_a_finished_sweep(run):
    summary = summarize(load(run.folder))
    (knee,) = [member.dev for member in summary.members if member.is_knee]
    export, show, resume = (shlex.split(step.command) for step in steps(summary))
    assert export[:3] == ["raysweep", "export", str(run.folder)]
    assert export[export.index("--point") + 1] == knee.name
    assert resume[:4] == ["raysweep", "run", "--resume", str(run.folder)]
    num_trials = int(resume[resume.index("--trials") + 1])
    assert num_trials > summary.results.info.num_trials
    shown = raysweep_here(run.folder, *show[1:], "--format", "json")
    assert shown.returncode == 0, shown.stderr
    (best,) = json.loads(shown.stdout)
    members = [
        member.dev
        for member in summary.members
        if member.dev["similarity"] >= best["dev"]["similarity"]
    ]
    assert (
        best["dev"]["polarity"] == max(point["polarity"] for point in members) >= knee["polarity"]
    )
    assert 100 * best["dev"]["similarity"] >= int(100 * knee["similarity"])


def test_running_sweep_is_not_resumed(run):
    summary = summarize(dataclasses.replace(load(run.folder), status="running"))
    assert [shlex.split(step.command)[1] for step in steps(summary)] == ["export", "show"]


def test_no_steps_without_a_front(tmp_path):
    write_ledger(tmp_path, [])
    assert next_steps(summarize(load(tmp_path))) == ""
