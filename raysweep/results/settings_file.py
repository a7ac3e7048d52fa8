"""The settings that a run keeps beside its ledger, in ``config.yaml``: whole, as one of its sessions wrote them, or refused.

The ledger has the digest of what each session wrote. Sessions of older versions have none: a file that may be theirs is
taken as it is.
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
    """InputError unless a session of this run wrote the settings that are there now.

    Where a session did not note its digest any will do: it may be that session's, also where a later one was killed before
    it wrote its own.
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
    """What the settings say. InputError as of :func:`check_settings`.

    Of a run of an older version nothing where the file is gone or is no YAML.
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
