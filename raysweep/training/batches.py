"""The embedding step of training: a batch's distinct sentences, once each, in buckets of like length."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from raysweep.encoders import buckets, encoder, precision
from raysweep.encoders.encoder import BatchContext, no_context
from raysweep.encoders.tokens import Tokens
from raysweep.training.dropout import RandomStreams
from raysweep.training.word_table import WordTable

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class TrainedEncoder:
    """An encoder that a trial trains, and the tokens of all sentences. A trial has one of its own."""

    def __init__(self, model: "SentenceTransformer", tokens: Tokens) -> None:
        self.model, self.tokens = model, tokens
        self._words = WordTable(model)

    def bucketed(self, ids: npt.NDArray[np.integer]) -> "_Bucketed":
        """A batch of examples (batch, columns) in buckets for the model's device."""
        return _Bucketed.of(self.tokens, ids, self.model.device.type)

    def looked_up(self, ids: npt.NDArray[np.integer]) -> AbstractContextManager[None]:
        """Within, the words of these sentences have been looked up."""
        return self._words.looked_up(self.tokens.of_ids(ids))

    def forward(self, ids: npt.NDArray[np.integer], batch_context: BatchContext) -> Tensor:
        """Embeddings of one bucket, (len(ids), width)."""
        return encoder.forward(self.model, self.tokens, ids, batch_context(ids))


def embed_columns(
    trained: TrainedEncoder,
    ids: npt.NDArray[np.integer],
    batch_context: BatchContext = no_context,
) -> list[Tensor]:
    """Embeddings of a batch of examples: one fp32 tensor (batch, width) for each column of ``ids`` (batch, columns).

    Each distinct sentence is embedded once, with gradients; the columns are rows of the result.
    """
    batch = trained.bucketed(ids)
    with trained.looked_up(batch.sentences):
        parts = [trained.forward(some, batch_context) for some in batch.buckets]
    return batch.columns(torch.cat(parts).float())


@dataclass(frozen=True)
class _Bucketed:
    """A batch's distinct sentences in buckets, and where its examples find them in the order of the buckets."""

    buckets: list[npt.NDArray[np.integer]]  # ids
    rows: npt.NDArray[np.int64]  # (batch, columns)

    @classmethod
    def of(cls, tokens: Tokens, ids: npt.NDArray[np.integer], device: str) -> "_Bucketed":
        unique, inverse = np.unique(ids, return_inverse=True)
        in_buckets = buckets.training_buckets(tokens.lengths(unique), device)
        order = np.concatenate(in_buckets)
        row_of = np.empty(len(unique), np.int64)
        row_of[order] = np.arange(len(unique))
        return cls([unique[bucket] for bucket in in_buckets], row_of[inverse.reshape(ids.shape)])

    @property
    def sentences(self) -> npt.NDArray[np.integer]:
        return np.concatenate(self.buckets)

    def columns(self, embeddings: Tensor) -> list[Tensor]:
        """The embeddings, which are in the order of the buckets, as one tensor (batch, width) for each column."""
        rows = torch.from_numpy(self.rows).to(embeddings.device)
        return [embeddings[column] for column in rows.T]


class RecomputedBatch:
    """A batch whose activations are not kept, for a device whose memory they do not fit into.

    ``columns`` are as :func:`embed_columns` has them. After a loss of them has gone backward, :meth:`backward` computes the
    activations again, one bucket at a time and under the same dropout masks, and adds the encoder's gradients. They are
    those of the whole batch, but for rounding, for any loss of the columns: Gao et al. 2021, arXiv:2101.06983.
    """

    def __init__(
        self,
        trained: TrainedEncoder,
        ids: npt.NDArray[np.integer],
        streams: RandomStreams,
        arithmetic: str = "fp32",
        batch_context: BatchContext = no_context,
    ) -> None:
        self._trained, self._streams = trained, streams
        self._arithmetic, self._context = arithmetic, batch_context
        self._batch = trained.bucketed(ids)
        self._positions = []  # of the random streams before each bucket
        parts = []
        with torch.no_grad():
            for some in self._batch.buckets:
                self._positions.append(streams.position())
                parts.append(self._forward(some))
        self._embeddings = torch.cat(parts).float().requires_grad_()
        self.columns = self._batch.columns(self._embeddings)

    def backward(self) -> None:
        """Add the encoder's gradients to those that are there."""
        gradient = self._embeddings.grad
        assert gradient is not None, "the loss has to go backward first"
        behind = self._streams.position()
        lengths = [len(some) for some in self._batch.buckets]
        for some, position, part in zip(self._batch.buckets, self._positions, gradient.split(lengths), strict=True):
            self._streams.go_to(position)
            self._forward(some).float().backward(part)
        self._streams.go_to(behind)

    def _forward(self, ids: npt.NDArray[np.integer]) -> Tensor:
        device = self._trained.model.device.type
        with precision.autocast(self._arithmetic, device), self._trained.looked_up(ids):
            return self._trained.forward(ids, self._context)
