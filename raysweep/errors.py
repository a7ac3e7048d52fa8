"""The one exception that means "the user can fix this": one clear message, exit code 2, no traceback."""


class InputError(ValueError):
    """Bad input. The message names the file, row or key, the offending value and what is allowed."""


class DamagedError(InputError):
    """A stored file that cannot be read as it was written, and without which its run can still be shown."""


class ReplayError(Exception):
    """A ledger whose trials the sampler of today does not propose again."""
