"""The embedding step of training: each distinct sentence of a batch is embedded once, in packs of length buckets."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from raysweep.encoders import buckets, encoder, packed, precision
from raysweep.encoders.encoder import BatchContext, no_context
from raysweep.encoders.tokens import Tokens
from raysweep.training.dropout import RandomStreams
from raysweep.training.word_table import WordTable

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


Pack: TypeAlias = list[npt.NDArray[np.integer]]
"""Buckets of ids that go through the encoder in one pass; a single bucket if the encoder is not packable."""


class TrainedEncoder:
    """The encoder that a trial trains, with the tokens of all sentences. Each trial has its own."""

    def __init__(self, model: "SentenceTransformer", tokens: Tokens) -> None:
        self.model, self.tokens = model, tokens
        self._words = WordTable(model)
        self._is_packable = packed.is_packable(model)

    def packs(self, ids: npt.NDArray[np.integer]) -> list[Pack]:
        """Group distinct sentences of similar length into buckets, and buckets into packs."""
        lengths = self.tokens.lengths(ids)
        in_buckets = buckets.training_buckets(lengths, self.model.device.type, packed=self._is_packable)
        packs = buckets.packs(in_buckets, lengths) if self._is_packable else [[bucket] for bucket in in_buckets]
        return [[ids[bucket] for bucket in pack] for pack in packs]

    def looked_up(self, packs: Iterable[Pack]) -> AbstractContextManager[None]:
        """Look up the word embeddings of these sentences once and use them within the context."""
        ids = np.concatenate([bucket for pack in packs for bucket in pack])
        return self._words.looked_up(self.tokens.of_ids(ids))

    def forward(self, pack: Pack, batch_context: BatchContext) -> Tensor:
        """Return the embeddings of a pack's sentences, (sentences, width)."""
        if len(pack) == 1:
            return encoder.forward(self.model, self.tokens, pack[0], batch_context(pack[0]))
        return packed.forward(self.model, self.tokens, pack, batch_context(*pack))


def embed_columns(
    trained: TrainedEncoder,
    ids: npt.NDArray[np.integer],
    batch_context: BatchContext = no_context,
) -> list[Tensor]:
    """Embed a batch of examples with gradients and return one fp32 tensor (batch, width) per column of ``ids``.

    ``ids`` is (batch, columns). Each distinct sentence is embedded once; the columns select rows of the result.
    """
    batch = _Batch.of(trained, ids)
    with trained.looked_up(batch.packs):
        parts = [trained.forward(pack, batch_context) for pack in batch.packs]
    return batch.columns(torch.cat(parts).float())


@dataclass(frozen=True)
class _Batch:
    """The distinct sentences of a batch in packs, and their row in the concatenated packs for each example."""

    packs: list[Pack]
    rows: npt.NDArray[np.int64]  # (batch, columns)

    @classmethod
    def of(cls, trained: TrainedEncoder, ids: npt.NDArray[np.integer]) -> "_Batch":
        unique, inverse = np.unique(ids, return_inverse=True)
        packs = trained.packs(unique)
        in_order = np.concatenate([bucket for pack in packs for bucket in pack])
        row_of = np.argsort(in_order)  # indexed by sorted distinct sentence
        return cls(packs, row_of[inverse.reshape(ids.shape)])

    def columns(self, embeddings: Tensor) -> list[Tensor]:
        """Return one tensor (batch, width) per column, from embeddings in the order of the packs."""
        rows = torch.from_numpy(self.rows).to(embeddings.device)
        return [embeddings[column] for column in rows.T]


class RecomputedBatch:
    """A batch whose activations are recomputed in the backward pass, for devices with too little memory to keep them.

    ``columns`` are those of :func:`embed_columns`. After the loss has been backpropagated to them, :meth:`backward`
    recomputes the activations pack by pack, with the same dropout masks, and accumulates the encoder's gradients. Up to
    rounding they equal those of the full batch, for any loss of the columns (Gao et al. 2021, arXiv:2101.06983).
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
        self._batch = _Batch.of(trained, ids)
        self._positions = []  # of the random streams, before each pack
        parts = []
        with torch.no_grad():
            for pack in self._batch.packs:
                self._positions.append(streams.position())
                parts.append(self._forward(pack))
        self._embeddings = torch.cat(parts).float().requires_grad_()
        self.columns = self._batch.columns(self._embeddings)

    def backward(self) -> None:
        """Accumulate the encoder's gradients."""
        gradient = self._embeddings.grad
        assert gradient is not None, "the loss has to go backward first"
        behind = self._streams.position()
        sizes = [sum(map(len, pack)) for pack in self._batch.packs]
        for pack, position, part in zip(self._batch.packs, self._positions, gradient.split(sizes), strict=True):
            self._streams.go_to(position)
            self._forward(pack).float().backward(part)
        self._streams.go_to(behind)

    def _forward(self, pack: Pack) -> Tensor:
        device = self._trained.model.device.type
        with precision.autocast(self._arithmetic, device), self._trained.looked_up([pack]):
            return self._trained.forward(pack, self._context)
