"""The `raysweep run` of a job that its cluster begins again: it has to go on with the same run, wherever it is begun."""

from collections.abc import Iterator

from raysweep.lint.shell import options_of

RUN = ("raysweep", "run")
NEEDED = {
    "--name": "each attempt needs the name of the same run",
    "--resume-or-start": "without it each attempt begins a new run",
    "--storage.runs": "a disk of the cluster is gone with it: name s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
}


def repeat_problems(command: str) -> Iterator[str]:
    """Why a command cannot be begun again."""
    try:
        options = options_of(command, RUN)
    except ValueError as error:
        yield f"is no command of a shell: {str(error).lower()}"
        return
    if options is None:
        yield "must have raysweep run"
        return
    yield from (f"must have {name}: {reason}" for name, reason in NEEDED.items() if name not in options)
    runs = options.get("--storage.runs", "")
    if runs and not runs.startswith(("s3://", "gs://", "$", "/")):
        yield f"--storage.runs must be a URI of a bucket or a folder that every node sees, not {runs!r}"
