"""The sweep of a recording, and the summary before and after its end. Recording itself takes hours."""

from pathlib import Path

import pytest

from benchmarks import made_data
from benchmarks.record import Recording, finished, located
from benchmarks.recorded import TUNED_ALONE
from raysweep.config import load
from raysweep.errors import InputError
from raysweep.replay.recording_files import read
from support.ledgers import NUM_RUNGS, StoredTrial, random_trials, write_ledger


def recording(
    runs: Path, data: str = "mr", num_configurations: int = 96, num_pool: int | None = None
) -> Recording:
    return Recording(
        data, "polarity", runs, num_configurations, 512, NUM_RUNGS, 200, num_pool, 2, seed=3
    )


@pytest.mark.parametrize("num_pool", [None, 1000])
def test_a_recording_is_a_random_sweep_without_early_stopping(
    tmp_path: Path, num_pool: int | None
) -> None:
    command = recording(tmp_path, num_pool=num_pool).command(Path("/data/mr.csv"), None)
    assert command[1:6] == ["-m", "raysweep", "run", "polarity", "--resume-or-start"]
    options = [
        (key.removeprefix("--"), value)
        for key, value in zip(command[6::2], command[7::2], strict=True)
    ]
    loaded = load.load(load.find_space("polarity"), options)
    config = loaded.config
    assert (config.sampler, config.early_stopping.policy, config.seed) == ("random", "none", 3)
    assert (config.budget.trials, config.budget.rungs_of(512), config.first) == (96, NUM_RUNGS, [])
    assert loaded.space.values("examples_per_rung") == [512]
    assert (config.data.max_dev, config.evaluation.num_pool) == (200, num_pool)
    assert config.storage.runs == str(tmp_path)


def test_missing_data_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSWEEP_DATA_DIR", str(tmp_path))
    with pytest.raises(InputError, match=r"transfer/mr.csv: .*RAYSWEEP_DATA_DIR"):
        located(recording(tmp_path))
    (tmp_path / "transfer").mkdir()
    (tmp_path / "transfer" / "mr.csv").write_text("text,label\n")
    assert located(recording(tmp_path)) == (tmp_path / "transfer" / "mr.csv", None)


def test_generated_data_is_written_next_to_the_run(tmp_path: Path) -> None:
    for kind in made_data.KINDS:
        train, test = located(recording(tmp_path, kind))
        assert test is not None
        assert [len(path.read_text().splitlines()) for path in (train, test)] == [6001, 401]


def test_the_file_is_written_when_all_configurations_have_ended(tmp_path: Path) -> None:
    completed = [trial for trial in random_trials(80) if trial.status == "completed"][:6]
    failed = StoredTrial(completed[0].config, "failed", "the loss was not finite at step 12", [])
    unfinished = completed[5]._replace(status="running", scores=completed[5].scores[:2])
    made, table = recording(tmp_path, num_configurations=7), tmp_path / "recordings" / "mr.parquet"
    (tmp_path / made.name).mkdir()
    write_ledger(tmp_path / made.name, [*completed[:5], failed, unfinished])
    assert "5 of 7 configurations" in finished(made, table)
    assert not table.exists()
    again = recording(tmp_path / "again", num_configurations=7)
    (again.runs / again.name).mkdir(parents=True)
    write_ledger(again.runs / again.name, [*completed, failed])
    summary, tuned_alone_summary = finished(again, table).splitlines()
    assert summary.startswith(f"{table}: 6 configurations, 1 failed; ")
    assert tuned_alone_summary.startswith(f"{table}{TUNED_ALONE}: ")
    assert len(read(table).trials) == 6
