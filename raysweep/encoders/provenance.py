"""Provenance of exported models, stored in their folders as ``raysweep.json``."""

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from raysweep.errors import InputError
from raysweep.version import __version__

FILE = "raysweep.json"


@dataclass(frozen=True)
class Provenance:
    """The run, point, base model and training data of an exported model.

    ``tuned_on`` contains the sources of the training sentences. ``subset`` is the configuration name of a Hub data set,
    and ``text_column`` is the column with the sentences.
    """

    run: str
    point: str
    base_model: str
    tuned_on: tuple[str, ...]
    subset: str | None = None
    text_column: str = "text"
    version: str = __version__

    def write(self, folder: Path) -> None:
        """Write the provenance to a model's folder.

        Raises:
            OSError: If the file cannot be written.
        """
        (folder / FILE).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Provenance | None":
        """Read the provenance from a model's folder, or return None if the file is missing.

        Raises:
            InputError: If the file is damaged.
        """
        path = folder / FILE
        if not path.is_file():
            return None
        with contextlib.suppress(OSError, ValidationError):
            provenance = TypeAdapter(cls).validate_json(path.read_bytes())
            if all(map(str.isprintable, provenance.tuned_on)):  # may be printed to a terminal
                return provenance
        raise InputError(f"{path}: damaged; remove it and pass the data with --tuned-on")
