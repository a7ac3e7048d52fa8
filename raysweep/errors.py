"""Shared exceptions.

The user can fix the cause of an :class:`InputError`, so the command exits with code 2 and one clear message instead of
a traceback.
"""

import difflib
import itertools
from collections.abc import Iterable, Mapping


class InputError(ValueError):
    """Bad input. The message names the file, row or key, the offending value and the allowed values."""


class TemporaryError(InputError):
    """A failure not caused by the input, such as a full disk; the command exits with code 75 and can be repeated."""


class DamagedError(InputError):
    """A stored file is unreadable, but its run can be shown without it."""


class ReplayError(Exception):
    """A ledger contains trials that the current sampler would not propose."""


def exception_line(traceback: str) -> str:
    """Return the exception from a traceback's text, with the first line of its message.

    Later lines are omitted because they may only give advice, as in CUDA errors. If the text has no frames, return its
    last line.
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
    """Return the name most similar to ``name`` as a suggestion in parentheses, or an empty string if none is similar.

    If ``names`` is a mapping, suggest the value of the most similar key.
    """
    close = difflib.get_close_matches(name, names, n=1)
    if not close:
        return ""
    meant = names[close[0]] if isinstance(names, Mapping) else close[0]
    return f" (did you mean {meant}?)"
