"""The encoders of a run, as its files name them."""

import json
from dataclasses import dataclass

from raysweep.config.sweep import EncoderConfig
from raysweep.errors import InputError
from raysweep.storage.folder import Folder


@dataclass(frozen=True)
class RunEncoders:
    """The encoders of a run with the prompts that they were used with, and the identities that they had then.

    ``data`` names the artifact of the run's sentences, whose name hashes what they were read from; None where it is not
    known.
    """

    model: EncoderConfig
    model_identity: str
    reference: EncoderConfig
    reference_identity: str
    data: str | None = None

    @property
    def prompt(self) -> str:
        """The text that goes before every sentence that the tuned model embeds."""
        return self.model.prompt or ""

    @classmethod
    def of(cls, run: Folder) -> "RunEncoders":
        """Read them from a run's folder. InputError when it does not hold them."""
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
