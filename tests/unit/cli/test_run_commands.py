"""``show``, ``compare``, ``watch`` and ``control`` on runs in every state: a result, or one error line."""

import dataclasses
import json
from pathlib import Path

import pytest

from raysweep.report import figures
from raysweep.results.events import RungFinished, TrialStarted
from raysweep.results.ledger import Ledger
from raysweep.results.reader import load
from raysweep.results.types import Rung
from support.command_line import raysweep_here
from support.ledgers import (
    StoredSweep,
    StoredTrial,
    change_settings,
    dev_front,
    point,
    random_trials,
    read_lines,
    write_ledger,
    write_lines,
)
from support.pictures import blank_png
from support.query_scores import write_query_scores


def write_run(folder: Path, state: str) -> Path:
    """Write a run in one of the states ``finished``, ``running``, …, into a folder of that name."""
    run = folder / state
    run.mkdir()
    trials = random_trials(12)
    if state == "finished":
        write_ledger(run, trials, StoredSweep(test_of=dev_front(trials)))
    elif state in ("running", "killed"):  # their files are the same
        write_ledger(
            run, [trial._replace(status="running") for trial in trials], StoredSweep(finish=None)
        )
    elif state == "cut off":  # within the last line, which does not count
        write_ledger(run, trials, StoredSweep(finish=None))
        with (run / "ledger.jsonl").open("a") as ledger:
            ledger.write('{"event": "rung", "trial"')
    elif state == "resumed":  # repeats the settings and a rung
        write_ledger(run, trials)
        lines = read_lines(run)
        rung = next(line for line in lines if line["event"] == "rung")
        write_lines(run, [*lines, lines[0], rung])
    elif state == "empty":
        write_ledger(run, [], StoredSweep(finish=None))
    elif state == "failed":
        write_ledger(run, [StoredTrial({"loss": "triplet"}, "failed", "it broke", [])] * 3)
    elif state == "damaged":
        write_ledger(run, trials)
        (run / "ledger.jsonl").write_text("{}\n")
    return run


@pytest.fixture(autouse=True)
def quick_figures(monkeypatch):
    """Skip drawing, which takes most of the time of ``compare --to``."""
    monkeypatch.setattr(figures, "comparison_figure", lambda _: blank_png())


RESULTS = ("finished", "running", "killed", "cut off", "resumed")

ERRORS = {
    "empty": "no trial finished a rung",
    "failed": "no trial finished a rung (3 of 3 failed)",
    "damaged": "line 1 is not an event",
    "no run": "not a run folder",
}


@pytest.mark.parametrize("state", RESULTS)
def test_show_prints_a_table(tmp_path, state):
    run = write_run(tmp_path, state)
    done = raysweep_here(
        tmp_path, "show", str(run), "--where", "polarity >= 0.7", "--best", "retention"
    )
    assert (done.returncode, done.stderr) == (0, "")
    members = [each for each in dev_front(random_trials(12)) if each["polarity"] >= 0.7]
    best = max(members, key=lambda each: each["retention"])
    assert best.name in done.stdout
    assert f"night-run-{best.name.replace(':', '-')} --point {best.name}" in done.stdout
    assert ("note: The sweep was killed" in done.stdout) == (state != "finished")


def test_show_and_watch_agree_on_whether_a_sweep_runs(tmp_path):
    write_ledger(tmp_path, random_trials(4), StoredSweep(finish=None))
    driver = Ledger(tmp_path)
    driver.append(TrialStarted(trial=4, config={"loss": "softmax"}, num_rungs=5))
    shown, watched = (
        raysweep_here(tmp_path, *words) for words in (("show", "."), ("watch", ".", "--once"))
    )
    assert "note: The sweep is still running" in shown.stdout
    assert "running, " in watched.stdout and "1 running" in watched.stdout
    driver.close()
    shown, watched = (
        raysweep_here(tmp_path, *words) for words in (("show", "."), ("watch", ".", "--once"))
    )
    assert "note: The sweep was killed; " in shown.stdout
    assert (
        "killed, " in watched.stdout
        and "1 interrupted" in watched.stdout
        and "1 running" not in watched.stdout
    )


def test_a_sweep_fails_if_all_trials_fail(tmp_path):
    run = write_run(tmp_path, "failed")
    assert (load(run).status, load(run).reason) == ("failed", "none of its trials succeeded")
    watched = raysweep_here(tmp_path, "watch", str(run), "--once")
    assert (
        "failed, " in watched.stdout
        and "none of its trials succeeded; to try more: raysweep run" in watched.stdout
    )
    assert "completed" not in watched.stdout
    reported = raysweep_here(tmp_path, "report", str(run))
    assert "note: The sweep failed: none of its trials succeeded." in reported.stdout


@pytest.mark.parametrize("state", ERRORS)
def test_show_without_rungs_is_one_line(tmp_path, state):
    run = write_run(tmp_path, state)
    done = raysweep_here(tmp_path, "show", str(run))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and ERRORS[state] in line


def test_show_prints_all_points_as_json(tmp_path):
    run = write_run(tmp_path, "finished")
    done = raysweep_here(tmp_path, "show", str(run), "--all", "--format", "json")
    rows = json.loads(done.stdout)
    assert len(rows) == sum(len(each.scores) for each in random_trials(12))
    assert all(0 <= row["dev"]["polarity"] <= 1 for row in rows)


def test_report_and_watch_print_the_front_as_json(tmp_path):
    run = write_run(tmp_path, "running")
    write_query_scores(run, load(run))
    shown = json.loads(raysweep_here(tmp_path, "show", str(run), "--format", "json").stdout)
    assert [row["point"] for row in shown] == [
        member.name for member in dev_front(random_trials(12))
    ]
    reported = raysweep_here(tmp_path, "report", str(run), "--format", "json")
    assert json.loads(reported.stdout) == shown
    assert "report.html" in reported.stderr
    watched = json.loads(
        raysweep_here(tmp_path, "watch", str(run), "--once", "--format", "json").stdout
    )
    assert watched["front"] == shown and shown[0]["dev"]["intervals"] is not None
    assert (watched["state"], sum(watched["trials"].values())) == ("killed", 12)


def test_only_watch_once_prints_json(tmp_path):
    run = write_run(tmp_path, "finished")
    done = raysweep_here(tmp_path, "watch", str(run), "--format", "json")
    assert (done.returncode, done.stderr) == (2, "error: --format json requires --once\n")


def test_show_prefers_single_encoders(tmp_path):
    run = write_run(tmp_path, "finished")
    preferred = raysweep_here(
        tmp_path, "show", str(run), "--all", "--prefer", "single", "--format", "json"
    )
    rows = json.loads(preferred.stdout)
    assert rows and {row["encoders"] for row in rows} == {1}
    rejected = raysweep_here(tmp_path, "show", str(run), "--prefer", "double")
    assert (
        rejected.returncode == 2 and "--prefer" in rejected.stderr and "'double'" in rejected.stderr
    )


@pytest.mark.parametrize(("format", "shown"), [("table", ""), ("json", "[]")])
def test_show_without_a_match_exits_with_1(tmp_path, format, shown):
    run = write_run(tmp_path, "finished")
    done = raysweep_here(
        tmp_path, "show", str(run), "--where", "polarity > 0.999", "--format", format
    )
    assert done.returncode == 1
    message = done.stdout if format == "table" else done.stderr
    assert "polarity > 0.999" in message and "0 of " in message
    assert format == "table" or done.stdout.strip() == shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--where", "P >= 101"], "polarity is 101; allowed: [0, 1]"),
        (
            ["--best", "speed"],
            "--best is 'speed'; allowed: objective, polarity, similarity, retention, accuracy",
        ),
        (["--split", "train"], "--split is 'train'; allowed: dev, test"),
        (["--format", "yaml"], "--format is 'yaml'; allowed: table, json"),
        (
            ["--knee", "--top", "2"],
            "--knee selects one point; it cannot be combined with --best or --top",
        ),
    ],
)
def test_invalid_options_of_show_are_one_line(tmp_path, arguments, message):
    run = write_run(tmp_path, "finished")
    done = raysweep_here(tmp_path, "show", str(run), *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert message in line


@pytest.mark.parametrize("state", RESULTS)
def test_compare_prints_and_writes_a_comparison(tmp_path, state):
    first, run = (
        write_run(tmp_path, "finished"),
        write_run(tmp_path, state) if state != "finished" else None,
    )
    other = run or tmp_path / "other"
    if run is None:
        other.mkdir()
        write_ledger(other, random_trials(12, seed=1))
    done = raysweep_here(tmp_path, "compare", str(first), str(other), "--to", "compared")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{other.name} - finished" in done.stdout
    assert "has no interval: " in done.stdout
    assert sorted(path.name for path in (tmp_path / "compared").iterdir()) == [
        "compare.html",
        "compare.json",
        "compare.md",
        "compare.png",
    ]
    comparison = json.loads((tmp_path / "compared" / "compare.json").read_text())
    assert [run["label"] for run in comparison["runs"]] == ["finished", other.name]


@pytest.mark.parametrize("state", ["empty", "failed"])
def test_compare_notes_a_run_without_rungs(tmp_path, state):
    first, other = write_run(tmp_path, "finished"), write_run(tmp_path, state)
    done = raysweep_here(tmp_path, "compare", str(first), str(other))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"note: {state} has no front" in done.stdout
    alone = raysweep_here(tmp_path, "compare", str(other), str(write_run(tmp_path, "no run")))
    assert alone.returncode == 2 and len(alone.stderr.splitlines()) == 1


@pytest.mark.parametrize("state", ["damaged", "no run"])
def test_compare_with_an_unreadable_run_is_one_line(tmp_path, state):
    first, other = write_run(tmp_path, "finished"), write_run(tmp_path, state)
    done = raysweep_here(tmp_path, "compare", str(first), str(other), "--to", "compared")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert ERRORS[state] in line
    assert not (tmp_path / "compared").exists()


def test_compare_notes_damaged_scores(tmp_path):
    first, other = write_run(tmp_path, "finished"), tmp_path / "other"
    other.mkdir()
    write_ledger(other, random_trials(12, seed=1))
    for run in (first, other):
        write_query_scores(run, load(run))
        change_settings(run, "seed: 0\nsampler: mfgp\n")
    comparison = raysweep_here(tmp_path, "compare", str(first), str(other))
    assert " to " in comparison.stdout and "has no interval" not in comparison.stdout
    damaged = next((other / "scores" / "dev").glob("trial-*.npz"))
    damaged.write_bytes(b"PK")
    done = raysweep_here(tmp_path, "compare", str(first), str(other))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"has no interval: {damaged}: is damaged: " in done.stdout


def test_compare_prints_differing_settings_as_json(tmp_path):
    first, other = write_run(tmp_path, "finished"), write_run(tmp_path, "killed")
    change_settings(
        first, "name: one\nbudget: {trials: 12}\nspace: {loss: triplet}\nstorage: {runs: here}\n"
    )
    change_settings(
        other, "name: two\nbudget: {trials: 24}\nspace: {loss: triplet}\nstorage: {runs: there}\n"
    )
    done = raysweep_here(tmp_path, "compare", str(first), str(other), "--format", "json")
    assert json.loads(done.stdout)["settings"] == {"budget.trials": [12, 24]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the number of runs is 1; allowed: at least 2"),
        (["finished"], "finished: is given twice; required: different runs"),
        (["other", "--to", "file"], "--to file: is a file, not a folder"),
        (["other", "--to", "s3://bucket/to"], "--to: is a URI; allowed: a local path"),
        (["other", "--format", "yaml"], "--format is 'yaml'; allowed: table, json"),
    ],
)
def test_invalid_options_of_compare_are_one_line(tmp_path, arguments, message):
    write_run(tmp_path, "finished")
    (tmp_path / "other").mkdir()
    (tmp_path / "file").touch()
    done = raysweep_here(tmp_path, "compare", "finished", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert message in line


def test_commands_read_a_run_while_its_driver_writes(tmp_path):
    run = write_run(tmp_path, "running")
    other = write_run(tmp_path, "finished")
    driver = Ledger(run)
    driver.open()
    num_trials = len(load(run).trials)
    for number, command in enumerate(
        [("show", str(run)), ("compare", str(run), str(other)), ("report", str(run))]
    ):
        driver.append(
            TrialStarted(trial=num_trials + number, config={"loss": "triplet"}, num_rungs=5)
        )
        rung = Rung(num_trials + number, 1, 2048, 9.0, 0.1)
        best = point(num_trials + number, 1, 0.95 + number / 100, 0.9)
        driver.append(RungFinished(**dataclasses.asdict(rung), stop=None, points=(best,)))
        done = raysweep_here(tmp_path, *command)
        assert done.returncode == 0, done.stderr
        is_best_in_page = (
            command[0] == "report"
            and f'"{best.name}"' in (run / "report" / "report.html").read_text()
        )
        assert is_best_in_page or best.name in done.stdout
    driver.close()
    assert len(load(run).trials) == num_trials + 3


NOBODY = {
    "finished": "no driver is running: the sweep has completed; to extend it: raysweep run --resume",
    "running": "no driver is running: the sweep was killed; to resume it: raysweep run --resume",
    "killed": "no driver is running: the sweep was killed; to resume it: raysweep run --resume",
    "cut off": "no driver is running: the sweep was killed; to resume it: raysweep run --resume",
    "resumed": "no driver is running: the sweep was killed; to resume it: raysweep run --resume",
    "empty": "no driver is running: the sweep was killed; to resume it: raysweep run --resume",
    "failed": "no driver is running: none of its trials succeeded; to try more: raysweep run --resume",
    "damaged": ERRORS["damaged"],
    "no run": ERRORS["no run"],
}


@pytest.mark.parametrize("state", NOBODY)
def test_control_without_a_driver_is_one_line_and_leaves_no_files(tmp_path, state):
    run = write_run(tmp_path, state)
    before = sorted(run.iterdir())
    done = raysweep_here(tmp_path, "control", str(run), "--pause")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {run}") and NOBODY[state] in line
    assert sorted(run.iterdir()) == before


@pytest.mark.parametrize("state", NOBODY)
def test_watch_without_a_driver_ends_at_once(tmp_path, state):
    run = write_run(tmp_path, state)
    done = raysweep_here(tmp_path, "watch", str(run))
    is_run = state not in ("damaged", "no run")
    assert done.returncode == (0 if is_run else 2)
    output = done.stdout if is_run else done.stderr
    assert (
        NOBODY[state].partition(";")[0].removeprefix("no driver is running: ")
        in output.splitlines()[-1]
    )
    assert is_run or len(done.stderr.splitlines()) == 1
    assert ("P" in done.stdout) == (state in RESULTS)
