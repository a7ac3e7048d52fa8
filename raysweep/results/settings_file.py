"""A run's settings, stored in ``config.yaml`` and verified against the digests in the ledger."""

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

from raysweep.config.document import Document
from raysweep.errors import InputError
from raysweep.results.types import Results
from raysweep.storage import location
from raysweep.storage.folder import Folder

NAME = "config.yaml"


def check_settings(run: Folder, digests: Collection[str]) -> None:
    """Check that the settings match one of the digests.

    Raises:
        InputError: If the settings are missing, cannot be read or do not match.
    """
    place = location.join(run.location, NAME)
    try:
        (content,) = run.read([NAME])
    except FileNotFoundError:
        raise InputError(
            f"{place}: is missing; restore the settings that the run was started or resumed with"
        ) from None
    except OSError as error:
        raise InputError(f"{place}: cannot be read: {error.strerror}") from None
    if hashlib.sha256(content).hexdigest() not in digests:
        raise InputError(
            f"{place}: differs from the settings that the run was started or resumed with; restore it, and pass changes as "
            "options to run --resume"
        )


def read_settings(run: Folder, results: Results) -> Mapping[str, Any]:
    """Return the settings. Raise ``InputError`` like :func:`check_settings`."""
    check_settings(run, results.config_digests)
    return Document.read(run.fetch(NAME)).values
