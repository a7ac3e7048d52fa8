"""Exceptions, and functions for error messages."""

import difflib
import itertools
from collections.abc import Iterable, Mapping


class InputError(ValueError):
    """An error that the user can fix. The command exits with code 2 and prints the message without a traceback.

    The message names the file, row or key, the invalid value and the allowed values.
    """


class TemporaryError(InputError):
    """A temporary failure, such as a full disk. The command exits with code 75 and can be run again."""


class DamagedError(InputError):
    """A file in a run is damaged, but the run can be shown without it."""


class ReplayError(Exception):
    """The trials in a ledger differ from those that the sampler proposes."""


def exception_line(traceback: str) -> str:
    """Return the exception and the first line of its message from a traceback.

    Later lines, such as the advice in CUDA errors, are omitted. If the traceback has no frames, return its last line.
    """
    lines = traceback.rstrip().splitlines() or [""]
    frame_lines = [index for index, line in enumerate(lines) if line.startswith("  File ")]
    last_line = lines[-1].strip()
    if not frame_lines:
        return last_line
    after = lines[frame_lines[-1] + 1 :]
    exception = itertools.dropwhile(
        lambda line: not line[:1].strip(), after
    )  # skips empty and indented lines
    message = [line.strip() for line in exception if line.strip()]
    if not message:
        return last_line
    starts_on_next_line = message[0].endswith(":")
    return " ".join(message[:2]) if starts_on_next_line else message[0]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Suggest the most similar name in parentheses, or return an empty string if no name is similar.

    If ``names`` is a mapping, the suggestion is the value of the most similar key.
    """
    close = difflib.get_close_matches(name, names, n=1)
    if not close:
        return ""
    meant = names[close[0]] if isinstance(names, Mapping) else close[0]
    return f" (did you mean {meant}?)"
