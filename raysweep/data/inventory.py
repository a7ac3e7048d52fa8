"""What a folder of artifacts holds: the size and the last use of each, and the removal of those that nobody uses."""

import re
import shutil
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from raysweep.errors import InputError
from raysweep.storage.cache import MANIFEST
from raysweep.storage.folder import Folder, LocalFolder

SECONDS_PER_DAY = 86_400
_WHOLE = re.compile(r"(sentences|encoded|neighbours|examples)-[0-9a-f]{20}")
_UNFINISHED = re.compile(rf"\.{_WHOLE.pattern}\.[0-9a-f]{{8}}")  # as remove names them
UNFINISHED_DAYS = 1.0  # since anybody wrote to it: then nobody will finish it


@dataclass(frozen=True)
class StoredArtifact:
    """An artifact, or with ``is_whole`` false the remains of one whose building was killed, or is still going on."""

    name: str
    num_bytes: int
    used_at: float  # seconds since the epoch: when a sweep last asked for it, or when it was last written to
    is_whole: bool

    @property
    def days_unused(self) -> float:
        """0 where the clocks of machines differ and it was used later than now."""
        return max(0.0, time.time() - self.used_at) / SECONDS_PER_DAY


def stored_artifacts(store: Folder) -> list[StoredArtifact]:
    """The artifacts in a folder, those first that were used last. InputError where there is no such folder."""
    if not store.exists(""):
        raise InputError(f"{store.location}: no such folder")
    if isinstance(store, LocalFolder) and not store.path.is_dir():
        raise InputError(f"{store.location}: is a file, not a folder")
    found = [artifact for name in store.names() if (artifact := _stored(name, store)) is not None]
    return sorted(found, key=lambda artifact: (-artifact.used_at, artifact.name))


def _stored(name: str, store: Folder) -> StoredArtifact | None:
    """The artifact of a name, or None for what is none, such as the file that ``raysweep prepare`` leaves."""
    if not _WHOLE.fullmatch(name) and not _UNFINISHED.fullmatch(name):
        return None
    files = store.files(name)
    is_whole = _WHOLE.fullmatch(name) is not None and MANIFEST in files
    if not is_whole and not files and _WHOLE.fullmatch(name):
        return None
    return StoredArtifact(
        name,
        num_bytes=sum(stat.num_bytes for stat in files.values()),
        used_at=max((stat.modified for stat in files.values()), default=0.0),
        is_whole=is_whole,
    )


def remove(artifacts: Iterable[StoredArtifact], store: Folder) -> list[StoredArtifact]:
    """Remove artifacts, each at once and for good: what is half removed counts as missing. A sweep that needs it builds it.

    Unfinished ones that were written to within the last day stay, since they may be about to be finished. Returns those that
    were removed. InputError where the system does not allow it.
    """
    removed = [each for each in artifacts if each.is_whole or each.days_unused >= UNFINISHED_DAYS]
    for artifact in removed:
        try:
            _remove(artifact, store)
        except FileNotFoundError:  # somebody else removes it
            continue
        except OSError as error:
            raise InputError(f"{store.location}/{artifact.name}: cannot be removed: {error.strerror}") from None
    return removed


def _remove(artifact: StoredArtifact, store: Folder) -> None:
    name = artifact.name
    if artifact.is_whole:
        if isinstance(store, LocalFolder):
            aside = f".{name}.{uuid.uuid4().hex[:8]}"
            (store.path / name).rename(store.path / aside)
            name = aside
        else:
            store.remove(f"{name}/{MANIFEST}")  # without which it does not exist
    if isinstance(store, LocalFolder) and not (store.path / name).is_symlink():
        shutil.rmtree(store.path / name)
    else:  # of a symbolic link it removes the link, and nothing behind it
        store.remove(name)
