"""The commands of `make gpu`, checked on a machine without a GPU."""

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

    monkeypatch.setattr(gpu.measure, "machine", lambda: {"cpu": "unknown"})
    return gpu


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the benchmark's commands by the module or command that each calls."""
    data = tmp_path_factory.mktemp("data")
    (data / "sst2").mkdir()
    for name in ("train", "test"):
        rows = "".join(f"a sentence {number},{number % 2}\n" for number in range(60))
        (data / "sst2" / f"{name}.csv").write_text("text,label\n" + rows)
    listed = done([*BENCHMARK, "--commands", "--to", "somewhere"], RAYSWEEP_DATA_DIR=str(data))
    assert listed.returncode == 0, listed.stderr
    by_name = {}
    for line in listed.stdout.splitlines():
        words = shlex.split(line)
        name = " ".join(words[2:5]) if words[2] == "raysweep" else words[2]
        encoder = f" {words[words.index('--encoder') + 1]}" if "--encoder" in words else ""
        by_name[name + encoder] = words
    return by_name


def test_benchmark_without_a_gpu_is_rejected(tmp_path: Path) -> None:
    rejected = done([*BENCHMARK, "--to", str(tmp_path / "results")])
    assert rejected.returncode == 2
    assert "torch.cuda.is_available()" in rejected.stderr
    assert len(rejected.stderr.splitlines()) == 1
    assert not (tmp_path / "results").exists()


def test_make_without_a_gpu_fails_before_installing(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text("")
    make = shutil.which("make") or pytest.skip("make is not installed")
    empty_path = {"PATH": str(tmp_path)}
    rejected = subprocess.run(
        [make, "gpu"], cwd=tmp_path, env=empty_path, capture_output=True, text=True
    )
    assert rejected.returncode == 2
    assert "nvidia-smi" in rejected.stderr
    assert not (tmp_path / ".venv-gpu").exists()


def test_gpu_tests_are_collected(commands: dict[str, list[str]]) -> None:
    collected = done([*commands["pytest"], "--collect-only", "tests/gpu"])
    assert collected.returncode in (0, 5), "5: no tests collected, since every module is skipped"
    assert "error" not in collected.stdout + collected.stderr


@pytest.mark.parametrize("encoder", ["", " bert-base", " qwen3-0.6b"])
def test_options_of_the_benchmark_are_valid(commands: dict[str, list[str]], encoder: str) -> None:
    rejected = done([*commands[f"benchmarks.trial_throughput{encoder}"], "--examples", "65"])
    assert "--examples" in rejected.stderr and "64" in rejected.stderr, (
        "checked after all options are parsed"
    )


@pytest.mark.parametrize("name", ["raysweep run demo", "raysweep run polarity"])
def test_sweep_commands_are_valid(commands: dict[str, list[str]], name: str) -> None:
    command = commands[name]
    name_at = command.index("--name")
    assert command[name_at + 2] == "--resume-or-start"
    command = [*command[:name_at], *command[name_at + 3 :]]
    command[command.index("run")] = "validate"
    valid = done(command)
    assert valid.returncode == 0, valid.stderr


def test_only_failed_steps_are_repeated(benchmark: Any, tmp_path: Path) -> None:
    count = tmp_path / "count"
    note = f"open({str(count)!r}, 'a').write('x')"
    good = benchmark.Step("good", ("-c", f"{note}; print('a result')"))
    bad = benchmark.Step("bad", ("-c", "print('a problem'); raise SystemExit(3)"))
    folder = tmp_path / "results"
    assert benchmark.run([good, bad], folder) == 1
    assert benchmark.run([good, bad], folder) == 1
    assert count.read_text() == "x"
    command_line, summary, _, *printed = (folder / "good.txt").read_text().splitlines()
    assert command_line.startswith("$ ") and "print" in command_line
    assert summary.startswith("commit ") and summary.endswith("exit code 0")
    assert printed == ["a result"]
    assert "a problem" in (folder / "bad-failed.txt").read_text()
    assert not (folder / "bad.txt").exists()
    assert (folder / "machine.json").is_file()
    assert benchmark.run([good], folder) == 0
