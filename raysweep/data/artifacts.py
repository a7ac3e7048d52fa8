"""Immutable, content-addressed folders, and the set of them that one sweep reads.

The key of an artifact hashes everything its content depends on, so a second sweep over the same data, encoder and
mining parameters finds it and prepares nothing. A folder is written under a temporary name and renamed whole.
"""

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SCHEMA = 1


DONE = "artifact.json"


@dataclass(frozen=True)
class Store:
    """The folder that holds artifacts, one sub-folder a kind and key."""

    folder: Path
    session: str = field(default_factory=lambda: uuid.uuid4().hex[:8])  # marks this run's unfinished folders

    def path(self, kind: str, parameters: Mapping[str, Any]) -> Path:
        """Where the artifact of this kind and these parameters is or will be."""
        text = json.dumps({"schema": SCHEMA, "kind": kind, **parameters}, sort_keys=True)
        return self.folder / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"

    def has(self, path: Path) -> bool:
        return (path / DONE).is_file()

    def note_use(self, path: Path) -> None:
        """Let the artifact's manifest have the time of now, which says when it was last of use."""
        with contextlib.suppress(OSError):  # a folder that is read only
            os.utime(path / DONE)

    def build(self, path: Path, parameters: Mapping[str, Any], write: Callable[[Path], Mapping[str, Any]]) -> None:
        """Have ``write`` fill a temporary folder and rename it to ``path``; what it returns is kept in the manifest.

        When two writers race for one artifact the first to finish wins; both hold the same content.
        """
        temporary = path.with_name(f".{path.name}.{self.session}")
        temporary.mkdir(parents=True)
        try:
            summary = dict(write(temporary))
            manifest = {"schema": SCHEMA, "parameters": dict(parameters), "summary": summary}
            (temporary / DONE).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
            try:
                temporary.rename(path)
            except OSError:
                if not self.has(path):
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def sweep_up(self) -> None:
        """Remove what :meth:`build` left unfinished because its process was killed."""
        for path in self.folder.glob(f".*.{self.session}"):
            shutil.rmtree(path, ignore_errors=True)


def summary(path: Path) -> dict[str, Any]:
    """What the artifact's builder said of it."""
    manifest: dict[str, Any] = json.loads((path / DONE).read_text(encoding="utf-8"))
    found: dict[str, Any] = manifest["summary"]
    return found


def open_array(folder: Path, name: str) -> npt.NDArray[Any]:
    """A memory map of ``folder/name.npy``."""
    array: npt.NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r")
    return array
