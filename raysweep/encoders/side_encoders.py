"""The query and document encoders, which are usually one model."""

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
"""A function that returns the context in which a model has the weights of one side."""

own_weights: WeightContext = nullcontext


class SideEncoder(Protocol):
    """An encoder for one side's sentences, which are identified by their ids."""

    @property
    def width(self) -> int:
        """Return the dimension of the embeddings."""
        ...

    def embed(self, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        """Return the unit embeddings of sentences, (len(ids), width)."""
        ...


Encoders: TypeAlias = Sides[SideEncoder]
"""The encoders of queries and documents. Their embeddings are compared with each other, so they have the same width."""


@dataclass(frozen=True)
class TokenEncoder:
    """A model with its current weights, which embeds stored tokens in fp32, without gradients or dropout.

    Within ``weights()``, the model has the weights of this side.
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
    """Stored unit embeddings of all sentences, (sentences, width), which are never recomputed."""

    embeddings: Rows

    @property
    def width(self) -> int:
        return int(self.embeddings.shape[1])

    def embed(self, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        return np.asarray(self.embeddings[ids])
