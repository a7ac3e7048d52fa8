"""Artifacts: immutable, content-addressed folders on a file system or in an object store.

An artifact's key is a hash of everything that its content depends on, so a second sweep over the same data, encoder
and mining parameters reuses the artifact. The manifest is stored last. An artifact without a manifest counts as
missing, but the next build reuses its files.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from raysweep.errors import InputError
from raysweep.storage import location
from raysweep.storage.cache import CHECKSUMS, MANIFEST, cached, write_manifest
from raysweep.storage.folder import BucketFolder, Folder, LocalFolder, open_folder
from raysweep.storage.lease import turn

SCHEMA = 1
WORK = "work"
FIRST_STEP = "read"  # first step of a stage with several steps
SECONDS_PER_DAY = 86_400
# an unfinished artifact counts as abandoned this many days after its last write
UNFINISHED_DAYS = 1.0

_NAME = re.compile(
    r"(sentences|encoded|tokens|neighbors|examples|scores|teacher|model)-[0-9a-f]{20}"
)
# name of an artifact that is being removed
_NAME_ASIDE = re.compile(rf"\.{_NAME.pattern}\.[0-9a-f]{{8}}")


@dataclass(frozen=True)
class Artifact:
    """The name and store location of an artifact, which may not exist yet."""

    location: str
    name: str

    @property
    def folder(self) -> Path:
        """Return the artifact's local folder. For a bucket, this is a copy that is kept until the process exits."""
        store = open_folder(self.location)
        if isinstance(store, BucketFolder):
            return cached(store, self.name)
        return store.path / self.name

    @property
    def summary(self) -> dict[str, Any]:
        """Return the summary that the artifact's builder recorded."""
        return self._read_manifest("summary")

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the parameters that the artifact was built with."""
        return self._read_manifest("parameters")

    def _read_manifest(self, part: str) -> dict[str, Any]:
        name = f"{self.name}/{MANIFEST}"
        (text,) = open_folder(self.location).read([name])
        try:
            values: dict[str, Any] = json.loads(text)[part]
        except (ValueError, KeyError, TypeError):
            raise damaged(location.join(self.location, name)) from None
        return values

    @property
    def exists(self) -> bool:
        return open_folder(self.location).exists(f"{self.name}/{MANIFEST}")


def damaged(file: str | Path) -> InputError:
    """Return the error for an artifact file with invalid content."""
    folder = location.parent(str(file))
    return InputError(f"{file}: is damaged; remove the folder {folder} and prepare again")


@dataclass(frozen=True)
class Store:
    """A location that contains artifacts."""

    location: str

    @cached_property
    def root(self) -> Folder:
        return open_folder(self.location)

    def artifact(self, kind: str, parameters: Mapping[str, Any]) -> Artifact:
        """Return the artifact with this kind and these parameters; it may not exist yet."""
        text = json.dumps({"schema": SCHEMA, "kind": kind, **parameters}, sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()[:20]
        return Artifact(self.location, f"{kind}-{key}")

    def working(self, artifact: Artifact, *names: str) -> Artifact:
        """Return a location for temporary files inside an unfinished artifact."""
        return Artifact(self.location, "/".join([artifact.name, WORK, *names]))

    def note_use(self, artifact: Artifact) -> None:
        """Record a use of the artifact by setting its manifest's modification time to now."""
        manifest = f"{artifact.name}/{MANIFEST}"
        with contextlib.suppress(OSError):  # a read-only store
            if isinstance(self.root, BucketFolder):
                stored = self.root.bucket.read_version(manifest)
                self.root.bucket.replace(manifest, stored.content, stored.tag)
            else:
                os.utime(self.root.path / manifest)

    def turn(
        self, artifact: Artifact, report: Callable[[str], None]
    ) -> contextlib.AbstractContextManager[None]:
        """Lock an artifact until the context exits, so that only one process builds it.

        ``report`` receives messages while this process waits for the lock.

        Raises:
            InputError: If the artifact's folder is a symbolic link.
        """
        if isinstance(self.root, LocalFolder):
            path = self.root.path / artifact.name
            if path.is_symlink():
                raise InputError(
                    f"{path}: the artifact is a symbolic link; allowed: a folder; remove the link"
                )
        return turn(self.root, artifact.name, report)

    def finish(
        self,
        artifact: Artifact,
        parameters: Mapping[str, Any],
        summary: Mapping[str, Any],
        shards: Sequence[Mapping[str, Any]] = (),
        checksums: Mapping[str, int | None] | None = None,
    ) -> None:
        """Finish an artifact by writing its manifest. All other files must already be stored.

        ``parameters`` are the values that the artifact's key was computed from. The manifest records the ``num_rows``
        and ``num_bytes`` of each shard, and the CRC-32 of every file, which nodes verify when they download the
        artifact. ``checksums`` contains known CRC-32 values of other files, keyed by file name.
        """
        root, folder = self.root, artifact.name
        shard_sizes = [
            {"num_rows": shard["num_rows"], "num_bytes": shard["num_bytes"]} for shard in shards
        ]
        manifest: dict[str, Any] = {
            "schema": SCHEMA,
            "parameters": dict(parameters),
            "summary": dict(summary),
            "shards": shard_sizes,
        }
        remove_work(root, folder)
        ending = f"-of-{len(shards):05}.arrow"
        for name in root.names(folder):
            is_temporary = name.startswith(".")  # left by a killed worker
            is_shard = name.endswith(".arrow")
            # from a build with a different number of shards
            is_stale = is_shard and not name.endswith(ending)
            if is_temporary or is_stale:
                root.remove(f"{folder}/{name}")
        known = {f"{number:05}{ending}": shard.get("crc32") for number, shard in enumerate(shards)}
        known = {**known, **(checksums or {})}
        stored_checksums: dict[str, int] = {}
        for name in sorted(root.sizes(folder).keys() - {MANIFEST}):
            checksum = known.get(name)
            if checksum is None:  # for example, a shard from an earlier build
                (content,) = root.read([f"{folder}/{name}"])
                checksum = zlib.crc32(content)
            stored_checksums[name] = checksum
        manifest[CHECKSUMS] = stored_checksums
        root.put(f"{folder}/{MANIFEST}", write_manifest(manifest))

    def remove(self, artifact: Artifact) -> None:
        self.root.remove(f"{artifact.name}/{MANIFEST}")
        remove_work(self.root, artifact.name)
        self.root.remove(artifact.name)


def remove_work(root: Folder, name: str) -> None:
    """Remove the temporary files of an artifact.

    The output of the first step is removed first, so that all steps run again if the removal is interrupted.
    """
    root.remove(f"{name}/{WORK}/{FIRST_STEP}")
    root.remove(f"{name}/{WORK}")


@dataclass(frozen=True)
class StoredArtifact:
    """An artifact in a store, which may be incomplete."""

    name: str
    num_bytes: int
    used_at: float  # last use by a sweep or last write, in seconds since the epoch
    is_complete: bool

    @property
    def days_unused(self) -> float:
        """Return the days since the last use, or 0 if clock skew makes the number negative."""
        return max(0.0, time.time() - self.used_at) / SECONDS_PER_DAY


def list_artifacts(store: Folder) -> list[StoredArtifact]:
    """Return the artifacts in a folder, most recently used first.

    Raises:
        InputError: If the folder does not exist.
    """
    if not store.exists(""):
        raise InputError(f"{store.location}: no such folder")
    if isinstance(store, LocalFolder) and not store.path.is_dir():
        raise InputError(f"{store.location}: is a file; allowed: a folder of artifacts")
    artifacts = []
    for name in store.names():
        has_name = _NAME.fullmatch(name) is not None
        if not has_name and not _NAME_ASIDE.fullmatch(name):
            continue  # not an artifact, such as the file that ``raysweep prepare`` writes
        files = store.files(name)
        if has_name and not files:
            continue
        stats = files.values()
        num_bytes = sum(stat.num_bytes for stat in stats)
        used_at = max((stat.modified for stat in stats), default=0.0)
        is_complete = has_name and MANIFEST in files
        artifacts.append(StoredArtifact(name, num_bytes, used_at, is_complete))
    artifacts.sort(key=lambda artifact: (-artifact.used_at, artifact.name))
    return artifacts


def remove_artifacts(artifacts: Iterable[StoredArtifact], store: Folder) -> list[StoredArtifact]:
    """Remove artifacts, and return those that were removed.

    A partially removed artifact counts as missing. Unfinished artifacts that were written to within the last day are
    kept, because their builds may still be running.

    Raises:
        InputError: If an artifact cannot be removed.
    """
    removed = [
        artifact
        for artifact in artifacts
        if artifact.is_complete or artifact.days_unused >= UNFINISHED_DAYS
    ]
    for artifact in removed:
        try:
            _remove(artifact, store)
        except FileNotFoundError:  # another process is removing it
            continue
        except OSError as error:
            raise InputError(
                f"{store.location}/{artifact.name}: cannot be removed: {error.strerror}"
            ) from None
    return removed


def _remove(artifact: StoredArtifact, store: Folder) -> None:
    name = artifact.name
    if not isinstance(store, LocalFolder):
        if artifact.is_complete:
            store.remove(f"{name}/{MANIFEST}")  # an artifact without a manifest counts as missing
        store.remove(name)
        return
    if artifact.is_complete:
        name_aside = f".{name}.{uuid.uuid4().hex[:8]}"
        (store.path / name).rename(store.path / name_aside)
        name = name_aside
    if (store.path / name).is_symlink():
        store.remove(name)  # only the link, not its target
    else:
        shutil.rmtree(store.path / name)
