"""The settings of a run in ``config.yaml``, next to its ledger.

The ledger stores a digest of each session's settings, and a file that matches none of them is rejected. If a session has
no digest, any file is accepted.
"""

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

from raysweep.config.document import Document
from raysweep.errors import InputError
from raysweep.results.types import Results
from raysweep.storage import location
from raysweep.storage.folder import Folder

NAME = "config.yaml"


def check_settings(run: Folder, digests: Collection[str | None]) -> None:
    """Check that a session of this run wrote the current settings.

    If a session has no digest, any settings are accepted, since they may be that session's.

    Raises:
        InputError: If the file is missing, cannot be read or matches no session.
    """
    if not _are_known(digests):
        return
    place = location.join(run.location, NAME)
    try:
        (content,) = run.read([NAME])
    except FileNotFoundError:
        raise InputError(f"{place}: is gone, which the run's ledger says it was begun with; put it back") from None
    except OSError as error:
        raise InputError(f"{place}: cannot be read: {error.strerror}") from None
    if hashlib.sha256(content).hexdigest() not in digests:
        raise InputError(
            f"{place}: is not the configuration that this run was started or resumed with; put it back. What may change is "
            "given as options of run --resume"
        )


def read_settings(run: Folder, results: Results) -> Mapping[str, Any]:
    """Return the settings. Raise ``InputError`` like :func:`check_settings`.

    If a session has no digest, a file that is missing or not YAML is read as empty.
    """
    check_settings(run, results.config_digests)
    if not run.exists(NAME):
        return {}
    try:
        return Document.read(run.fetch(NAME)).values
    except (InputError, OSError):
        if _are_known(results.config_digests):
            raise
        return {}


def _are_known(digests: Collection[str | None]) -> bool:
    return bool(digests) and None not in digests
