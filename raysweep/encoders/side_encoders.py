"""Encoders for queries and documents, which usually share one model."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from raysweep.config.sides import Sides
from raysweep.data.shards import Rows
from raysweep.encoders.encoder import BatchContext, embed, embedding_width, no_context
from raysweep.encoders.tokens import Tokens

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


WeightContext: TypeAlias = Callable[[], AbstractContextManager[None]]
"""A function that returns a context in which the model uses the weights of one side."""

own_weights: WeightContext = nullcontext


class SideEncoder(Protocol):
    """An encoder for the sentences of one side, which are passed as ids."""

    @property
    def width(self) -> int:
        """Return the dimension of the embeddings."""
        ...

    def embed(self, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        """Return the unit embeddings of sentences, (len(ids), width)."""
        ...


Encoders: TypeAlias = Sides[SideEncoder]
"""The query and document encoders, whose embeddings have the same width."""


@dataclass(frozen=True)
class TokenEncoder:
    """An encoder that embeds stored tokens in fp32 with the model's current weights.

    Within ``weights()``, the model uses the weights of this side.
    """

    model: "SentenceTransformer"
    tokens: Tokens
    batch_context: BatchContext = no_context
    weights: WeightContext = own_weights

    @property
    def width(self) -> int:
        return embedding_width(self.model)

    def embed(self, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        with self.weights():
            return embed(self.model, self.tokens, ids, batch_context=self.batch_context)


@dataclass(frozen=True)
class StoredEncoder:
    """An encoder that looks up stored unit embeddings, (sentences, width)."""

    embeddings: Rows

    @property
    def width(self) -> int:
        return int(self.embeddings.shape[1])

    def embed(self, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        return np.asarray(self.embeddings[ids])
