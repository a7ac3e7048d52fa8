"""The set of artifacts that one sweep reads."""

import json
import uuid
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from raysweep.data.artifacts import DONE, open_array
from raysweep.data.dataset import Sentences
from raysweep.errors import InputError


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
        opened = cls.read(path)
        folders = (
            *opened.examples_folders.values(),
            opened.sentences_folder,
            opened.tokens_folder,
            opened.reference_folder,
        )
        for folder in folders:
            if not (folder / DONE).is_file():
                raise InputError(f"{path}: the artifact {folder} is gone; prepare again")
        return opened

    @classmethod
    def read(cls, path: str | Path) -> "Prepared":
        """The same, whether or not the artifacts are still there."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
            for name in ("sentences_folder", "tokens_folder", "reference_folder"):
                values[name] = Path(values[name])
            examples_folders = values["examples_folders"].items()
            values["examples_folders"] = {kind: Path(folder) for kind, folder in examples_folders}
            return cls(**values)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{path}: not a file that raysweep prepare wrote") from None

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
            labels = self.sentences.labels[train]
            ids = train[:, None]
            return ids, np.asarray(labels)
        if kind not in self.examples_folders:
            prepared = ", ".join(self.examples_folders)
            raise InputError(f"no examples of kind {kind} were prepared; there are: {prepared}")
        folder = self.examples_folders[kind]
        ids = open_array(folder, "ids")
        if not (folder / "targets.npy").is_file():
            return ids, None
        targets = open_array(folder, "targets")
        return ids, targets
