"""A loaded encoder with its configuration.

Importing this module does not import torch or sentence-transformers.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from raysweep.config.sides import Side
from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.encoders import tokens as encoder_tokens
from raysweep.encoders.locate import ModelSource, locate, locate_same
from raysweep.encoders.tokens import Tokens
from raysweep.encoders.traits import EncoderTraits, Role, check_files, notes
from raysweep.terminal import Advance, Display

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TEXTS_PER_CALL = 1024  # texts per ``encode`` call, after which progress is reported


def import_libraries() -> None:
    """Import sentence-transformers ahead of time, because the import takes several seconds."""
    importlib.import_module("sentence_transformers")


def locate_evaluated(config: EncoderConfig, display: Display) -> ModelSource:
    """Find an encoder to evaluate and print warnings about it, without loading the encoder.

    Raises:
        InputError: If the encoder cannot be found or does not return one vector per sentence.
    """
    source = locate(config)
    check_files(config, "evaluated", source)
    for note in notes(config, "evaluated", source):
        display.warn(note)
    return source


def no_progress(done: int, total: int, unit: str) -> None:
    """Ignore a progress update."""


@dataclass(frozen=True)
class LoadedEncoder:
    """A loaded encoder, which embeds texts in the precision set in ``config``."""

    config: EncoderConfig
    source: ModelSource
    model: "SentenceTransformer"
    traits: EncoderTraits

    @classmethod
    def load(
        cls,
        config: EncoderConfig,
        role: Role = "evaluated",
        *,
        identity: str | None = None,
        artifacts: str | None = None,
        device: str = "cpu",
    ) -> "LoadedEncoder":
        """Load the encoder onto ``device``.

        If ``identity`` is given, the encoder must match it and may be loaded from a copy in ``artifacts``.

        Raises:
            InputError: If the encoder cannot be found, is not a text encoder, or cannot be used in this role.
        """
        source = locate(config) if identity is None else locate_same(config, identity, artifacts)
        model = encoder.load(config, role=role, device=device, source=source)
        return cls(config, source, model, EncoderTraits.of(model))

    @property
    def parameter_names(self) -> list[str]:
        return [name for name, _ in self.model.named_parameters()]

    @property
    def width(self) -> int | None:
        """Return the dimension of the embeddings."""
        return self.model.get_embedding_dimension()

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Return the token ids of the texts, each prefixed with the document prompt."""
        return encoder_tokens.tokenize(self.model, texts, self.source.prompt_of(self.config))

    def count_truncated(self, texts: Sequence[str], tokens: Tokens) -> int:
        """Return how many texts exceed the model's token limit; ``tokens`` is the result of :meth:`tokenize`."""
        limit = self.model.max_seq_length
        lengths = tokens.lengths(np.arange(len(tokens)))
        if limit is None or lengths.max(initial=0) < limit:
            return 0
        texts_at_limit = [texts[row] for row in np.flatnonzero(lengths >= limit).tolist()]
        try:
            self.model.max_seq_length = limit + 1
            longer = self.tokenize(texts_at_limit)
        finally:
            self.model.max_seq_length = limit
        is_truncated = longer.lengths(np.arange(len(longer))) > limit
        return int(is_truncated.sum())

    @property
    def is_symmetric(self) -> bool:
        """Return whether queries and documents are embedded the same way."""
        return not self.traits.has_router and self.source.prompts_of(self.config).is_shared

    def embed(self, tokens: Tokens) -> npt.NDArray[np.float32]:
        """Return the unit embeddings of all sentences in ``tokens``, (sentences, width).

        Raises:
            InputError: If an embedding is not finite.
        """
        everything = np.arange(len(tokens))
        embeddings = encoder.embed(self.model, tokens, everything, arithmetic=self.config.precision)
        return encoder.finite(embeddings, self.config)

    def embed_texts(
        self,
        texts: Sequence[str],
        *,
        side: Side = "document",
        unit: bool = True,
        advance: Advance = no_progress,
    ) -> npt.NDArray[np.float32]:
        """Return fp32 embeddings (len(texts), width) of texts, each prefixed with the prompt for ``side``.

        The embeddings are normalized unless ``unit`` is False.

        Raises:
            InputError: If an embedding is not finite.
        """
        arithmetic = self.config.precision
        prompt = self.source.prompt_of(self.config, side)
        if self.traits.embeds_tokens:
            embeddings = encoder.embed_texts(
                self.model, texts, prompt, arithmetic=arithmetic, unit=unit, advance=advance
            )
        else:
            embeddings = self._encode(texts, prompt, side, unit=unit, advance=advance)
        return encoder.finite(embeddings, self.config)

    def embed_retrieval(
        self,
        queries: Sequence[str],
        pool: Sequence[str],
        *,
        unit: bool = True,
        advance: Advance = no_progress,
    ) -> npt.NDArray[np.float32]:
        """Return the query embeddings followed by the pool embeddings; see :meth:`embed_texts`."""
        if self.is_symmetric:
            return self.embed_texts([*queries, *pool], unit=unit, advance=advance)
        total = len(queries) + len(pool)

        def advance_pool(done: int, _: int, unit_of_progress: str) -> None:
            advance(len(queries) + done, total, unit_of_progress)

        embeddings_of_queries = self.embed_texts(queries, side="query", unit=unit)
        embeddings_of_pool = self.embed_texts(
            pool, side="document", unit=unit, advance=advance_pool
        )
        return np.concatenate([embeddings_of_queries, embeddings_of_pool])

    def _encode(
        self, texts: Sequence[str], prompt: str, side: Side, *, unit: bool, advance: Advance
    ) -> npt.NDArray[np.float32]:
        """Embed texts with the model's own ``encode``."""
        import torch

        from raysweep.encoders import precision

        model: Any = self.model
        route = {"task": side} if self.traits.has_router else {}
        embeddings = np.empty((len(texts), encoder.embedding_width(self.model)), np.float32)
        for start in range(0, len(texts), TEXTS_PER_CALL):
            batch = list(texts[start : start + TEXTS_PER_CALL])
            end = start + len(batch)
            with precision.autocast(self.config.precision, self.model.device.type):
                rows = model.encode(
                    batch, prompt=prompt, convert_to_tensor=True, show_progress_bar=False, **route
                ).float()
            if unit:
                rows = torch.nn.functional.normalize(rows, dim=-1)
            embeddings[start:end] = rows.cpu().numpy()
            advance(end, len(texts), "sentences")
        return embeddings
