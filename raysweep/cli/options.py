"""Parsing and validation of option values. Every misuse is an InputError that names the option."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer
import typer.core

from raysweep.errors import InputError
from raysweep.storage.location import SCHEMES

if TYPE_CHECKING:
    from raysweep.storage.folder import Folder

MOST_DIGITS = 18  # per number in a list

Choice = TypeVar("Choice", bound=str)


class SeveralValues(typer.core.TyperCommand):
    """A command whose repeatable options take all values up to the next option, such as the files of a shell glob."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse ``--tasks A B`` as ``--tasks A --tasks B``."""
        repeatable = {flag for each in self.params if getattr(each, "multiple", False) for flag in each.opts}
        spelled: list[str] = []
        flag = ""  # the current repeatable option
        for argument in args:
            if argument.startswith("-"):
                flag = argument if argument in repeatable else ""
            elif flag and spelled[-1] != flag:
                spelled.append(flag)
            spelled.append(argument)
        taken = {flag for flag in repeatable if spelled.count(flag) > args.count(flag)}
        try:
            return super().parse_args(ctx, spelled)
        except typer.BadParameter as error:
            missing = error.param
            if taken and isinstance(missing, typer.core.TyperArgument):
                flags = " and ".join(sorted(taken))
                name = (missing.metavar or str(missing.name)).rstrip(".")
                raise InputError(
                    f"{name} is missing: {flags} takes every value up to the next option; put {name} before it"
                ) from None
            raise


def with_trials(arguments: list[str], trials: int | None) -> list[str]:
    """Return the overrides, with ``--trials`` in its long form; raise InputError if both forms are given."""
    if trials is None:
        return arguments
    if any(argument.partition("=")[0] == "--budget.trials" for argument in arguments):
        raise InputError("--trials and --budget.trials are the same; allowed: one of them")
    return [*arguments, "--budget.trials", str(trials)]


def not_empty(flag: str, text: str) -> str:
    """Return the value of an option; raise InputError if it is empty."""
    if not text:
        raise InputError(f"{flag} is empty")
    return text


def naturals(flag: str, text: str) -> list[int]:
    """Return positive integers, separated by commas."""
    return [natural(flag, part) for part in text.split(",")]


def natural(flag: str, text: str) -> int:
    """Return a positive integer."""
    stripped = text.strip()
    is_whole = stripped.isascii() and stripped.isdigit() and len(stripped) <= MOST_DIGITS
    if not is_whole or int(stripped) < 1:
        raise InputError(f"{flag}: {text!r} is no whole number above 0")
    return int(stripped)


def several_of(flag: str, text: str, allowed: Sequence[Choice]) -> list[Choice]:
    """Return allowed values, separated by commas."""
    return [one_of(flag, part, allowed) for part in text.split(",")]


def one_of(flag: str, text: str, allowed: Sequence[Choice]) -> Choice:
    """Return the value if it is allowed."""
    for choice in allowed:
        if text == choice:
            return choice
    raise InputError(f"{flag} is {text!r}; allowed: {', '.join(allowed)}")


def where_of(arguments: Sequence[str]) -> dict[str, str]:
    """Return the column values that ``--where COLUMN=VALUE`` selects."""
    wanted: dict[str, str] = {}
    for text in arguments:
        column, equals, value = text.partition("=")
        if not (column and equals):
            raise InputError(f"--where is {text!r}; it is COLUMN=VALUE")
        wanted[column] = value
    return wanted


def given_path(text: str) -> Path:
    """Return the path, or reject an empty one, as from an unset shell variable, which Path would read as ``.``."""
    if not text:
        raise typer.BadParameter("it is empty")
    return Path(text)


def here(name: str, path: Path) -> Path:
    """Return a local path; raise InputError if it is a URI, of which a Path would keep only one slash."""
    if str(path).partition(":/")[0] in SCHEMES and ":/" in str(path):
        raise InputError(f"{name}: must be a path of this machine, not a URI")
    return path


def new_here(name: str, path: Path) -> Path:
    """Return a local path; raise InputError if it exists."""
    if here(name, path).exists():
        raise InputError(f"{path}: exists already")
    return path


def run_folder(name: str, place: str) -> "Folder":
    """Return the folder at the location that an option or argument names; raise InputError if it is not a folder."""
    from raysweep.storage.folder import BucketFolder, open_folder

    try:
        folder = open_folder(place, on_wait=lambda text: typer.echo(text, err=True))
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None
    if isinstance(folder, BucketFolder):
        folder.bucket.check()
    return folder
