"""What a folder of artifacts holds: the size and the last use of each, and the removal of those that nobody uses."""

import contextlib
import json
import shutil
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from raysweep.data.artifacts import DONE
from raysweep.errors import InputError

SECONDS_PER_DAY = 86_400
UNFINISHED_DAYS = 1.0  # since anybody wrote to it: then nobody will finish it


@dataclass(frozen=True)
class StoredArtifact:
    """An artifact, or with ``is_whole`` false the remains of one whose building was killed, or is still going on."""

    path: Path
    kind: str
    num_bytes: int
    used_at: float  # seconds since the epoch: when a sweep last asked for it, or when it was last written to
    is_whole: bool

    @property
    def days_unused(self) -> float:
        return (time.time() - self.used_at) / SECONDS_PER_DAY


def stored_artifacts(folder: Path) -> list[StoredArtifact]:
    """The artifacts in a folder, those first that were used last. InputError where there is no such folder."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    found = [artifact for path in folder.iterdir() if (artifact := _stored(path)) is not None]
    return sorted(found, key=lambda artifact: (-artifact.used_at, artifact.path.name))


def _stored(path: Path) -> StoredArtifact | None:
    """The artifact at a path, or None for what is none, such as the file that ``raysweep prepare`` leaves."""
    is_hidden = path.name.startswith(".")
    kind, dash, _ = path.name.removeprefix(".").partition("-")
    if not path.is_dir() or not dash:
        return None
    manifest = path / DONE
    if not is_hidden and not _is_manifest(manifest):
        return None
    sizes, times = [0], [path.stat().st_mtime]
    for file in path.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # of an artifact that is being built
            status = file.stat()
            sizes.append(status.st_size)
            times.append(status.st_mtime)
    used_at = max(times) if is_hidden else manifest.stat().st_mtime
    return StoredArtifact(path, kind, sum(sizes), used_at, is_whole=not is_hidden)


def _is_manifest(path: Path) -> bool:
    try:
        return {"schema", "parameters", "summary"} <= set(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return False


def remove(artifacts: Iterable[StoredArtifact]) -> list[StoredArtifact]:
    """Remove artifacts, each at once and for good: no process sees a half of one. A sweep that needs it builds it anew.

    Unfinished ones that were written to within the last day stay, since they may be about to be finished. Returns those that
    were removed.
    """
    removed = [each for each in artifacts if each.is_whole or each.days_unused >= UNFINISHED_DAYS]
    for artifact in removed:
        path = artifact.path
        if artifact.is_whole:
            path = path.rename(path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}"))
        shutil.rmtree(path)
    return removed
