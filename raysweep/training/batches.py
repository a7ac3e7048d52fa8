"""The embedding step of training: a batch's distinct sentences, once each, in buckets of like length."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from raysweep.encoders import buckets, encoder, precision
from raysweep.encoders.encoder import BatchContext, no_context
from raysweep.encoders.tokens import Tokens
from raysweep.training.dropout import RandomStreams

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def embed_columns(
    model: "SentenceTransformer",
    tokens: Tokens,
    ids: npt.NDArray[np.integer],
    batch_context: BatchContext = no_context,
) -> list[Tensor]:
    """Embeddings of a batch of examples: one fp32 tensor (batch, width) for each column of ``ids`` (batch, columns).

    Each distinct sentence is embedded once, with gradients; the columns are rows of the result.
    """
    batch = _Bucketed.of(tokens, ids, model.device.type)
    with _gathered_words(model, tokens, batch.sentences):
        parts = [encoder.forward(model, tokens, some, batch_context(some)) for some in batch.buckets]
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
        model: "SentenceTransformer",
        tokens: Tokens,
        ids: npt.NDArray[np.integer],
        streams: RandomStreams,
        arithmetic: str = "fp32",
        batch_context: BatchContext = no_context,
    ) -> None:
        self._model, self._tokens, self._streams = model, tokens, streams
        self._arithmetic, self._context = arithmetic, batch_context
        self._batch = _Bucketed.of(tokens, ids, model.device.type)
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
        device = self._model.device.type
        with precision.autocast(self._arithmetic, device), _gathered_words(self._model, self._tokens, ids):
            return encoder.forward(self._model, self._tokens, ids, self._context(ids))


@contextmanager
def _gathered_words(model: "SentenceTransformer", tokens: Tokens, ids: npt.NDArray[np.integer]) -> Iterator[None]:
    """Within, the embeddings of the batch's distinct words are looked up once, and buckets take rows of those.

    Each look-up in an embedding table makes a gradient as large as the table: with a dozen buckets these cost a sixth of
    a step.
    """
    table = encoder.word_table(model)
    if table is None or not table.weight.requires_grad:
        yield
        return
    device = table.weight.device
    padding = table.padding_idx
    always = [encoder.pad_id(model)]
    if padding is not None:
        always.append(padding)
    needed = np.append(tokens.of_ids(ids), always)
    words = np.unique(needed).astype(np.int64)
    word_ids = torch.from_numpy(words)
    rows = table.weight.index_select(0, word_ids.to(device))
    row_of = torch.zeros(table.num_embeddings, dtype=torch.int64)
    row_of[word_ids] = torch.arange(len(words))
    row_of = row_of.to(device)
    # The padding row takes no gradient, as in the table itself.
    padding_row = None if padding is None else int(np.searchsorted(words, padding))

    def look_up(input_ids: Tensor) -> Tensor:
        return nn.functional.embedding(row_of[input_ids], rows, padding_row)

    table.forward = look_up  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del table.forward
