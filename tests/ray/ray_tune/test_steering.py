"""A sweep on Ray controlled by other processes: paused, killed, resumed, with a requested trial and fewer workers."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raysweep.results.events import RungFinished, SweepSteered, TrialContinued, TrialStarted
from raysweep.results.ledger import read_events
from raysweep.results.reader import load
from raysweep.storage.folder import LocalFolder
from raysweep.storage.line_log import is_held
from support.command_line import raysweep_here
from support.paths import ROOT, TESTS
from support.steered_sweep import NUM_TRIALS

pytestmark = pytest.mark.recovery


def start_driver(folder: Path) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(ROOT)])}
    with (folder / "printed.txt").open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "support.steered_sweep", str(folder)],
            env=environment,
            stdout=file,
            stderr=file,
        )


def wait_until(
    condition: Callable[[], bool], driver: "subprocess.Popen[bytes]", seconds: float = 200
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline and driver.poll() is None
        time.sleep(0.05)


def control(folder: Path, *arguments: str) -> str:
    done = raysweep_here(folder, "control", str(folder), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def reject(folder: Path, *arguments: str) -> str:
    done = raysweep_here(folder, "control", str(folder), *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def num_running(folder: Path) -> int:
    return sum(trial.status == "running" for trial in load(folder).trials)


def test_control_requests_survive_a_killed_driver(tmp_path: Path) -> None:
    (tmp_path / "points").mkdir()
    driver = start_driver(tmp_path)
    try:
        wait_until(
            lambda: (tmp_path / "ledger.jsonl").is_file() and len(load(tmp_path).rungs) >= 1, driver
        )
        assert "paused" in control(tmp_path, "--pause")
        wait_until(lambda: num_running(tmp_path) == 0, driver)
        before = load(tmp_path)
        assert {trial.reason for trial in before.trials} == {"the sweep is paused"}
        assert "trial 1 stopped" in control(tmp_path, "--stop-trial", "1")
        assert "loss triplet, margin 0.1" in control(
            tmp_path, "--try", "{loss: triplet, margin: 0.1}"
        )
        control(tmp_path, "--workers", "1")
        assert "allowed: 1 to 2" in reject(tmp_path, "--workers", "3")
        assert "--stop-trial is 99" in reject(tmp_path, "--stop-trial", "99")
        assert len(load(tmp_path).rungs) == len(before.rungs), "nothing starts during a pause"
    finally:
        driver.kill()
        driver.wait()
    assert re.search("no driver.*killed.*raysweep run --resume", reject(tmp_path, "--resume"))

    driver = start_driver(tmp_path)
    try:
        wait_until(lambda: is_held(LocalFolder(tmp_path), "ledger") is True, driver)
        assert "resumed" in control(tmp_path, "--resume", "--wait", "200")
        assert driver.wait(timeout=200) == 0, (tmp_path / "printed.txt").read_text()[-2000:]
    finally:
        driver.kill()
        driver.wait()
    results = load(tmp_path)
    assert (results.status, results.is_paused, results.workers) == ("completed", False, 1)
    assert len(results.trials) == NUM_TRIALS
    assert [trial.trial for trial in results.trials if trial.status != "completed"] == [1]
    assert results.trials[1].status == "stopped"
    events = list(read_events(tmp_path / "ledger.jsonl"))
    resumed_at = next(
        number
        for number, event in enumerate(events)
        if isinstance(event, SweepSteered) and event.action == "resume"
    )
    later = [
        event for event in events[resumed_at:] if isinstance(event, TrialStarted | TrialContinued)
    ]
    assert isinstance(later[0], TrialContinued) and later[0].trial == 0, (
        "the interrupted trial resumes first"
    )
    requested = later[1]
    assert isinstance(requested, TrialStarted) and requested.origin is not None
    assert {"loss": "triplet", "margin": 0.1}.items() <= requested.config.items()
    order = [event.trial for event in events[resumed_at:] if isinstance(event, RungFinished)]
    assert order == sorted(order), "one at a time"
    assert "completed" in reject(tmp_path, "--pause")
    assert sorted(path.name for path in (tmp_path / "requests").iterdir()) == []
