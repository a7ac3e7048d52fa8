"""The contents of a folder of artifacts: sizes, times of last use, and removal of unused artifacts."""

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
_WHOLE = re.compile(r"(sentences|encoded|neighbors|examples)-[0-9a-f]{20}")
_UNFINISHED = re.compile(rf"\.{_WHOLE.pattern}\.[0-9a-f]{{8}}")  # as remove names them
UNFINISHED_DAYS = 1.0  # days since the last write after which an artifact counts as abandoned


@dataclass(frozen=True)
class StoredArtifact:
    """An artifact; with ``is_whole`` false, one that is still being built or the remains of a killed build."""

    name: str
    num_bytes: int
    used_at: float  # last use by a sweep or last write, in seconds since the epoch
    is_whole: bool

    @property
    def days_unused(self) -> float:
        """Return the days since the last use; 0 if clock differences between machines make it negative."""
        return max(0.0, time.time() - self.used_at) / SECONDS_PER_DAY


def stored_artifacts(store: Folder) -> list[StoredArtifact]:
    """Return the artifacts in a folder, most recently used first.

    Raises:
        InputError: If the folder does not exist.
    """
    if not store.exists(""):
        raise InputError(f"{store.location}: no such folder")
    if isinstance(store, LocalFolder) and not store.path.is_dir():
        raise InputError(f"{store.location}: is a file, not a folder")
    found = [artifact for name in store.names() if (artifact := _stored(name, store)) is not None]
    return sorted(found, key=lambda artifact: (-artifact.used_at, artifact.name))


def _stored(name: str, store: Folder) -> StoredArtifact | None:
    """Return the artifact with this name, or None for other files, such as the one that ``raysweep prepare`` writes."""
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
    """Remove artifacts permanently, and return those that were removed.

    Removal is atomic: a partly removed artifact counts as missing. A sweep that needs it rebuilds it. Unfinished
    artifacts that were written to within the last day are kept, because their build may still be running.

    Raises:
        InputError: If the system does not permit the removal.
    """
    removed = [each for each in artifacts if each.is_whole or each.days_unused >= UNFINISHED_DAYS]
    for artifact in removed:
        try:
            _remove(artifact, store)
        except FileNotFoundError:  # another process is removing it
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
            store.remove(f"{name}/{MANIFEST}")  # an artifact without a manifest does not exist
    if isinstance(store, LocalFolder) and not (store.path / name).is_symlink():
        shutil.rmtree(store.path / name)
    else:  # for a symbolic link, this removes only the link, not its target
        store.remove(name)
