"""The embedding step of training: a batch's distinct sentences, once each, in buckets of like length."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from raysweep.encoders import buckets, encoder
from raysweep.encoders.encoder import Replay, nothing_replayed
from raysweep.encoders.tokens import Tokens

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def embed_columns(
    model: "SentenceTransformer", tokens: Tokens, ids: npt.NDArray[np.integer], replay: Replay = nothing_replayed
) -> list[Tensor]:
    """Embeddings of a batch of examples: one fp32 tensor (batch, width) a column of ``ids`` (batch, columns).

    Each distinct sentence is embedded once, with gradients; columns are rows of the result. ``replay`` gives for each
    padded batch the context that its forward pass runs in.
    """
    unique, inverse = np.unique(ids, return_inverse=True)
    inverse = inverse.reshape(ids.shape)
    cut = buckets.training_buckets(tokens.lengths(unique), model.device.type)
    with _gathered_words(model, tokens, unique):
        rows = torch.cat(
            [encoder.forward(model, tokens, unique[bucket], replay(unique[bucket])) for bucket in cut]
        ).float()
    row_of = np.empty(len(unique), np.int64)
    row_of[np.concatenate(cut)] = np.arange(len(unique))
    return [rows[torch.from_numpy(row_of[inverse[:, column]]).to(rows.device)] for column in range(ids.shape[1])]


@contextmanager
def _gathered_words(model: "SentenceTransformer", tokens: Tokens, ids: npt.NDArray[np.integer]) -> Iterator[None]:
    """Look up the batch's distinct words once, and give the buckets rows of that.

    The gradient of an embedding table is as large as the table, and each look-up makes one: with a dozen buckets they
    cost a sixth of a step.
    """
    table = encoder.word_table(model)
    if table is None or not table.weight.requires_grad:
        yield
        return
    fixed = [encoder.pad_id(model), *([] if table.padding_idx is None else [table.padding_idx])]
    words = np.unique(np.append(tokens.of_ids(ids), fixed)).astype(np.int64)
    place = torch.zeros(table.num_embeddings, dtype=torch.int64)
    place[torch.from_numpy(words)] = torch.arange(len(words))
    place = place.to(table.weight.device)
    rows = table.weight.index_select(0, torch.from_numpy(words).to(table.weight.device))
    # The padding row takes no gradient, as in the table itself.
    padding = None if table.padding_idx is None else int(np.searchsorted(words, table.padding_idx))

    def look_up(input_ids: Tensor) -> Tensor:
        return nn.functional.embedding(place[input_ids], rows, padding)

    table.forward = look_up  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del table.forward
