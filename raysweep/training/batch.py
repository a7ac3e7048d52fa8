"""Batches of examples, which are the inputs of losses."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from raysweep.config.loss_spec import TargetRule

Ids: TypeAlias = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Batch:
    """The embeddings of a batch of examples, and other data that losses may need.

    Attributes:
        columns: Tensors (batch, width) in fp32 with gradients, one for each sentence of an example.
        targets: The targets of the examples, (batch,), or None if they have no targets.
        ids: The sentence ids, (batch, columns).
        labels: The sentences' classes, (batch, columns).
        read_reference: Maps a column index to the column's unit embeddings under the reference encoder, (batch,
            width of the reference encoder), on the device of ``columns``.
        read_teacher: Maps sentence ids (batch,) to the teacher's class probabilities, (batch, classes), on the device
            of ``columns``; None without a teacher.
    """

    columns: list[Tensor]
    targets: Tensor | None
    ids: Ids
    labels: Tensor
    read_reference: Callable[[int], Tensor]
    read_teacher: Callable[[Ids], Tensor] | None = None

    @cached_property
    def reference(self) -> list[Tensor]:
        """The reference encoder's unit embeddings of each column, read on first use."""
        return [self.read_reference(column) for column in range(self.ids.shape[1])]

    @cached_property
    def teacher(self) -> Tensor:
        """The teacher's class probabilities for the first column, (batch, classes), read on first use."""
        assert self.read_teacher is not None
        return self.read_teacher(self.ids[:, 0])

    def truncated(self, width: int) -> "Batch":
        """Return the batch with its embeddings truncated to ``width`` and normalized."""
        columns = [nn.functional.normalize(column[:, :width], dim=-1) for column in self.columns]
        return replace(self, columns=columns)


def targets_of(batch: Batch, rule: TargetRule) -> Tensor | None:
    """Return a batch's targets under a :data:`raysweep.config.loss_spec.TargetRule`.

    Their shape is (batch,), or (batch, width of the reference encoder) for ``reference_embedding``. The result is None
    if the examples have no targets.
    """
    if rule == "reference_margin":
        anchor, positive, negative = batch.reference
        return cosines(anchor, positive) - cosines(anchor, negative)
    if rule == "reference_embedding":
        return batch.reference[0]
    return batch.targets


def cosines(first: Tensor, second: Tensor) -> Tensor:
    """Return the cosines (batch,) between corresponding rows of two tensors (batch, width)."""
    return nn.functional.cosine_similarity(first, second)
