"""The command-line entry point."""

import io
import os
import re
import sys
from typing import Annotated, Any

import typer

from raysweep.cli import encoder_commands, recording_commands, run_commands, sweep_commands
from raysweep.errors import InputError, TemporaryError
from raysweep.version import __version__

CODE_VARIABLE = "RAYSWEEP_INPUT_ERROR_EXIT_CODE"
INPUT_ERROR_CODE = 2
LAST_CODE = 255

USAGE_ERROR: type[Any] = typer.BadParameter.mro()[1]
"""Base class of usage errors; typer does not export it."""

app = typer.Typer(
    name="raysweep",
    help="Sweep hyperparameters for fine-tuning sentence embeddings on Ray and find the Pareto front of "
    "polarity (retrieved sentences share the query's class) against similarity (they are close to the query "
    "under the frozen reference encoder).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"raysweep {__version__}")
        raise typer.Exit


for group in (sweep_commands, run_commands, encoder_commands, recording_commands):
    app.add_typer(group.app)


def main() -> None:
    """Run the command line; print expected errors in one line and exit with an error code."""
    text = os.environ.get(CODE_VARIABLE, "")  # for schedulers that retry on other exit codes
    is_code = re.fullmatch(r"\d{1,3}", text) is not None and int(text) <= LAST_CODE
    code = int(text) if is_code else INPUT_ERROR_CODE
    for stream in (sys.stdout, sys.stderr):
        # do not fail on characters that the output encoding cannot represent
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        sys.exit(app(standalone_mode=False))
    except InputError as error:
        message = str(error)
        if isinstance(error, TemporaryError):
            code = os.EX_TEMPFAIL
    except USAGE_ERROR as error:
        message = _usage_message(error)
    except OSError as error:
        from raysweep.storage.failure import file_problem

        problem = file_problem(error)
        if problem is None:
            raise
        message = problem
    if message:  # empty if help was printed because there were no arguments
        typer.echo(f"error: {message}", err=True)
    sys.exit(code)


def _usage_message(error: Any) -> str:
    from pydantic import ValidationError

    from raysweep.config.strict import allowed_values

    cause = error.__cause__
    # wrong type or out of bounds
    if isinstance(cause, ValidationError) and error.param is not None:
        first = cause.errors()[0]
        allowed, _, _ = allowed_values(first["msg"]).partition(", unable to parse")
        return f"{error.param.opts[0]} is {first['input']}; allowed: {allowed}"
    return " ".join(error.format_message().split())


if __name__ == "__main__":
    main()
