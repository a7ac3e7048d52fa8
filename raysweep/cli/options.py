"""Parsing and validation of command-line options."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
import typer.core

from raysweep.errors import InputError
from raysweep.storage.location import SCHEMES

if TYPE_CHECKING:
    from raysweep.config.sweep import Prompts
    from raysweep.storage.folder import Folder
    from raysweep.terminal import Verbosity

FORMATS = ("table", "json")

Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Print only warnings, errors and results, without progress."
    ),
]

Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also print the output of Ray and other libraries.")
]

LogLevel = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        help="Log level for Python and Ray: debug, info, warning or error; see --verbose.",
    ),
]

FrontFormat = Annotated[
    str,
    typer.Option(
        "--format", help="Format of the front: table, or json with scores in [0, 1], as in show."
    ),
]

Prefer = Annotated[
    str | None,
    typer.Option(
        help="single: choose only among points with one encoder; short for --where 'encoders = 1'."
    ),
]

MAX_DIGITS = 18  # maximum digits of each number in a list

Choice = TypeVar("Choice", bound=str)


class SeveralValues(typer.core.TyperCommand):
    """A command whose repeatable options take several values, such as files from a shell glob."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse ``--tasks A B`` as ``--tasks A --tasks B``."""
        repeatable: set[str] = set()
        for param in self.params:
            if getattr(param, "multiple", False):
                repeatable.update(param.opts)
        expanded: list[str] = []
        current_flag = ""  # the repeatable option that takes the next values
        for argument in args:
            if argument.startswith("-"):
                current_flag = argument if argument in repeatable else ""
            elif current_flag and expanded[-1] != current_flag:
                expanded.append(current_flag)
            expanded.append(argument)
        greedy = sorted(flag for flag in repeatable if expanded.count(flag) > args.count(flag))
        try:
            return super().parse_args(ctx, expanded)
        except typer.BadParameter as error:
            missing = error.param
            if greedy and isinstance(missing, typer.core.TyperArgument):
                name = missing.metavar or str(missing.name)
                name = name.rstrip(".")
                raise InputError(
                    f"{name} is missing: {' and '.join(greedy)} takes every value up to the next option; put {name} "
                    "before it"
                ) from None
            raise


def with_trials(arguments: list[str], trials: int | None) -> list[str]:
    """Add ``--trials`` to the overrides; raise InputError if they already set ``--budget.trials``."""
    if trials is None:
        return arguments
    if any(argument.partition("=")[0] == "--budget.trials" for argument in arguments):
        raise InputError("--trials is short for --budget.trials; use only one of them")
    return [*arguments, "--budget.trials", str(trials)]


def check_not_empty(flag: str, text: str) -> None:
    """Raise InputError if an option's value is empty."""
    if not text:
        raise InputError(f"{flag} is empty")


def check_model(flag: str, name: str) -> None:
    """Raise InputError if an encoder's name is empty or an invalid URI."""
    from raysweep.config.sweep import absolute_model

    try:
        absolute_model(name)
    except ValueError as error:
        raise InputError(f"{flag} {error}") from None


def parse_positive_integers(flag: str, text: str) -> list[int]:
    return [parse_positive_integer(flag, part) for part in text.split(",")]


def parse_positive_integer(flag: str, text: str) -> int:
    stripped = text.strip()
    is_integer = stripped.isascii() and stripped.isdigit() and len(stripped) <= MAX_DIGITS
    if not is_integer or int(stripped) < 1:
        raise InputError(f"{flag} is {text!r}; allowed: a whole number above 0")
    return int(stripped)


def check_all_of(flag: str, text: str, allowed: Sequence[Choice]) -> list[Choice]:
    """Split a value at commas; raise InputError if a part is not allowed."""
    return [check_one_of(flag, part, allowed) for part in text.split(",")]


def check_one_of(flag: str, text: str, allowed: Sequence[Choice]) -> Choice:
    """Return the value; raise InputError if it is not allowed."""
    for choice in allowed:
        if text == choice:
            return choice
    raise InputError(f"{flag} is {text!r}; allowed: {', '.join(allowed)}")


def parse_names(flag: str, text: str, form: str = "COLUMN,...") -> tuple[str, ...]:
    """Split column names at commas; raise InputError unless they are distinct and their number matches ``form``."""
    names = tuple(text.split(","))
    has_form = form.endswith("...") or len(names) == len(form.split(","))
    if "" in names or len(set(names)) != len(names) or not has_form:
        raise InputError(f"{flag} is {text!r}; allowed: {form} (all different)")
    return names


def check_verbosity(quiet: bool, verbose: bool, log_level: str | None) -> "Verbosity":
    from raysweep.terminal import LOG_LEVELS, Verbosity

    if quiet and verbose:
        raise InputError("--quiet and --verbose are both given; use only one of them")
    if log_level is not None:
        check_one_of("--log-level", log_level, LOG_LEVELS)
    return Verbosity(quiet, verbose, log_level)


def check_prompts(
    both: str | None, query: str | None, document: str | None
) -> "str | Prompts | None":
    """Return the prompts; raise InputError if ``--prompt`` is combined with the other two options."""
    from raysweep.config.sweep import Prompts

    if query is None and document is None:
        return both
    if both is not None:
        raise InputError("--prompt cannot be combined with --prompt-query or --prompt-document")
    return Prompts(query=query, document=document)


def parse_where(arguments: Sequence[str]) -> dict[str, str]:
    """Parse ``--where COLUMN=VALUE`` options into a mapping of columns to values."""
    values: dict[str, str] = {}
    for text in arguments:
        column, equals, value = text.partition("=")
        if not (column and equals):
            raise InputError(f"--where is {text!r}; allowed: COLUMN=VALUE")
        values[column] = value
    return values


def with_preference(where: Sequence[str] | None, prefer: str | None) -> list[str]:
    """Return the conditions of ``--where`` and ``--prefer``."""
    conditions = list(where or ())
    if prefer is not None:
        check_one_of("--prefer", prefer, ("single",))
        conditions.append("encoders = 1")
    return conditions


def parse_path(text: str) -> Path:
    """Parse a path; reject an empty string, which Path would interpret as ``.``."""
    if not text:
        raise typer.BadParameter("is empty; allowed: a path")
    return Path(text)


def check_local(name: str, path: Path) -> Path:
    """Return the path; raise InputError if it is a URI."""
    # Path collapses the double slash of a URI
    if str(path).partition(":/")[0] in SCHEMES and ":/" in str(path):
        raise InputError(f"{name}: is a URI; allowed: a local path")
    return path


def check_new(name: str, path: Path) -> Path:
    """Return the path; raise InputError if it is a URI or already exists."""
    if check_local(name, path).exists():
        raise InputError(f"{path}: already exists")
    return path


def run_folder(name: str, place: str) -> "Folder":
    """Open a folder or URI; ``name`` is the argument's name in error messages."""
    from raysweep.storage.folder import BucketFolder, open_folder

    try:
        folder = open_folder(place, on_wait=lambda text: typer.echo(text, err=True))
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None
    if isinstance(folder, BucketFolder):
        folder.bucket.check()
    return folder
