"""Commands that messages and reports suggest are complete: a shell runs them as they are."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from raysweep.results.commands import format_command, format_resume, options_beyond, resume_options
from raysweep.results.types import Results
from support.ledgers import INFO
from support.paths import ROOT

SUGGESTION = re.compile(
    r"raysweep [a-z]+.*?\b[A-Z]{3,}\b|--[a-z_.-]+ (?:KEY|TOTAL|N|NAME|FOLDER|RUN)\b"
)
SYNTAX = (
    "--resume RUN or --resume-or-start",
    "combined with --resume RUN",
    "or --resume RUN",
    "requires --",
)
"""Parts of errors that explain the syntax of options instead of suggesting a command."""


def texts_to_print(tree: ast.AST) -> Iterator[str]:
    """Yield a module's strings, with ``{}`` for values, except docstrings and the help of options."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        if isinstance(node, ast.Call):
            skipped |= {
                id(part)
                for keyword in node.keywords
                if keyword.arg == "help"
                for part in ast.walk(keyword)
            }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield "".join(map(str, parts))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_suggested_command_has_a_placeholder() -> None:
    found = []
    for path in sorted((ROOT / "raysweep").rglob("*.py")):
        for text in texts_to_print(ast.parse(path.read_text(encoding="utf-8"))):
            if SUGGESTION.search(text) and not any(part in text for part in SYNTAX):
                found.append((path.name, text))
    assert not found


def test_locations_are_quoted(tmp_path: Path) -> None:
    run = str(tmp_path / "my run's")
    assert shlex.split(format_resume(run, "--trials", "4")) == [
        "raysweep",
        "run",
        "--resume",
        run,
        "--trials",
        "4",
    ]
    assert shlex.split(format_command("show", run)) == ["raysweep", "show", run]


def test_locations_in_the_working_directory_are_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert format_command("show", str(tmp_path / "runs" / "one")) == "raysweep show runs/one"
    assert format_command("show", str(tmp_path.parent)) == f"raysweep show {tmp_path.parent}"
    assert format_command("show", "s3://bucket/runs/one") == "raysweep show s3://bucket/runs/one"


@pytest.mark.parametrize(
    ("status", "limit", "options"),
    [
        ("budget", {"budget.minutes": 1.5}, ["--budget.minutes", "3"]),
        ("budget", {"budget.gpu_hours": 0.25}, ["--budget.gpu_hours", "0.5"]),
        ("interrupted", {}, []),
        ("plateau", {}, ["--early_stopping.plateau", "null"]),
    ],
)
def test_resumed_sweeps_get_more_than_the_limit_that_ended_them(
    status: str, limit: dict[str, float], options: list[str]
) -> None:
    results = Results("run", INFO, (), (), (), status, "", 1.0, limit=limit)
    assert resume_options(results) == options
    if status != "plateau":
        assert options_beyond(limit) == options
