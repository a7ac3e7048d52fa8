"""The encoders of a run, as recorded in its files."""

import json
from dataclasses import dataclass

from raysweep.config.sweep import EncoderConfig
from raysweep.errors import InputError
from raysweep.storage.folder import Folder


@dataclass(frozen=True)
class RunEncoders:
    """The encoders of a run, with their prompts and identities at the time of the run.

    ``data`` is the name of the artifact of the run's sentences, which hashes their sources; None if unknown.
    """

    model: EncoderConfig
    model_identity: str
    reference: EncoderConfig
    reference_identity: str
    data: str | None = None

    @property
    def prompt(self) -> str:
        """Return the text before every sentence that the tuned model embeds."""
        return self.model.prompt or ""

    @classmethod
    def of(cls, run: Folder) -> "RunEncoders":
        """Read the encoders from a run's folder.

        Raises:
            InputError: If they are missing or damaged.
        """
        try:
            prepared = json.loads(run.fetch("prepared.json").read_text(encoding="utf-8"))
            data = prepared.get("sentences")
            return cls(
                EncoderConfig(**prepared["model"]),
                prepared["model_identity"],
                EncoderConfig(**prepared["reference"]),
                prepared["reference_identity"],
                data if isinstance(data, str) else None,
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise InputError(f"{run.location}: its prepared.json is gone or damaged") from None
