"""Immutable, content-addressed folders, and the set of them that one sweep reads.

The key of an artifact hashes everything its content depends on, so a second sweep over the same data, encoder and
mining parameters finds it and prepares nothing. A folder is written under a temporary name and renamed whole.
"""

import hashlib
import json
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from raysweep.dataset import Sentences
from raysweep.errors import InputError

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


@dataclass(frozen=True)
class Prepared:
    """Everything a sweep's trials read: paths of artifacts, opened as memory maps on first use."""

    model: dict[str, Any]  # the candidate encoder's EncoderConfig, as plain values
    model_identity: str
    sentences_folder: Path
    tokens_folder: Path  # the candidate encoder's tokens
    reference_folder: Path  # unit embeddings under the reference encoder
    examples_folders: dict[str, Path]  # by example kind
    reference: dict[str, Any]  # the reference encoder's EncoderConfig
    reference_identity: str

    def __getstate__(self) -> dict[str, Any]:
        """Paths only: what is open in this process is opened anew by the process that gets a copy."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        temporary = path.with_suffix(f".{uuid.uuid4().hex[:8]}.tmp")
        temporary.write_text(json.dumps(asdict(self), indent=1, default=str), encoding="utf-8")
        temporary.replace(path)

    @classmethod
    def open(cls, path: str | Path) -> "Prepared":
        """Read what ``raysweep prepare`` left: the file it names. InputError when it or an artifact is gone."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
            folders = {name: Path(folder) for name, folder in values.pop("examples_folders").items()}
            paths: dict[str, Any] = {
                name: Path(values.pop(name)) for name in ("sentences_folder", "tokens_folder", "reference_folder")
            }
            opened = cls(examples_folders=folders, **paths, **values)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{path}: not a file that raysweep prepare wrote") from None
        for folder in (*folders.values(), *paths.values()):
            if not (folder / DONE).is_file():
                raise InputError(f"{path}: the artifact {folder} is gone; prepare again")
        return opened

    @cached_property
    def sentences(self) -> Sentences:
        return Sentences(self.sentences_folder)

    @cached_property
    def reference_embeddings(self) -> npt.NDArray[np.float32]:
        """Unit embeddings of all sentences under the reference encoder, (sentences, width)."""
        return open_array(self.reference_folder, "embeddings")

    def examples(self, kind: str) -> tuple[npt.NDArray[np.integer], npt.NDArray[Any] | None]:
        """Sentence ids (examples, 1 to 3) of a kind, and targets (examples,) where the kind has them."""
        if kind == "labelled_sentence":
            train = self.sentences.ids("train")
            return train[:, None], np.asarray(self.sentences.labels[train])
        if kind not in self.examples_folders:
            raise InputError(f"no examples of kind {kind} were prepared; there are: {', '.join(self.examples_folders)}")
        folder = self.examples_folders[kind]
        targets = open_array(folder, "targets") if (folder / "targets.npy").is_file() else None
        return open_array(folder, "ids"), targets


def open_array(folder: Path, name: str) -> npt.NDArray[Any]:
    """A memory map of ``folder/name.npy``."""
    array: npt.NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r")
    return array
