"""The encoder's table of word embeddings in training: batches take few of its rows, and its gradient keeps its memory.

The table is half of a small encoder's parameters. Left to autograd, each look-up makes a gradient as large as the table,
and on a CPU the fresh memory of even one such gradient costs 3% of a step, and more where products are faster. On a GPU
memory is dear and a new gradient cheap, so there none is kept.
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
    """The table of a model that a trial trains, if the model has a plain one."""

    def __init__(self, model: "SentenceTransformer") -> None:
        self._pad_id = encoder.pad_id(model)
        self._table = encoder.word_table(model)
        self._gradient = None if self._table is None else _TableGradient(self._table.weight)

    @contextmanager
    def looked_up(self, token_ids: npt.NDArray[np.integer]) -> Iterator[None]:
        """Within, the distinct ones of these tokens have been looked up once, and the model takes rows of those."""
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
        # The padding row takes no gradient, as in the table itself.
        padding_row = None if padding is None else int(np.searchsorted(words, padding))

        def look_up(input_ids: Tensor) -> Tensor:
            return nn.functional.embedding(row_of[input_ids], rows, padding_row)

        table.forward = look_up  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            del table.forward


class _TableGradient:
    """The gradient of a table, most of whose rows are 0: those of the step before are cleared, and nothing else is."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight
        self._kept: Tensor | None = None
        self._added: list[Tensor] = []  # word ids, of rows that may not be 0

    def add(self, word_ids: Tensor, gradients: Tensor) -> None:
        """Add gradients (words, width) to those of some rows, all different."""
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
    """Rows of a table by their ids, all different. Their gradients are added to the table's in place."""

    @staticmethod
    def forward(context: Any, weight: Tensor, word_ids: Tensor, gradient: _TableGradient) -> Tensor:
        context.word_ids, context.gradient = word_ids, gradient
        return weight.index_select(0, word_ids)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[None, None, None]:
        context.gradient.add(context.word_ids, *gradients)
        return None, None, None
