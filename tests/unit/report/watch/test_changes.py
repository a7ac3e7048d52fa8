"""Snapshots of a running sweep, one for each change."""

from collections.abc import Callable
from pathlib import Path

from raysweep.report.watch.moment import changes
from raysweep.results.events import SessionFinished, TrialEnded
from raysweep.results.ledger import Ledger
from raysweep.results.types import TrialStatus
from raysweep.storage.folder import LocalFolder
from support.command_line import raysweep_here
from support.ledgers import StoredSweep, random_trials, write_ledger


def test_each_change_is_yielded_until_the_driver_stops(tmp_path: Path) -> None:
    """Return a run whose driver is this process, which holds the ledger."""
    write_ledger(
        tmp_path,
        [trial._replace(status="running") for trial in random_trials(2)],
        StoredSweep(finish=None),
    )
    ledger = Ledger(tmp_path)
    ledger.open()

    def end(trial: int) -> None:
        ledger.append(TrialEnded(trial=trial, status=TrialStatus.COMPLETED, at=60.0 + trial))

    def finish() -> None:
        ledger.append(SessionFinished(status="completed", reason="", seconds=62.0))
        ledger.close()

    steps: list[Callable[[], object]] = [lambda: end(0), lambda: None, lambda: end(1), finish]
    moments = changes(LocalFolder(tmp_path), 1.0, lambda _: steps.pop(0)())
    running = [
        [trial.status for trial in moment.results.trials].count(TrialStatus.RUNNING)
        for moment in moments
        if moment.results
    ]
    assert running == [2, 1, 0] and steps == []


def test_report_of_ended_run_is_written_once(tmp_path: Path) -> None:
    write_ledger(tmp_path, random_trials(2))
    result = raysweep_here(tmp_path, "report", ".", "--every", "60")
    assert result.returncode == 0 and "written:" not in result.stdout
    assert (tmp_path / "report" / "report.html").exists()
