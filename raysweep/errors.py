"""The one exception that means "the user can fix this": one clear message, exit code 2, no traceback."""

import difflib
from collections.abc import Iterable, Mapping


class InputError(ValueError):
    """Bad input. The message names the file, row or key, the offending value and what is allowed."""


class DamagedError(InputError):
    """A stored file that cannot be read as it was written, and without which its run can still be shown."""


class ReplayError(Exception):
    """A ledger whose trials the sampler of today does not propose again."""


def exception_line(text: str) -> str:
    """Of a traceback, as text, the exception with the first line of its message; of another text the last line.

    What follows that line may be advice, as of CUDA's errors.
    """
    lines = text.rstrip().splitlines()
    of_frames = [place for place, line in enumerate(lines) if line.startswith("  File ")]
    after = lines[of_frames[-1] + 1 :] if of_frames else lines[-1:]
    return next((line.strip() for line in after if line[:1].strip()), text.strip())


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """In parentheses, the one of the names that is nearest to this one, or what it maps to; empty where none is near."""
    close = difflib.get_close_matches(name, names, n=1)
    if not close:
        return ""
    meant = names[close[0]] if isinstance(names, Mapping) else close[0]
    return f" (did you mean {meant}?)"
