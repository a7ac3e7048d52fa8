"""The embedding step of training: a batch's distinct sentences, once each, in buckets of like length."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from raysweep.encoders import buckets, encoder
from raysweep.encoders.encoder import BatchContext, no_context
from raysweep.encoders.tokens import Tokens

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
    unique, inverse = np.unique(ids, return_inverse=True)
    embeddings, row_of = _embed_in_buckets(model, tokens, unique, batch_context)
    columns = []
    for positions in inverse.reshape(ids.shape).T:
        rows = torch.from_numpy(row_of[positions])
        columns.append(embeddings[rows.to(embeddings.device)])
    return columns


def _embed_in_buckets(
    model: "SentenceTransformer", tokens: Tokens, ids: npt.NDArray[np.integer], batch_context: BatchContext
) -> tuple[Tensor, npt.NDArray[np.int64]]:
    """Embeddings of distinct sentences, fp32, in the order of their buckets, and the row of each of ``ids`` in them."""
    lengths = tokens.lengths(ids)
    in_buckets = buckets.training_buckets(lengths, model.device.type)
    parts = []
    with _gathered_words(model, tokens, ids):
        for bucket in in_buckets:
            bucket_ids = ids[bucket]
            context = batch_context(bucket_ids)
            embeddings = encoder.forward(model, tokens, bucket_ids, context)
            parts.append(embeddings)
    order = np.concatenate(in_buckets)
    row_of = np.empty(len(ids), np.int64)
    row_of[order] = np.arange(len(ids))
    return torch.cat(parts).float(), row_of


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
