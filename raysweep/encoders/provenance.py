"""Provenance of an exported model, stored as ``raysweep.json`` in its folder and not needed to load the model."""

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
    """An exported model's run, point on the front and base model, and the sources of its training sentences.

    ``subset`` is the configuration name of a Hub data set; ``text_column`` is the column with the sentences.
    """

    run: str
    point: str
    base_model: str
    tuned_on: tuple[str, ...]
    subset: str | None = None
    text_column: str = "text"
    version: str = __version__

    def write(self, folder: Path) -> None:
        """Write the file into a model's folder.

        Raises:
            OSError: If the file cannot be written.
        """
        (folder / FILE).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Provenance | None":
        """Return the provenance in a model's folder, or None if there is none.

        Raises:
            InputError: If the file is damaged.
        """
        path = folder / FILE
        if not path.is_file():
            return None
        with contextlib.suppress(OSError, ValidationError):
            provenance = TypeAdapter(cls).validate_json(path.read_bytes())
            if all(map(str.isprintable, provenance.tuned_on)):  # they may be printed to a terminal
                return provenance
        raise InputError(f"{path}: damaged; remove it and pass the data with --tuned-on")
