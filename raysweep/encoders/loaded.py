"""A loaded encoder with its configuration, for callers that must not import torch or sentence-transformers."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.encoders import tokens as encoder_tokens
from raysweep.encoders.locate import locate_same
from raysweep.encoders.tokens import Tokens

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def import_libraries() -> None:
    """Import the libraries that :meth:`LoadedEncoder.load` needs, which takes seconds, ahead of its first call."""
    importlib.import_module("sentence_transformers")


@dataclass(frozen=True)
class LoadedEncoder:
    """An encoder in memory. ``prompt`` precedes every sentence; the precision is that of ``config``."""

    config: EncoderConfig
    model: "SentenceTransformer"
    prompt: str

    @classmethod
    def load(cls, config: EncoderConfig, identity: str, *, device: str = "cpu") -> "LoadedEncoder":
        """Load the encoder with this identity onto ``device``.

        Raises:
            InputError: If it is not on this machine or is not a text encoder.
        """
        source = locate_same(config, identity)
        model = encoder.load(config, device=device, source=source)
        encoder.check_no_adapter(model, config)
        return cls(config, model, source.prompt_of(config))

    @property
    def parameter_names(self) -> list[str]:
        return [name for name, _ in self.model.named_parameters()]

    @property
    def width(self) -> int | None:
        """Return the dimension of the embeddings."""
        return self.model.get_embedding_dimension()

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Return the token ids of the texts, each after the prompt."""
        return encoder_tokens.tokenize(self.model, texts, self.prompt)

    def embed(self, tokens: Tokens) -> npt.NDArray[np.float32]:
        """Return the unit embeddings of all sentences in ``tokens``, (sentences, width).

        Raises:
            InputError: If an embedding is not finite.
        """
        everything = np.arange(len(tokens))
        embeddings = encoder.embed(self.model, tokens, everything, arithmetic=self.config.precision)
        return encoder.finite(embeddings, self.config)
