"""The command line, in a process of its own or in this one, and the runs that it leaves in a folder."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1"}

ALONE = ("--resources.cpus_per_trial", "1", "--resources.max_concurrent_trials", "1")
"""For sweeps whose trials are to be the same to the bit wherever they run, and to be proposed in the same order."""

Done = subprocess.CompletedProcess[str]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "raysweep", *arguments]


def raysweep(folder: Path, *arguments: str) -> Done:
    """The command, run in ``folder`` to its end."""
    return subprocess.run(command(*arguments), cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=500)


def raysweep_here(folder: Path, *arguments: str) -> Done:
    """The same in this process, which saves its imports: for commands that start no Ray.

    Errors and results come back, lines of progress do not; what raysweep does not expect is raised. A default such as
    ``raysweep-runs`` may lie in the folder of the first import, so commands that write to it name it.
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
    """The folders of smoke runs, oldest first."""
    return sorted(path for path in (folder / "raysweep-runs").glob("smoke-*") if path.is_dir())


def num_rungs(run: Path) -> int:
    """How many rungs the run's ledger holds by now."""
    ledger = run / "ledger.jsonl"  # made a moment after its folder
    return ledger.read_text().count('"event": "rung"') if ledger.is_file() else 0
