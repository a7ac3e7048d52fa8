"""What `make gpu` would do, as far as a machine without a GPU can tell."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.command_line import ENVIRONMENT
from support.paths import ROOT

BENCHMARK = [sys.executable, "-m", "benchmarks.gpu"]


def done(command: list[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**ENVIRONMENT, "CUDA_VISIBLE_DEVICES": "", **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import gpu

    monkeypatch.setattr(gpu.measure, "machine", lambda: {"cpu": "some"})
    return gpu


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """By the module or command that each calls."""
    data = tmp_path_factory.mktemp("data")
    (data / "sst2").mkdir()
    for name in ("train", "test"):
        rows = "".join(f"a sentence {number},{number % 2}\n" for number in range(60))
        (data / "sst2" / f"{name}.csv").write_text("text,label\n" + rows)
    listed = done([*BENCHMARK, "--commands", "--to", "somewhere"], RAYSWEEP_DATA_DIR=str(data))
    assert listed.returncode == 0, listed.stderr
    found = [shlex.split(line) for line in listed.stdout.splitlines()]
    return {" ".join(each[2:5]) if each[2] == "raysweep" else each[2]: each for each in found}


def test_without_a_gpu_nothing_is_done_and_the_reason_is_given(tmp_path: Path) -> None:
    refused = done([*BENCHMARK, "--to", str(tmp_path / "results")])
    assert refused.returncode == 2
    assert "there is no GPU that torch" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert not (tmp_path / "results").exists()


def test_make_says_so_before_it_installs_anything(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text("")
    make = shutil.which("make") or pytest.skip("make is not installed")
    nothing = {"PATH": str(tmp_path)}
    refused = subprocess.run([make, "gpu"], cwd=tmp_path, env=nothing, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "nvidia-smi" in refused.stderr
    assert not (tmp_path / ".venv-gpu").exists()


def test_the_lane_of_tests_is_one(commands: dict[str, list[str]]) -> None:
    collected = done([*commands["pytest"], "--collect-only", "tests/gpu"])
    assert collected.returncode in (0, 5), "5 says that there is nothing to run, as every module is skipped"
    assert "error" not in collected.stdout + collected.stderr


def test_options_of_the_benchmark_are_its_own(commands: dict[str, list[str]]) -> None:
    refused = done([*commands["benchmarks.trial_throughput"], "--examples", "65"])
    assert "--examples must be a multiple of 64" in refused.stderr, "which is said once all options are read"


@pytest.mark.parametrize("name", ["raysweep run demo", "raysweep run polarity"])
def test_the_sweeps_are_valid(commands: dict[str, list[str]], name: str) -> None:
    command = commands[name]
    place = command.index("--name")
    assert command[place + 2] == "--resume-or-start"
    command = [*command[:place], *command[place + 3 :]]
    command[command.index("run")] = "validate"
    valid = done(command)
    assert valid.returncode == 0, valid.stderr


def test_a_step_is_done_once_and_what_failed_is_done_again(benchmark: Any, tmp_path: Path) -> None:
    count = tmp_path / "count"
    note = f"open({str(count)!r}, 'a').write('x')"
    good = benchmark.Step("good", ("-c", f"{note}; print('a result')"))
    bad = benchmark.Step("bad", ("-c", "print('a problem'); raise SystemExit(3)"))
    folder = tmp_path / "results"
    assert benchmark.run([good, bad], folder) == 1
    assert benchmark.run([good, bad], folder) == 1
    assert count.read_text() == "x"
    head, stated, _, *printed = (folder / "good.txt").read_text().splitlines()
    assert head.startswith("$ ") and "print" in head
    assert stated.startswith("commit ") and stated.endswith("exit code 0")
    assert printed == ["a result"]
    assert "a problem" in (folder / "bad-failed.txt").read_text()
    assert not (folder / "bad.txt").exists()
    assert (folder / "machine.json").is_file()
    assert benchmark.run([good], folder) == 0
