"""The linter and the type checker, as tests."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command", [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]], ids=["lint", "format", "types"]
)
def test_passes(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_module_is_longer_than_300_lines() -> None:
    long = {
        path.name: count
        for path in ROOT.glob("raysweep/**/*.py")
        if (count := len(path.read_text().splitlines())) > 300
    }
    assert not long
