"""From a command's arguments to what they name; every misuse is an InputError."""

from raysweep.errors import InputError


def with_trials(arguments: list[str], trials: int | None) -> list[str]:
    """The overrides, with what ``--trials`` is short for."""
    return arguments if trials is None else [*arguments, "--budget.trials", str(trials)]


def natural(flag: str, text: str) -> int:
    """The whole number above 0 that an option was given."""
    if not text.strip().isdigit() or int(text) < 1:
        raise InputError(f"{flag}: {text!r} is no whole number above 0")
    return int(text)


def one_of(flag: str, value: str, allowed: tuple[str, ...]) -> None:
    """InputError unless the option's value is an allowed one."""
    if value not in allowed:
        raise InputError(f"{flag} is {value!r}; allowed: {', '.join(allowed)}")


def where_of(arguments: list[str]) -> dict[str, str]:
    """The values of columns that ``--where COLUMN=VALUE`` asks for."""
    wanted: dict[str, str] = {}
    for text in arguments:
        column, equals, value = text.partition("=")
        if not (column and equals):
            raise InputError(f"--where is {text!r}; it is COLUMN=VALUE")
        wanted[column] = value
    return wanted
