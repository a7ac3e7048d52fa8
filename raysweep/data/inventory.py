"""What a folder of artifacts holds: the size and the last use of each, and the removal of those that nobody uses."""

import contextlib
import re
import shutil
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from raysweep.data.artifacts import DONE
from raysweep.errors import InputError

SECONDS_PER_DAY = 86_400
_WHOLE = re.compile(r"(sentences|encoded|neighbours|examples)-[0-9a-f]{20}")
_UNFINISHED = re.compile(rf"\.{_WHOLE.pattern}\.[0-9a-f]{{8}}")  # as Store.build and remove name them
UNFINISHED_DAYS = 1.0  # since anybody wrote to it: then nobody will finish it


@dataclass(frozen=True)
class StoredArtifact:
    """An artifact, or with ``is_whole`` false the remains of one whose building was killed, or is still going on."""

    path: Path
    num_bytes: int
    used_at: float  # seconds since the epoch: when a sweep last asked for it, or when it was last written to
    is_whole: bool

    @property
    def days_unused(self) -> float:
        """0 where the clocks of machines differ and it was used later than now."""
        return max(0.0, time.time() - self.used_at) / SECONDS_PER_DAY


def stored_artifacts(folder: Path) -> list[StoredArtifact]:
    """The artifacts in a folder, those first that were used last. InputError where there is no such folder."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    found = [artifact for path in folder.iterdir() if (artifact := _stored(path)) is not None]
    return sorted(found, key=lambda artifact: (-artifact.used_at, artifact.path.name))


def _stored(path: Path) -> StoredArtifact | None:
    """The artifact at a path, or None for what is none, such as the file that ``raysweep prepare`` leaves."""
    is_whole = _WHOLE.fullmatch(path.name) is not None and (path / DONE).is_file()
    if not is_whole and not _UNFINISHED.fullmatch(path.name):
        return None
    sizes, times = [0], [0.0]
    for file in path.rglob("*"):
        with contextlib.suppress(OSError):  # of an artifact that is being built
            status = file.stat()
            sizes.append(status.st_size)
            times.append(status.st_mtime)
    return StoredArtifact(path, sum(sizes), max(times), is_whole)


def remove(artifacts: Iterable[StoredArtifact]) -> list[StoredArtifact]:
    """Remove artifacts, each at once and for good: no process sees a half of one. A sweep that needs it builds it anew.

    Unfinished ones that were written to within the last day stay, since they may be about to be finished. Returns those that
    were removed. InputError where the system does not allow it.
    """
    removed = [each for each in artifacts if each.is_whole or each.days_unused >= UNFINISHED_DAYS]
    for artifact in removed:
        path = artifact.path
        try:
            if artifact.is_whole:
                path = path.rename(path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}"))
            shutil.rmtree(path)
        except FileNotFoundError:  # somebody else removes it
            continue
        except OSError as error:
            raise InputError(f"{artifact.path}: cannot be removed: {error.strerror}") from None
    return removed
