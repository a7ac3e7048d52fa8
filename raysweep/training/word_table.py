"""The word embedding table in training: batches use few rows, and the gradient's memory is reused.

The table is half of a small encoder's parameters. With autograd, each lookup would create a gradient as large as the
table, and on a CPU allocating even one of them costs 3% of a step, more with faster matrix products. On a GPU, memory
is scarce and a new gradient is cheap, so the memory is not reused there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from raysweep.encoders import encoder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class WordTable:
    """The word embedding table of a model in training, if it is a plain table."""

    def __init__(self, model: "SentenceTransformer") -> None:
        self._pad_id = encoder.pad_id(model)
        self._table = encoder.word_table(model)
        self._gradient = None if self._table is None else _TableGradient(self._table.weight)

    @contextmanager
    def looked_up(self, token_ids: npt.NDArray[np.integer]) -> Iterator[None]:
        """Look up the distinct tokens once; within the context, the model reads rows of the result."""
        table = self._table
        if table is None or not table.weight.requires_grad:
            yield
            return
        device = table.weight.device
        padding = table.padding_idx
        always = [self._pad_id] if padding is None else [self._pad_id, padding]
        words = np.unique(np.append(token_ids, always)).astype(np.int64)
        word_ids = torch.from_numpy(words)
        rows: Tensor = _Rows.apply(table.weight, word_ids.to(device), self._gradient)  # type: ignore[no-untyped-call]
        row_of = torch.zeros(table.num_embeddings, dtype=torch.int64)
        row_of[word_ids] = torch.arange(len(words))
        row_of = row_of.to(device)
        # The padding row gets no gradient, as in the table itself.
        padding_row = None if padding is None else int(np.searchsorted(words, padding))

        def look_up(input_ids: Tensor) -> Tensor:
            return nn.functional.embedding(row_of[input_ids], rows, padding_row)

        table.forward = look_up  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            del table.forward


class _TableGradient:
    """The gradient of a table, mostly zeros: only the rows of the previous step are cleared."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight
        self._kept: Tensor | None = None
        self._added: list[Tensor] = []  # word ids of possibly nonzero rows

    def add(self, word_ids: Tensor, gradients: Tensor) -> None:
        """Add gradients (words, width) to rows with distinct ids."""
        if self._weight.grad is None:
            self._weight.grad = self._cleared()
        self._weight.grad.index_add_(0, word_ids, gradients)
        if self._kept is not None:
            self._added.append(word_ids)

    def _cleared(self) -> Tensor:
        if not self._weight.is_cpu:
            return torch.zeros_like(self._weight)
        if self._kept is None:
            self._kept = torch.zeros_like(self._weight)
        for word_ids in self._added:
            self._kept.index_fill_(0, word_ids, 0.0)
        self._added.clear()
        return self._kept


class _Rows(torch.autograd.Function):
    """Rows of a table by distinct ids. Their gradients are added to the table's in place."""

    @staticmethod
    def forward(context: Any, weight: Tensor, word_ids: Tensor, gradient: _TableGradient) -> Tensor:
        context.word_ids, context.gradient = word_ids, gradient
        return weight.index_select(0, word_ids)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[None, None, None]:
        context.gradient.add(context.word_ids, *gradients)
        return None, None, None
