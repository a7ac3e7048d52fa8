"""Each command's misuse ends before any work, with one message that says what is allowed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raysweep import __version__
from raysweep.cli import commands
from raysweep.errors import InputError
from support.ledgers import random_trials, write_ledger

EVALUATE = ["evaluate", "--model", "demo", "--train", "a.csv", "--test", "b.csv"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "SPACE is missing: a YAML file or the name of a shipped space, or --resume RUN"),
        (["run", "nowhere"], "nowhere: no such file, and no shipped space of this name; shipped: "),
        (["run", "demo", "--budget.trials"], "--budget.trials needs a value; "),
        (["run", "demo", "--data.train", "--model", "demo"], "--data.train needs a value, and --model follows; "),
        (["show", "nowhere"], "nowhere: no such folder"),
        (["run", "--resume", "RUN", "--warm-start", "OTHER"], "--warm-start is for new runs; "),
        (["validate", "demo", "loose"], "unexpected argument 'loose'; an override is --KEY VALUE"),
        ([*EVALUATE[:-1], ""], "--test is empty"),
        ([*EVALUATE, "--k", "none"], "--k: 'none' is no whole number above 0"),
        ([*EVALUATE, "--rank-weights", "equal"], "--rank-weights is 'equal'; allowed: uniform, linear"),
        ([*EVALUATE, "--precision", "fp16"], "--precision is 'fp16'; allowed: fp32, bf16"),
        ([*EVALUATE, "--to", "FILE/to"], "FILE/to: cannot write the tables; "),
        (["tables", "RUN", "--to", "s3://bucket/to"], "--to: must be a path of this machine, not a URI"),
        (["tables", "FOLDER", "--to", "tables"], "FOLDER: not a run folder"),
        (
            ["track", "--to", "tensorboard", "RUN"],
            "RUN is missing: --to takes every value up to the next option; put RUN before it",
        ),
        (["tables", "RUN", "--to", "tables", "--split", "train"], "--split is 'train'; allowed: dev, test"),
        ([*EVALUATE, "--format", "yaml"], "--format is 'yaml'; allowed: table, json"),
        (["report", "FOLDER"], "FOLDER: not a run folder"),
        (["table", "FOLDER", "table.csv"], "FOLDER: not a run folder"),
        (["table", "RUN", "FOLDER"], "FOLDER: exists already"),
        (["artifacts", "FOLDER", "--prune"], "--prune needs --unused-for DAYS; 0 removes everything"),
        (["artifacts", "FILE"], "FILE: is a file, not a folder"),
        (["artifacts", "nowhere"], "nowhere: no such folder"),
        (["replay", "table.json"], "table.json: no such file"),
        (["replay", "t.csv", "--policy", "growth,best"], "--policy is 'best'; allowed: growth, pareto"),
        (["replay", "t.csv", "--proposals", "all"], "--proposals is 'all'; allowed: front, area"),
        (["replay", "t.csv", "--format", "yaml"], "--format is 'yaml'; allowed: table, json"),
        (["replay", "t.csv", "--where", "model"], "--where is 'model'; it is COLUMN=VALUE"),
    ],
)
def test_misuse_is_an_input_error(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "FILE").touch()
    done = CliRunner().invoke(commands.app, arguments)
    assert isinstance(done.exception, InputError), done.output
    assert message in str(done.exception)


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "RUN", "--to", ""],
        ["tables", "RUN", "--to", ""],
        ["compare", "RUN", "RUN", "--to", ""],
        [*EVALUATE, "--to", ""],
        ["export", "RUN", ""],
        ["table", "RUN", ""],
    ],
)
def test_a_place_that_an_unset_variable_leaves_empty_is_not_the_current_folder(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(commands.app, arguments)
    assert done.exit_code == 2
    assert "it is empty" in done.output
    assert list(tmp_path.iterdir()) == []


def test_symbols_that_the_output_lacks_do_not_end_a_command(tmp_path: Path) -> None:
    write_ledger(tmp_path, random_trials(6))
    command = [sys.executable, "-m", "raysweep", "show", str(tmp_path)]

    def shown(encoding: str) -> str:
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        return done.stdout.decode(encoding)

    assert "\u2605" in shown("utf-8")
    assert "?" in shown("ascii")


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "prepare",
        "evaluate",
        "report",
        "validate",
        "schema",
        "export",
        "table",
        "tables",
        "replay",
        "transfer",
    ],
)
def test_every_command_has_help(command: str) -> None:
    done = CliRunner().invoke(commands.app, [command, "--help"])
    assert done.exit_code == 0
    assert f"raysweep {command} " in done.output.replace("root", "raysweep")


def test_bad_input_ends_with_one_message_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["raysweep", "run"])
    with pytest.raises(SystemExit) as ended:
        commands.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: SPACE is missing")


def test_the_version_is_printed() -> None:
    assert CliRunner().invoke(commands.app, ["--version"]).output == f"raysweep {__version__}\n"


def test_a_shipped_space_is_valid_and_described() -> None:
    done = CliRunner().invoke(commands.app, ["validate", "demo", "--trials", "3"])
    assert done.exit_code == 0
    first, second, *_ = done.output.splitlines()
    assert (first, second.partition(" trials")[0]) == ("demo: valid", "sweep demo: 3")


def test_a_grid_of_fewer_combinations_than_trials_says_so() -> None:
    done = CliRunner().invoke(commands.app, ["validate", "published_grid", "--trials", "50"])
    assert "sweep published-grid: 17 trials (grid, every combination; budget.trials is 50)" in done.output


def test_artifacts_are_listed_and_removed(tmp_path: Path) -> None:
    from raysweep.data.artifacts import Store

    def output(*options: str) -> str:
        done = CliRunner().invoke(commands.app, ["artifacts", str(tmp_path), *options], env={"COLUMNS": "100"})
        assert done.exit_code == 0
        return done.output

    store = Store(str(tmp_path))
    artifact = store.artifact("encoded", {})
    store.finish(artifact, {}, {})
    assert "artifacts: 0, 0.0 MiB" in output("--unused-for", "1", "--prune")
    assert artifact.name in output()
    assert "artifacts: 1, 0.0 MiB, removed" in output("--unused-for", "0", "--prune")
    assert list(tmp_path.iterdir()) == []
