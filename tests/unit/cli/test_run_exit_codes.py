"""Exit codes of ``raysweep run`` by how the sweep ended."""

import json
from pathlib import Path
from typing import Any

import pytest

from raysweep.ray_tune import run as runner
from raysweep.ray_tune.run import COMPLETED, FAILED, INTERRUPTED, PLATEAU, Ending, RunOutcome
from raysweep.results.reader import load
from raysweep.storage.folder import open_folder
from support.command_line import Done, raysweep_here
from support.ledgers import StoredSweep, StoredTrial, dev_front, random_trials, write_ledger
from support.sweep_files import MINIMAL

GIVEN_UP = Ending("failed", "3 of 5 trials failed", is_final=True)


def write_run(folder: Path, trials: list[StoredTrial], ending: Ending) -> None:
    folder.mkdir(parents=True)
    write_ledger(
        folder, trials, StoredSweep(finish=(ending.status, ending.reason), is_final=ending.is_final)
    )


@pytest.fixture
def run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that repeats a job's command and returns the result and the number of sweeps that ran."""

    def again(trials: list[StoredTrial], ending: Ending, *more: str) -> tuple[Done, int]:
        num_runs = 0

        def count(*_: Any, place: str | None = None, **__: Any) -> RunOutcome:
            nonlocal num_runs
            num_runs += 1
            folder = Path(place or "raysweep-runs/night")
            if not folder.exists():
                write_run(folder, trials, ending)
            return RunOutcome(open_folder(folder), ending)

        monkeypatch.setattr(runner, "run", count)
        (tmp_path / "sweep.yaml").write_text(MINIMAL)
        options = (
            "--name",
            "night",
            "--resume-or-start",
            "--storage.runs",
            str(tmp_path / "raysweep-runs"),
        )
        return raysweep_here(tmp_path, "run", "sweep.yaml", *options, *more), num_runs

    return again


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (COMPLETED, 0),
        (PLATEAU, 0),
        (Ending("budget", "budget.minutes, 5, is reached"), 0),
        (GIVEN_UP, 1),
        (FAILED, 1),
        (INTERRUPTED, 130),
    ],
    ids=lambda value: getattr(value, "status", ""),
)
def test_the_exit_code_depends_on_the_ending(run_again: Any, ending: Ending, code: int) -> None:
    done, num_runs = run_again(random_trials(6), ending)
    assert (done.returncode, num_runs) == (code, 1), done.stderr
    assert "report.html" in done.stdout


def test_with_json_only_the_front_is_on_standard_output(run_again: Any) -> None:
    trials = random_trials(6)
    for num_runs in (1, 0):  # the second command only reports the failure
        done, run = run_again(trials, GIVEN_UP, "--format", "json")
        assert (done.returncode, run) == (1, num_runs)
        assert [member["point"] for member in json.loads(done.stdout)] == [
            point.name for point in dev_front(trials)
        ]
        assert "report.html" in done.stderr


def test_the_exit_code_is_1_if_all_trials_failed(run_again: Any) -> None:
    done, _ = run_again(
        [StoredTrial({"loss": "triplet"}, "failed", "it broke", [(0.7, 0.4)])] * 2, COMPLETED
    )
    assert done.returncode == 1


def test_a_permanently_failed_sweep_is_not_run_again(run_again: Any, tmp_path: Path) -> None:
    trials = random_trials(6)
    assert run_again(trials, GIVEN_UP)[0].returncode == 1
    before = load(tmp_path / "raysweep-runs" / "night")
    assert before.has_failed_for_good
    done, num_runs = run_again(trials, COMPLETED)
    assert (done.returncode, num_runs) == (1, 0)
    assert "report.html" in done.stdout
    assert GIVEN_UP.reason in done.stdout
    assert "raysweep run --resume raysweep-runs/night" in done.stdout
    assert load(tmp_path / "raysweep-runs" / "night") == before
