"""In a Ray job, ``raysweep run`` warns if a retry of the same command would start another run."""

from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import InputError
from raysweep.ray_tune import run as runner
from support.command_line import raysweep_here
from support.sweep_files import MINIMAL


def fail(*_: Any, **__: Any) -> None:
    raise InputError("no sweep is run here")


def warnings_of_run(
    folder: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    monkeypatch.setattr(runner, "run", fail)
    (folder / "sweep.yaml").write_text(MINIMAL)
    done = raysweep_here(
        folder, "run", "sweep.yaml", *arguments, "--storage.runs", str(folder / "runs")
    )
    assert "no sweep is run here" in done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("warning: ")]


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        ((), ["--name night", "--resume-or-start"]),
        (("--name", "night"), ["--resume-or-start"]),
        (("--name", "night", "--resume-or-start"), []),
        (("--resume-or-start",), []),  # the name of the file
    ],
)
def test_a_job_that_cannot_be_retried_prints_one_warning(
    arguments: tuple[str, ...], missing: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "RAY_JOB_CONFIG_JSON_ENV_VAR", '{"metadata": {"job_submission_id": "night"}}'
    )
    warnings = warnings_of_run(tmp_path, arguments, monkeypatch)
    assert len(warnings) == bool(missing)
    assert all(flag in warnings[0] for flag in missing)
    assert len(missing) != 1 or "--name" not in warnings[0]


def test_commands_outside_a_job_print_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR", raising=False)
    assert warnings_of_run(tmp_path, (), monkeypatch) == []
