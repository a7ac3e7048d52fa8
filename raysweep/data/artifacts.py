"""Immutable, content-addressed folders, in a folder or in an object store.

The key of an artifact hashes everything its content depends on, so a second sweep over the same data, encoder and mining
parameters finds it and prepares nothing. Its manifest is stored last: without it, it does not exist.
"""

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from raysweep.storage.cache import cached
from raysweep.storage.folder import BucketFolder, Folder, open_folder
from raysweep.storage.scratch import process_folder

SCHEMA = 1


DONE = "artifact.json"


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
        store = open_folder(self.location)
        text = store.fetch(f"{self.name}/{DONE}").read_text(encoding="utf-8")
        manifest: dict[str, Any] = json.loads(text)
        found: dict[str, Any] = manifest["summary"]
        return found

    @property
    def exists(self) -> bool:
        return open_folder(self.location).exists(f"{self.name}/{DONE}")


@dataclass(frozen=True)
class Store:
    """The place that holds artifacts, each under its kind and key."""

    location: str
    session: str = field(default_factory=lambda: uuid.uuid4().hex[:8])  # marks this run's unfinished folders

    @cached_property
    def root(self) -> Folder:
        return open_folder(self.location)

    def artifact(self, kind: str, parameters: Mapping[str, Any]) -> Artifact:
        """The artifact of this kind and these parameters, whether or not it is there."""
        text = json.dumps({"schema": SCHEMA, "kind": kind, **parameters}, sort_keys=True)
        return Artifact(self.location, f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:20]}")

    def note_use(self, artifact: Artifact) -> None:
        """Let the artifact's manifest have the time of now, which says when it was last of use."""
        manifest = f"{artifact.name}/{DONE}"
        with contextlib.suppress(OSError):  # a place that is read only
            if isinstance(self.root, BucketFolder):
                found = self.root.bucket.read_version(manifest)
                self.root.bucket.replace(manifest, found.content, found.tag)
            else:
                os.utime(self.root.path / manifest)

    def build(
        self, artifact: Artifact, parameters: Mapping[str, Any], write: Callable[[Path], Mapping[str, Any]]
    ) -> None:
        """Have ``write`` fill a temporary folder, and store that; what it returns is kept in the manifest.

        When two writers race for one artifact the first to finish wins; both hold the same content.
        """
        in_bucket = isinstance(self.root, BucketFolder)
        parent = process_folder() if in_bucket else self.root.path
        temporary = parent / f".{artifact.name}.{self.session}"
        temporary.mkdir(parents=True)
        try:
            summary = dict(write(temporary))
            manifest = {"schema": SCHEMA, "parameters": dict(parameters), "summary": summary}
            (temporary / DONE).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
            if in_bucket:
                self._upload(artifact, temporary)
            else:
                self._rename(artifact, temporary)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _rename(self, artifact: Artifact, temporary: Path) -> None:
        try:
            temporary.rename(self.root.path / artifact.name)
        except OSError:
            if not artifact.exists:
                raise

    def _upload(self, artifact: Artifact, temporary: Path) -> None:
        assert isinstance(self.root, BucketFolder)
        if artifact.exists:
            return
        target = self.root.within(artifact.name)
        copy = BucketFolder(target.bucket, temporary, target.prefix)
        for path in sorted(temporary.iterdir()):
            if path.name != DONE:
                copy.store(path.name)
        manifest = (temporary / DONE).read_bytes()
        with contextlib.suppress(FileExistsError):
            target.bucket.create(f"{target.prefix}/{DONE}", manifest)

    def remove(self, artifact: Artifact) -> None:
        """Remove an artifact that is not to be."""
        self.root.remove(f"{artifact.name}/{DONE}")
        self.root.remove(artifact.name)

    def sweep_up(self) -> None:
        """Remove what :meth:`build` left unfinished because its process was killed."""
        if not isinstance(self.root, BucketFolder):
            for path in self.root.path.glob(f".*.{self.session}"):
                shutil.rmtree(path, ignore_errors=True)


def open_array(folder: Path, name: str) -> npt.NDArray[Any]:
    """A memory map of ``folder/name.npy``."""
    array: npt.NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r")
    return array
