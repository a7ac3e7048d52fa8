"""A driver that ends without a word leaves a report and the command that resumes its run."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from raysweep.results.events import StageBegan
from raysweep.results.ledger import Ledger
from support.ledgers import StoredSweep, StoredTrial, write_ledger
from support.sweep_files import MINIMAL

DRIVER = """
import os, signal, sys
from pathlib import Path
from raysweep.ray_tune.survivor import survived
from raysweep.terminal import Log
log = Log(Path(sys.argv[1], "run.log"), os.dup(1), os.dup(2))
with survived(*sys.argv[1:3], log.saved_stderr):
    exec(sys.argv[3])
"""
CONFIG = {"loss": "triplet", "learning_rate": 1e-5, "batch_size": 64, "freezing": "none"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    trials = [StoredTrial(CONFIG, "completed", "", [(0.7, 0.4)])]
    folder = tmp_path / "run"
    folder.mkdir()
    write_ledger(folder, trials, StoredSweep(settings=MINIMAL.encode()))
    return folder


def drive(run: Path, head: str, work: str) -> str:
    """Return the output of a driver with this work, and of its survivor, which ends last."""
    command = [sys.executable, "-c", DRIVER, str(run), head, work]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_driver_ended_by_ray_leaves_a_report(run: Path) -> None:
    printed = drive(run, "127.0.0.1:1", "os._exit(1)")
    assert "127.0.0.1:1 does not answer" in printed
    assert printed.splitlines()[-1].endswith(f"raysweep run --resume {run}")
    assert (run / "report" / "front.md").is_file()


def test_killed_driver_leaves_a_report(run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        printed = drive(
            run, f"127.0.0.1:{head.getsockname()[1]}", "os.kill(os.getpid(), signal.SIGKILL)"
        )
    assert "killed" in printed
    assert (run / "report" / "front.md").is_file()


def test_run_that_another_driver_has_resumed_is_left_to_it(run: Path) -> None:
    ledger = Ledger(run)
    ledger.append(StageBegan(stage="test", count=1))  # the first event takes the run
    try:
        printed = drive(run, "127.0.0.1:1", "os._exit(1)")
    finally:
        ledger.close()
    assert "does not answer" in printed
    assert not (run / "report").exists()


@pytest.mark.parametrize("work", ["pass", "raise ValueError"])
def test_driver_that_reports_itself_needs_no_other_report(run: Path, work: str) -> None:
    assert drive(run, "127.0.0.1:1", work) == ""
    assert not (run / "report").exists()
