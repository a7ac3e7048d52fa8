"""Embeddings of the sentences of all tasks under one frozen encoder."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.encoders.locate import locate
from raysweep.evaluation.tasks.scores import Values
from raysweep.metrics.arrays import Float32Array
from raysweep.terminal import Display


@dataclass(frozen=True)
class Embedded:
    """Embeddings of distinct sentences, (sentences, width), equal to those of the model's ``encode``.

    ``rows`` maps sentences to rows. ``by_inner_product`` is True if the model compares sentences by inner product
    instead of cosine.
    """

    embeddings: Float32Array
    rows: dict[str, int]
    by_inner_product: bool

    @classmethod
    def of(cls, config: EncoderConfig, sentences: Iterable[str], display: Display) -> "Embedded":
        """Load an encoder and embed each sentence once, after the configured prompt or else the model's default.

        Raises:
            InputError: If the encoder cannot be loaded, or an embedding is not finite.
        """
        rows: dict[str, int] = {}
        for sentence in sentences:
            rows.setdefault(sentence, len(rows))
        with display.stage(f"transfer: {config.name}") as advance:
            source = locate(config)
            model = encoder.load(config, device=encoder.best_device(), source=source)
            embeddings = encoder.embed_texts(
                model,
                list(rows),
                source.prompt_of(config),
                arithmetic=config.precision,
                unit=False,
                advance=advance,
            )
        return cls(encoder.finite(embeddings, config), rows, model.similarity_fn_name == "dot")

    def of_sentences(self, sentences: Sequence[str]) -> Float32Array:
        """Return the embeddings of these sentences, (len(sentences), width)."""
        return self.embeddings[[self.rows[sentence] for sentence in sentences]]

    def similarities(self, first: Sequence[str], second: Sequence[str]) -> Values:
        """Return the cosines, or inner products, of pairs of first and second sentences, float64 (pairs,)."""
        left, right = (self.of_sentences(each).astype(np.float64) for each in (first, second))
        products: Values = np.einsum("ij,ij->i", left, right)
        if self.by_inner_product:
            return products
        lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        cosines: Values = products / np.maximum(lengths, np.finfo(np.float64).tiny)
        return cosines
