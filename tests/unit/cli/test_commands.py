"""The command line as a whole: help, misuse, invalid input and storage errors; and the commands on sweeps' files."""

import errno
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from raysweep import __version__
from raysweep.cli import commands, panels
from raysweep.errors import InputError
from support.command_line import command, raysweep_here
from support.ledgers import random_trials, write_ledger
from support.paths import SPACES

GROUP: Any = typer.main.get_command(commands.app)
EVALUATE = ["evaluate", "--model", "demo", "--train", "a.csv", "--test", "b.csv"]


RUNNING = ("run", "prepare", "evaluate", "transfer", "measure", "measure-run", "replay")


def test_commands_that_run_work_have_options_for_their_output() -> None:
    flags = {"--quiet", "-q", "--verbose", "-v", "--log-level"}
    have = {
        name
        for name, command in GROUP.commands.items()
        if flags <= {flag for p in command.params for flag in p.opts}
    }
    assert have == set(RUNNING)


@pytest.mark.parametrize(
    "arguments", [["run", "demo"], ["run", "--resume", "RUN"], ["replay", "t.csv"]]
)
def test_output_options_are_no_overrides(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(commands.app, [*arguments, "-q", "-v", "--log-level", "info"])
    assert isinstance(done.exception, InputError), done.output
    assert "--quiet and --verbose" in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], ["SPACE", "shipped space", "--resume RUN"]),
        (["run", "nowhere"], ["nowhere", "no such file", "smoke"]),
        (["run", "demo", "--budget.trials"], ["--budget.trials", "--KEY VALUE"]),
        (
            ["run", "demo", "--data.train", "--model", "demo"],
            ["--data.train", "--model", "--KEY=VALUE"],
        ),
        (["show", "nowhere"], ["nowhere: no such folder"]),
        (["run", "--resume", "RUN", "--warm-start", "OTHER"], ["--warm-start"]),
        (["run", "demo", "--take-over"], ["--take-over", "--resume RUN", "--resume-or-start"]),
        (["run", "--resume-or-start"], ["--resume-or-start", "SPACE"]),
        (["validate", "demo", "loose"], ["'loose'", "--KEY VALUE"]),
        ([*EVALUATE[:-1], ""], ["--test is empty"]),
        ([*EVALUATE, "--k", "none"], ["--k is 'none'; allowed: "]),
        (
            [*EVALUATE, "--rank-weights", "equal"],
            ["--rank-weights is 'equal'; allowed: uniform, linear"],
        ),
        ([*EVALUATE, "--precision", "fp16"], ["--precision is 'fp16'; allowed: fp32, bf16"]),
        ([*EVALUATE, "--to", "FILE/to"], ["FILE/to"]),
        (["paper", "RUN", "--to", "s3://bucket/to"], ["--to", "local path"]),
        (["paper", "FOLDER", "--to", "paper"], ["FOLDER: not a run folder"]),
        (["track", "--to", "tensorboard", "RUN"], ["RUN is missing", "--to"]),
        (
            ["paper", "RUN", "--to", "paper", "--split", "train"],
            ["--split is 'train'; allowed: dev, test"],
        ),
        ([*EVALUATE, "--format", "yaml"], ["--format is 'yaml'; allowed: table, json"]),
        (["report", "FOLDER"], ["FOLDER: not a run folder"]),
        (["record", "FOLDER", "recording.csv"], ["FOLDER: not a run folder"]),
        (["record", "RUN", "FOLDER"], ["FOLDER: ", "exists"]),
        (["artifacts", "FOLDER", "--prune"], ["--prune", "--unused-for DAYS"]),
        (["artifacts", "FILE"], ["FILE: is a file"]),
        (["artifacts", "FOLDER", "--format", "yaml"], ["--format is 'yaml'; allowed: table, json"]),
        (["artifacts", "nowhere"], ["nowhere: no such folder"]),
        (["replay", "recording.json"], ["recording.json: no such file"]),
        (
            ["replay", "t.csv", "--policy", "growth,best"],
            ["--policy is 'best'; allowed: growth, pareto"],
        ),
        (["replay", "t.csv", "--proposals", "all"], ["--proposals is 'all'; allowed: front, area"]),
        (["replay", "t.csv", "--format", "yaml"], ["--format is 'yaml'; allowed: table, json"]),
        (["replay", "t.csv", "--where", "model"], ["--where is 'model'; allowed: COLUMN=VALUE"]),
    ],
)
def test_invalid_arguments_raise_an_input_error(
    arguments: list[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "FILE").touch()
    done = CliRunner().invoke(commands.app, arguments)
    assert isinstance(done.exception, InputError), done.output
    assert [word for word in words if word not in str(done.exception)] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["control", "RUN", "--workers", "abc"], ["--workers"]),
        (["control", "RUN", "--stop-trial", "-1"], ["--stop-trial", "0"]),
        (["watch", "RUN", "--every", "0"], ["--every", "0.2"]),
        (["transfer", "M", "--tasks", "T", "--seed", "4294967296"], ["--seed", "4294967295"]),
        (["compare"], ["RUN"]),
        (["evaluate", "--model", "demo"], ["--train"]),
        (["watch", "A", "B"], ["B"]),
        (["show", "RUN", "--tops", "3"], ["--tops", "--top"]),
        (["show", "RUN", "--top"], ["--top"]),
        (["frob"], ["frob"]),
    ],
)
def test_misuse_is_one_line_with_exit_code_2(
    tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    done = raysweep_here(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert [word for word in words if word not in line] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "RUN", "--to", ""],
        ["paper", "RUN", "--to", ""],
        ["compare", "RUN", "RUN", "--to", ""],
        [*EVALUATE, "--to", ""],
        ["export", "RUN", ""],
        ["record", "RUN", ""],
    ],
)
def test_empty_paths_are_rejected(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unset shell variable must not mean the current folder."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(commands.app, arguments)
    assert done.exit_code == 2
    assert "empty" in done.output
    assert list(tmp_path.iterdir()) == []


def test_symbols_outside_the_output_encoding_are_replaced(tmp_path: Path) -> None:
    write_ledger(tmp_path, random_trials(6))
    show = [sys.executable, "-m", "raysweep", "show", str(tmp_path)]

    def output_in(encoding: str) -> str:
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(show, env=environment, capture_output=True, check=True)
        return done.stdout.decode(encoding)

    assert "\u2605" in output_in("utf-8")
    assert "?" in output_in("ascii")


@pytest.mark.parametrize(
    ("arguments", "code"), [([], 2), (["--help"], 0), (["watch", "--help"], 0)]
)
def test_help_is_printed(tmp_path: Path, arguments: list[str], code: int) -> None:
    done = raysweep_here(tmp_path, *arguments)
    assert (done.returncode, done.stderr) == (code, "")
    assert "Usage: " in done.stdout and "error" not in done.stdout


@pytest.mark.parametrize("name", GROUP.commands)
def test_every_command_has_help(name: str) -> None:
    done = CliRunner().invoke(commands.app, [name, "--help"])
    assert done.exit_code == 0
    assert f"raysweep {name} " in done.output.replace("root", "raysweep")


def test_help_groups_every_command() -> None:
    """The commands are below the headings in this order; none is in the group of typer."""
    headings = [panels.STEER, panels.LOOK, panels.DATA, panels.PAPERS]
    done = CliRunner().invoke(
        commands.app, ["--help"], env={"COLUMNS": "120", "TERMINAL_WIDTH": "120"}
    )
    panel = ""
    names: dict[str, list[str]] = {}
    for line in done.output.splitlines():
        words = re.findall(r"[\w-]+(?: [\w-]+)*", line)
        if line.startswith(("\u256d", "+")):
            panel = words[0].strip("- ")
        elif words and words[0].split()[0] in GROUP.commands and re.match(r".? [a-z]", line):
            names.setdefault(panel, []).append(words[0].split()[0])
    assert list(names) == headings
    assert sorted(name for listed in names.values() for name in listed) == sorted(GROUP.commands)
    assert names[panels.STEER][0] == "run" and "control" in names[panels.STEER]
    assert {"show", "compare", "export"} <= set(names[panels.LOOK])


INSTALLED = "import sys; from raysweep.cli.commands import main; sys.argv = ['raysweep']; main()"
"""Code that runs like the installed command, whose name is part of the variables that shells set."""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str, tmp_path: Path) -> None:
    words = {"show": "raysweep sh", "--prefer": "raysweep show --pre"}
    for completion, line in words.items():
        environment = {
            **os.environ,
            "_RAYSWEEP_COMPLETE": f"complete_{shell}",
            "_TYPER_COMPLETE_ARGS": line,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split()) - 1),
        }
        done = subprocess.run(
            [sys.executable, "-c", INSTALLED],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert completion in done.stdout


def test_commands_that_print_a_table_print_json() -> None:
    """Each command whose code prints a table has --format."""
    prints = re.compile(r"print_table\(|report_run\(|watch_once\(")
    printing = {
        name
        for name, command in GROUP.commands.items()
        if prints.search(inspect.getsource(command.callback))
    }
    with_format = {
        name
        for name, command in GROUP.commands.items()
        if any("--format" in p.opts for p in command.params)
    }
    assert printing == with_format
    assert {
        "run",
        "report",
        "watch",
        "show",
        "compare",
        "evaluate",
        "transfer",
        "measure",
        "artifacts",
    } <= printing


def test_invalid_input_ends_with_one_line_and_exit_code_2(tmp_path: Path) -> None:
    done = raysweep_here(tmp_path, "run")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: SPACE is missing")


def fail_with(code: int) -> Callable[..., None]:
    def fail(**_: object) -> None:
        raise OSError(code, os.strerror(code), "/runs/one/checkpoints")

    return fail


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOSPC])
def test_storage_errors_are_one_line_with_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(commands, "app", fail_with(code))
    done = raysweep_here(tmp_path, "report", "RUN")
    expected = f"error: /runs/one/checkpoints: {os.strerror(code)}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


def test_unexpected_missing_files_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "app", fail_with(errno.ENOENT))
    with pytest.raises(FileNotFoundError):
        raysweep_here(tmp_path, "report", "RUN")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("schema"),
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
            check=False,
        )
    assert (done.returncode, done.stderr) == (2, "error: No space left on device\n")


@pytest.mark.parametrize("value", ["0", "x"])
def test_wrong_numbers_of_trials_are_reported_like_those_of_a_file(
    tmp_path: Path, value: str
) -> None:
    done = raysweep_here(tmp_path, "run", "smoke", "--trials", value)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: --trials is {value}; allowed: ")


def test_the_version_is_printed() -> None:
    assert CliRunner().invoke(commands.app, ["--version"]).output == f"raysweep {__version__}\n"


def test_schema_prints_the_committed_schema() -> None:
    done = CliRunner().invoke(commands.app, ["schema"])
    assert done.exit_code == 0
    assert done.output == (SPACES / "sweep.schema.json").read_text(encoding="utf-8")


def test_validate_describes_a_shipped_space() -> None:
    done = CliRunner().invoke(commands.app, ["validate", "demo", "--trials", "3"])
    assert done.exit_code == 0
    first, second, *_ = done.output.splitlines()
    assert (first, second.partition(" trials")[0]) == ("demo: valid", "sweep demo: 3")


def test_validate_counts_the_combinations_of_a_grid() -> None:
    done = CliRunner().invoke(commands.app, ["validate", "published_grid", "--trials", "50"])
    assert (
        "sweep published-grid: 17 trials (grid, every combination; budget.trials is 50)"
        in done.output
    )


def test_artifacts_are_listed_and_removed(tmp_path: Path) -> None:
    from raysweep.data.artifacts import Store

    def output(*options: str) -> str:
        done = CliRunner().invoke(
            commands.app, ["artifacts", str(tmp_path), *options], env={"COLUMNS": "100"}
        )
        assert done.exit_code == 0
        return done.output

    assert "artifacts: 0, 0.0 MiB" in output()
    assert json.loads(output("--format", "json")) == []
    store = Store(str(tmp_path))
    artifact = store.artifact("encoded", {})
    store.finish(artifact, {}, {})
    (stored,) = json.loads(output("--format", "json"))
    num_bytes = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert (stored["artifact"], stored["is_complete"], stored["bytes"]) == (
        artifact.name,
        True,
        num_bytes,
    )
    assert "artifacts: 0, 0.0 MiB" in output("--unused-for", "1", "--prune")
    assert artifact.name in output()
    assert "artifacts: 1, 0.0 MiB, removed" in output("--unused-for", "0", "--prune")
    assert list(tmp_path.iterdir()) == []
