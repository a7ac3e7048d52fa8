"""Immutable, content-addressed folders, in a folder or in an object store.

The key of an artifact hashes everything its content depends on, so a second sweep over the same data, encoder and mining
parameters finds it and prepares nothing. Its manifest is stored last: without it, it does not exist, and whoever builds it
goes on with what is there.
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
FIRST_STEP = "read"  # of a stage that has several


@dataclass(frozen=True)
class Artifact:
    """An artifact by its name, and the location of the store that has it or will have it."""

    location: str
    name: str

    @property
    def folder(self) -> Path:
        """Its files on this machine: those of the store, or a copy of them, which stays while this process lives."""
        store = open_folder(self.location)
        if isinstance(store, BucketFolder):
            return cached(store, self.name)
        return store.path / self.name

    @property
    def summary(self) -> dict[str, Any]:
        """What the artifact's builder said of it."""
        return self._of_manifest("summary")

    @property
    def parameters(self) -> dict[str, Any]:
        """What the artifact was built by."""
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
    """A file of an artifact is not what any worker writes."""
    return InputError(f"{file}: is damaged; remove the folder {location.parent(str(file))}, and prepare again")


@dataclass(frozen=True)
class Store:
    """The place that holds artifacts, each under its kind and key."""

    location: str

    @cached_property
    def root(self) -> Folder:
        return open_folder(self.location)

    def artifact(self, kind: str, parameters: Mapping[str, Any]) -> Artifact:
        """The artifact of this kind and these parameters, whether or not it is there."""
        text = json.dumps({"schema": SCHEMA, "kind": kind, **parameters}, sort_keys=True)
        return Artifact(self.location, f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:20]}")

    def working(self, artifact: Artifact, *names: str) -> Artifact:
        """A place within an artifact in the making, for what its stage needs no longer when it is finished."""
        return Artifact(self.location, "/".join([artifact.name, WORK, *names]))

    def note_use(self, artifact: Artifact) -> None:
        """Let the artifact's manifest have the time of now, which says when it was last of use."""
        manifest = f"{artifact.name}/{MANIFEST}"
        with contextlib.suppress(OSError):  # a place that is read only
            if isinstance(self.root, BucketFolder):
                found = self.root.bucket.read_version(manifest)
                self.root.bucket.replace(manifest, found.content, found.tag)
            else:
                os.utime(self.root.path / manifest)

    def turn(self, artifact: Artifact, say: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
        """Hold the turn to build an artifact. ``say`` is told of a process that has it and is waited for.

        InputError where its folder is a symbolic link: what is written and removed in it would be elsewhere.
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
        """Write the manifest of an artifact all of whose files are stored: from now on it exists.

        ``parameters`` are those that its key hashes. Of each shard it keeps ``num_rows`` and ``num_bytes``.
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
        """Remove what belongs to no finished artifact: its stage's work, what killed workers left, other divisions."""
        remove_work(self.root, artifact.name)
        ending = f"-of-{num_shards:05}.arrow"
        for name in self.root.names(artifact.name):
            if name.startswith(".") or (name.endswith(".arrow") and not name.endswith(ending)):
                self.root.remove(f"{artifact.name}/{name}")

    def remove(self, artifact: Artifact) -> None:
        """Remove an artifact that is not to be."""
        self.root.remove(f"{artifact.name}/{MANIFEST}")
        remove_work(self.root, artifact.name)
        self.root.remove(artifact.name)


def remove_work(root: Folder, name: str) -> None:
    """Remove what a stage needs only until its artifact is finished.

    What the first step left goes first: without it, all steps are gone through again.
    """
    root.remove(f"{name}/{WORK}/{FIRST_STEP}")
    root.remove(f"{name}/{WORK}")
