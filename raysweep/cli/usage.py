"""One-line messages for usage errors, in place of typer's boxes."""

from typing import Any

import typer
import typer.core

NUMBERS = {"int_parsing": "a whole number", "int_from_float": "a whole number", "float_parsing": "a number"}
"""Allowed values by the type of pydantic's errors, which typer uses to parse values."""

USAGE_ERROR: type[Any] = typer.BadParameter.mro()[1]
"""The base class of typer's usage errors, which typer does not export by name."""


def run(app: typer.Typer) -> int:
    """Run the command of the process and return its exit code; usage errors raise ``USAGE_ERROR``."""
    code = app(standalone_mode=False)
    return code if isinstance(code, int) else 0


def problem(error: Any) -> str:
    """Return the message for a ``USAGE_ERROR``; empty if the help was printed because there were no arguments."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""
    if isinstance(error, typer.BadParameter) and error.param is not None:
        name = _name(error.param)
        return f"{name} is missing" if _is_missing(error) else f"{name} {_problem_of_value(error)}"
    text = error.format_message().rstrip(".")
    usage = "" if error.ctx is None else f"; {error.ctx.get_usage()}"
    return _one_line(f"{text[:1].lower()}{text[1:]}{usage.replace('Usage:', 'usage:')}")


def _name(param: Any) -> str:
    """Return an option's first flag, or an argument's name in the help."""
    if isinstance(param, typer.core.TyperOption):
        return str(param.opts[0])
    return str(param.metavar or param.name).rstrip(".")


def _is_missing(error: typer.BadParameter) -> bool:
    return type(error).__name__ == "MissingParameter"


def _problem_of_value(error: typer.BadParameter) -> str:
    """Return the value and what is allowed, as far as the library reports it."""
    found = _first_error(error.__cause__)
    allowed = [NUMBERS.get(found.get("type", ""), ""), _range(error.param)]
    told = ", ".join(text for text in allowed if text)
    if not (found and told):
        return _one_line(f"is refused: {error.message.rstrip('.')}")
    return _one_line(f"is {str(found['input'])!r}; allowed: {told}")


def _first_error(cause: Any) -> dict[str, Any]:
    """Return the first of pydantic's errors, or an empty dictionary for other causes."""
    errors = cause.errors() if hasattr(cause, "errors") else [{}]
    return dict(errors[0])


def _range(param: Any) -> str:
    low, high = getattr(param, "min", None), getattr(param, "max", None)
    if low is None and high is None:
        return ""
    if high is None:
        return f"{low} or more"
    return f"{high} or less" if low is None else f"{low} to {high}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
