"""Immutable, content-addressed folders, on a file system or in an object store.

An artifact's key hashes everything that its content depends on, so a second sweep over the same data, encoder and
mining parameters reuses it and prepares nothing. The manifest is stored last: an artifact without a manifest does not
exist, and the next process that builds it continues from the files already stored.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from raysweep.errors import InputError
from raysweep.storage import location
from raysweep.storage.cache import MANIFEST, cached
from raysweep.storage.folder import BucketFolder, Folder, LocalFolder, open_folder
from raysweep.storage.turns import turn

SCHEMA = 1
WORK = "work"
FIRST_STEP = "read"  # first step of a stage with several steps


@dataclass(frozen=True)
class Artifact:
    """An artifact: its name, and the location of its store. It may not exist yet."""

    location: str
    name: str

    @property
    def folder(self) -> Path:
        """Return a local folder with the files: the store's own folder, or a copy kept for the life of this process."""
        store = open_folder(self.location)
        if isinstance(store, BucketFolder):
            return cached(store, self.name)
        return store.path / self.name

    @property
    def summary(self) -> dict[str, Any]:
        """Return the summary that the artifact's builder recorded."""
        return self._of_manifest("summary")

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the parameters that the artifact was built with."""
        return self._of_manifest("parameters")

    def _of_manifest(self, part: str) -> dict[str, Any]:
        name = f"{self.name}/{MANIFEST}"
        (text,) = open_folder(self.location).read([name])
        try:
            found: dict[str, Any] = json.loads(text)[part]
        except (ValueError, KeyError, TypeError):
            raise damaged(location.join(self.location, name)) from None
        return found

    @property
    def exists(self) -> bool:
        return open_folder(self.location).exists(f"{self.name}/{MANIFEST}")


def damaged(file: str | Path) -> InputError:
    """Return the error for a file of an artifact that no worker can have written."""
    return InputError(f"{file}: is damaged; remove the folder {location.parent(str(file))}, and prepare again")


@dataclass(frozen=True)
class Store:
    """A location that holds artifacts, each named by its kind and key."""

    location: str

    @cached_property
    def root(self) -> Folder:
        return open_folder(self.location)

    def artifact(self, kind: str, parameters: Mapping[str, Any]) -> Artifact:
        """Return the artifact of this kind and these parameters, which may not exist yet."""
        text = json.dumps({"schema": SCHEMA, "kind": kind, **parameters}, sort_keys=True)
        return Artifact(self.location, f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:20]}")

    def working(self, artifact: Artifact, *names: str) -> Artifact:
        """Return a location inside an unfinished artifact for files that are deleted when its stage is finished."""
        return Artifact(self.location, "/".join([artifact.name, WORK, *names]))

    def note_use(self, artifact: Artifact) -> None:
        """Set the modification time of the artifact's manifest to now: it records the last use."""
        manifest = f"{artifact.name}/{MANIFEST}"
        with contextlib.suppress(OSError):  # a read-only store
            if isinstance(self.root, BucketFolder):
                found = self.root.bucket.read_version(manifest)
                self.root.bucket.replace(manifest, found.content, found.tag)
            else:
                os.utime(self.root.path / manifest)

    def turn(self, artifact: Artifact, say: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
        """Hold the turn to build an artifact. ``say`` is called with a message while another process has the turn.

        Raises:
            InputError: If the artifact's folder is a symbolic link, because writes and deletes would affect another
                folder.
        """
        if isinstance(self.root, LocalFolder) and (self.root.path / artifact.name).is_symlink():
            raise InputError(
                f"{self.root.path / artifact.name}: is a symbolic link; an artifact that is built is a folder"
            )
        return turn(self.root, artifact.name, say)

    def finish(
        self,
        artifact: Artifact,
        parameters: Mapping[str, Any],
        summary: Mapping[str, Any],
        shards: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Write the manifest of an artifact whose files are all stored. From now on the artifact exists.

        ``parameters`` are those that its key hashes. The manifest keeps ``num_rows`` and ``num_bytes`` of each shard.
        """
        manifest = {
            "schema": SCHEMA,
            "parameters": dict(parameters),
            "summary": dict(summary),
            "shards": [{key: shard[key] for key in ("num_rows", "num_bytes")} for shard in shards],
        }
        text = json.dumps(manifest, indent=1)
        self._remove_leftovers(artifact, len(shards))
        self.root.put(f"{artifact.name}/{MANIFEST}", text.encode())

    def _remove_leftovers(self, artifact: Artifact, num_shards: int) -> None:
        """Remove temporary files of the stage, files of killed workers, and shards of another number of shards."""
        remove_work(self.root, artifact.name)
        ending = f"-of-{num_shards:05}.arrow"
        for name in self.root.names(artifact.name):
            if name.startswith(".") or (name.endswith(".arrow") and not name.endswith(ending)):
                self.root.remove(f"{artifact.name}/{name}")

    def remove(self, artifact: Artifact) -> None:
        """Remove an artifact."""
        self.root.remove(f"{artifact.name}/{MANIFEST}")
        remove_work(self.root, artifact.name)
        self.root.remove(artifact.name)


def remove_work(root: Folder, name: str) -> None:
    """Remove the files that a stage needs only until its artifact is finished.

    The output of the first step is removed first: without it, all steps run again.
    """
    root.remove(f"{name}/{WORK}/{FIRST_STEP}")
    root.remove(f"{name}/{WORK}")
