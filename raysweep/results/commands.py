"""Commands that messages suggest to users."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from raysweep.results.types import RESUMABLE, Results
from raysweep.storage import location


def format_command(name: str, run: str, *arguments: str) -> str:
    """Return the command ``raysweep NAME RUN ARGUMENTS``, quoted for a shell."""
    return shlex.join(["raysweep", name, shorten(run), *arguments])


def format_resume(run: str, *options: str) -> str:
    """Return the command that resumes a run with these options."""
    return shlex.join(["raysweep", "run", "--resume", shorten(run), *options])


def resume_options(results: Results) -> list[str]:
    """Return the options needed to resume a sweep. Limits that it reached are doubled."""
    if results.status == "running":  # killed before it reached a limit
        return []
    if results.status == "plateau":
        return ["--early_stopping.plateau", "null"]
    options = options_beyond(results.limit)
    num_started = sum(trial.replicate_of is None for trial in results.trials)
    num_trials = results.info.num_trials
    has_unfinished = any(trial.status in RESUMABLE for trial in results.trials)
    if num_started >= num_trials and not has_unfinished:
        options += ["--trials", str(2 * num_trials)]
    return options


def options_beyond(limit: Mapping[str, float]) -> list[str]:
    """Return the options that double the limits, which are keyed by configuration key."""
    options = []
    for key, value in limit.items():
        options += [f"--{key}", f"{2 * value:g}"]
    return options


def shorten(run: str) -> str:
    """Make a path relative if it is inside the working directory.

    This keeps the names of parent folders out of reports.
    """
    if location.is_uri(run):
        return run
    path = Path(run)
    folder = Path.cwd()
    if path == folder or not path.is_relative_to(folder):
        return run
    return str(path.relative_to(folder))
