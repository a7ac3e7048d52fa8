"""The command line, in a separate process or in this one, and the runs in a folder."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1"}

ALONE = ("--resources.cpus_per_trial", "1", "--resources.max_concurrent_trials", "1")
"""Options for sweeps whose trials must be identical to the bit on any machine and proposed in the same order."""

Done = subprocess.CompletedProcess[str]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "raysweep", *arguments]


def raysweep(folder: Path, *arguments: str) -> Done:
    """Run the command in ``folder`` and return its result."""
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=500,
    )


def raysweep_here(folder: Path, *arguments: str) -> Done:
    """Run a command that does not start Ray in this process, which saves the imports.

    Errors and results are returned, progress lines are not; unexpected exceptions are raised. A default such as
    ``raysweep-runs`` may be relative to the folder of the first import, so commands that write to it name it.
    """
    from raysweep.cli.commands import main

    out, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
        mock.patch.object(sys, "argv", ["raysweep", *arguments]),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return Done(list(arguments), code, out.getvalue(), errors.getvalue())


def runs(folder: Path) -> list[Path]:
    """Return the folders of smoke runs, oldest first."""
    return sorted(path for path in (folder / "raysweep-runs").glob("smoke-*") if path.is_dir())


def num_rungs(run: Path) -> int:
    """Return the number of rungs in the run's ledger."""
    ledger = run / "ledger.jsonl"  # created shortly after its folder
    return ledger.read_text().count('"event": "rung"') if ledger.is_file() else 0
