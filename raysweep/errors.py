"""The one exception that means "the user can fix this": one clear message, exit code 2, no traceback."""

import difflib
import itertools
from collections.abc import Iterable, Mapping


class InputError(ValueError):
    """Bad input. The message names the file, row or key, the offending value and what is allowed."""


class DamagedError(InputError):
    """A stored file that cannot be read as it was written, and without which its run can still be shown."""


class ReplayError(Exception):
    """A ledger whose trials the sampler of today does not propose again."""


def exception_line(traceback: str) -> str:
    """Of a traceback, as text, the exception with the first line of its message; of a text without frames the last line.

    What follows that line may be advice, as of CUDA's errors.
    """
    lines = traceback.rstrip().splitlines() or [""]
    of_frames = [place for place, line in enumerate(lines) if line.startswith("  File ")]
    last_line = lines[-1].strip()
    if not of_frames:
        return last_line
    after = lines[of_frames[-1] + 1 :]
    raised = itertools.dropwhile(_belongs_to_a_frame, after)
    said = [line.strip() for line in raised if line.strip()]
    if not said:
        return last_line
    message_begins_below = said[0].endswith(":")
    return " ".join(said[:2]) if message_begins_below else said[0]


def _belongs_to_a_frame(line: str) -> bool:
    """Whether a traceback's line is empty or indented."""
    return not line[:1].strip()


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """In parentheses, the one of the names that is nearest to this one, or what it maps to; empty where none is near."""
    close = difflib.get_close_matches(name, names, n=1)
    if not close:
        return ""
    meant = names[close[0]] if isinstance(names, Mapping) else close[0]
    return f" (did you mean {meant}?)"
