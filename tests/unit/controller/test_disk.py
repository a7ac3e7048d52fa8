"""Checkpoints and weights after a sweep has ended: what stays, what is removed, and what a resume does then."""

import dataclasses
from pathlib import Path

import pytest

from raysweep.config.load import load as load_space
from raysweep.controller import disk
from raysweep.controller.disk import RunSize
from raysweep.controller.progress import Verdict
from raysweep.controller.resume import Resumed
from raysweep.controller.sweep import Sweep
from raysweep.errors import InputError
from raysweep.report.notes import ending_notes
from raysweep.results.commands import resume_options
from raysweep.results.events import PointsScored
from raysweep.results.ledger import Ledger, checkpoint_folder, point_folder, read_events
from raysweep.results.reader import load
from raysweep.results.types import Results, TrialStatus
from raysweep.storage.folder import LocalFolder
from support.command_line import raysweep_here
from support.ledgers import baseline
from support.paths import SPACES
from support.sweeps import assemble, make, rung, settings

REMOVED = ("stopped", "its checkpoint was removed")
ONE_TRIAL_EACH = {"budget__trials": "3", "early_stopping__policy": "none"}


def write(file: Path, num_bytes: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(bytes(num_bytes))


def search(folder: Path, status: str, **overrides: str) -> Sweep:
    """End a sweep with a completed, a paused and an interrupted trial; each has written a checkpoint of 1000 bytes."""
    sweep, _ = make(folder, **ONE_TRIAL_EACH, **overrides)
    sweep.ledger.append(PointsScored(points=(baseline("dev", "reference", 0.6, 0.47),)))
    write(folder / "config.yaml", 1)
    write(folder / "prepared.json", 1)
    for last_step, verdict in ((4, None), (1, TrialStatus.PAUSED), (2, TrialStatus.INTERRUPTED)):
        number, config = sweep.assign() or pytest.fail("no trial")
        write(folder / checkpoint_folder(number) / "000000064" / "tensors", 1000)
        for step in range(1, last_step + 1):
            write(folder / point_folder(number, step) / "tensors", 100)
            sweep.record_rung(number, rung(config, step))
        if verdict is not None:
            sweep.assignments[number].verdict = Verdict(verdict, "for this test")
        sweep.release(number)
    # by a process that ended late
    write(folder / checkpoint_folder(0) / "000000064" / "tensors", 1000)
    sweep.finish(status, "")
    return sweep


def checkpoints(folder: Path) -> set[str]:
    return {path.name for path in (folder / "checkpoints").glob("*")}


def statuses(results: Results) -> list[tuple[str, str]]:
    return [(trial.status, trial.reason) for trial in results.trials[1:]]


def test_checkpoints_are_kept_only_for_trials_that_can_resume(tmp_path: Path) -> None:
    search(tmp_path, "budget")
    assert checkpoints(tmp_path) == {"trial-0001", "trial-0002"}
    assert [status for status, _ in statuses(load(tmp_path))] == ["paused", "interrupted"]
    assert any("1 of 3 trials remained paused" in note for note in ending_notes(load(tmp_path)))


@pytest.mark.parametrize(
    ("status", "is_kept"), [("budget", False), ("plateau", False), ("interrupted", True)]
)
def test_without_keep_checkpoints_only_interrupted_sweeps_keep_some(
    tmp_path: Path, status: str, is_kept: bool
) -> None:
    sweep = search(tmp_path, status, storage__keep_checkpoints="false")
    results = load(tmp_path)
    assert bool(checkpoints(tmp_path)) == is_kept
    assert (statuses(results) == [REMOVED, REMOVED]) != is_kept
    assert results.status == status
    assert sweep.is_done != is_kept
    if not is_kept:
        assert not any("resume" in note for note in ending_notes(results))
    if status == "budget":
        assert resume_options(results) == [], "trials are left to start"
        info = dataclasses.replace(results.info, num_trials=3)
        assert resume_options(dataclasses.replace(results, info=info)) == ["--trials", "6"]


def test_only_the_demo_and_the_smoke_test_keep_no_checkpoints() -> None:
    spaces = [path.stem for path in SPACES.glob("*.yaml")]
    assert {
        name
        for name in spaces
        if not load_space(SPACES / f"{name}.yaml").config.storage.keep_checkpoints
    } == {
        "demo",
        "smoke",
    }


def test_resumed_sweep_names_trials_without_checkpoints_and_leaves_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(tmp_path, "budget", storage__keep_checkpoints="false")
    lines: list[str] = []
    monkeypatch.setattr("raysweep.controller.resume.check_settings", lambda *_: None)
    resumed = Resumed(tmp_path, lines.append)
    (line,) = lines
    assert "checkpoints" in line and line.endswith(": 1, 2")
    again, _ = assemble(*settings(tmp_path, **ONE_TRIAL_EACH), resumed.ledger)
    again.replay(resumed.events)
    assert again.is_done and again.assign() is None
    again.finish("completed", "")
    more, _ = assemble(
        *settings(tmp_path, **{**ONE_TRIAL_EACH, "budget__trials": "4"}), Ledger(tmp_path)
    )
    more.replay(list(read_events(tmp_path / "ledger.jsonl")))
    number, _ = more.assign() or pytest.fail("no trial")
    assert number == 3


def test_prune_prints_sizes_and_removes_only_what_is_named(tmp_path: Path) -> None:
    search(tmp_path, "budget")
    run = LocalFolder(tmp_path)
    before = disk.measure_size(run)
    assert before.checkpoints == 2000
    assert before.weights == 100 * len(load(tmp_path).points[1:])
    assert before.total == sum(
        path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()
    )
    assert (
        str(RunSize(3 * 2**29, 2**20, 0))
        == "1.50 GiB (weights 1.50 GiB, checkpoints 1.0 MiB, other files 0.0 MiB)"
    )
    assert raysweep_here(tmp_path, "prune", str(tmp_path)).returncode == 0
    assert disk.measure_size(run) == before
    assert raysweep_here(tmp_path, "prune", str(tmp_path), "--checkpoints").returncode == 0
    after = disk.measure_size(run)
    assert (after.checkpoints, after.weights) == (0, before.weights)
    results = load(tmp_path)
    assert (results.status, statuses(results)) == ("budget", [REMOVED, REMOVED])
    assert results.without_checkpoints == (1, 2)
    assert (
        raysweep_here(tmp_path, "prune", str(tmp_path), "--checkpoints", "--weights").returncode
        == 0
    )
    assert disk.measure_size(run).weights == 0
    assert load(tmp_path) == results, "nothing is left to stop"


def test_prune_of_a_running_sweep_is_rejected(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    write(tmp_path / checkpoint_folder(0) / "000000064" / "tensors", 1000)
    with pytest.raises(InputError, match="another"):
        disk.prune(LocalFolder(tmp_path), checkpoints=True, weights=False)
    assert checkpoints(tmp_path) == {"trial-0000"}
    sweep.ledger.close()
