"""A loaded encoder under its configuration, for callers that must not name torch or sentence-transformers."""

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
    """Import what :meth:`LoadedEncoder.load` needs, which takes seconds, ahead of its first call in a process."""
    importlib.import_module("sentence_transformers")


@dataclass(frozen=True)
class LoadedEncoder:
    """An encoder in memory. ``prompt`` goes before every sentence; the precision is that of ``config``."""

    config: EncoderConfig
    model: "SentenceTransformer"
    prompt: str

    @classmethod
    def load(cls, config: EncoderConfig, identity: str, *, device: str = "cpu") -> "LoadedEncoder":
        """Load the encoder of this identity onto ``device``. InputError when it is not here or is no text encoder."""
        source = locate_same(config, identity)
        model = encoder.load(config, device=device, source=source)
        encoder.check_no_adapter(model, config)
        return cls(config, model, source.prompt_of(config))

    @property
    def parameter_names(self) -> list[str]:
        return [name for name, _ in self.model.named_parameters()]

    @property
    def width(self) -> int | None:
        """The dimension of its embeddings."""
        return self.model.get_embedding_dimension()

    def tokenise(self, texts: Sequence[str]) -> Tokens:
        """Token ids of the texts, each behind the prompt."""
        return encoder_tokens.tokenise(self.model, texts, self.prompt)

    def embed(self, tokens: Tokens) -> npt.NDArray[np.float32]:
        """Unit embeddings of all the sentences in ``tokens``, (sentences, width). InputError where they are not finite."""
        everything = np.arange(len(tokens))
        embeddings = encoder.embed(self.model, tokens, everything, arithmetic=self.config.precision)
        return encoder.finite(embeddings, self.config)
