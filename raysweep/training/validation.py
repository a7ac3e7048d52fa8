"""Validation examples of a trial, mined among dev sentences, and the rule that ends a trial that stands still."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from raysweep.config import losses
from raysweep.config.losses import LossExamples
from raysweep.data import examples
from raysweep.data.prepared import Prepared
from raysweep.metrics.retrieval import top_k

MAX_ANCHORS = examples.CHUNK


NUM_NEIGHBOURS = 4


NUM_EXAMPLES = 4096


@dataclass(frozen=True)
class ValidationExamples:
    """Examples over dev sentences. ``rows`` (n, columns) and ``triplets`` (m, 3) are positions among dev's queries.

    ``targets`` (n,) as in training, where the kind has any.
    """

    rows: npt.NDArray[np.integer]
    targets: npt.NDArray[np.generic] | None
    triplets: npt.NDArray[np.integer]

    @classmethod
    def of(
        cls, prepared: Prepared, kind: LossExamples, queries: npt.NDArray[np.integer], cosines: tuple[float, float]
    ) -> "ValidationExamples":
        """Of at most ``MAX_ANCHORS`` anchors and their neighbours in dev under the reference encoder."""
        labels = np.asarray(prepared.sentences.labels[queries])
        vectors = np.asarray(prepared.reference_embeddings[queries])
        anchors = np.arange(min(len(queries), MAX_ANCHORS))
        nearest = vectors[anchors] @ vectors.T
        nearest[anchors, anchors] = -np.inf
        same = labels[anchors, None] == labels
        k = min(NUM_NEIGHBOURS, len(queries))
        slots = []
        for inside in (same, ~same):
            masked = np.where(inside, nearest, -np.inf)
            found = top_k(masked, k)
            slots.append(np.where(np.isfinite(np.take_along_axis(masked, found, 1)), found, -1))
        neighbours = np.stack(slots, axis=1).astype(np.int32)
        triplets = _draw("triplet", anchors, neighbours, cosines)[0]
        if kind == "labelled_sentence":
            return cls(np.arange(len(queries))[:, None], labels, triplets)
        return cls(*_draw(kind, anchors, neighbours, cosines), triplets)


def _draw(
    kind: losses.ExampleKind,
    anchors: npt.NDArray[np.integer],
    neighbours: npt.NDArray[np.int32],
    cosines: tuple[float, float],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32] | None]:
    counts = examples.num_candidates(kind, neighbours)
    return examples.draw(kind, anchors, neighbours, examples.allocate(counts, NUM_EXAMPLES, 0), 0, 0, cosines)


def triplet_errors(embeddings: npt.NDArray[np.float32], triplets: npt.NDArray[np.integer]) -> int:
    """How many of the triplets (m, 3), rows of unit embeddings, have a negative at least as near as the positive."""
    anchor, positive, negative = (embeddings[triplets[:, column]] for column in range(3))
    return int(((anchor * negative).sum(axis=1) >= (anchor * positive).sum(axis=1)).sum())


@dataclass
class IdleRule:
    """Stops after ``rungs`` rungs in which neither the validation loss nor the count of errors fell below its least."""

    rungs: int
    least_loss: float = float("inf")
    least_errors: int | None = None
    idle: int = 0

    def update(self, loss: float, errors: int) -> str | None:
        """Take one rung's loss and errors; the reason to stop, or None to go on."""
        better = loss < self.least_loss or self.least_errors is None or errors < self.least_errors
        self.least_loss = min(self.least_loss, loss)
        self.least_errors = errors if self.least_errors is None else min(self.least_errors, errors)
        self.idle = 0 if better else self.idle + 1
        if self.idle < self.rungs:
            return None
        return f"idle for {self.idle} rungs: validation loss {loss:.4g} and {errors} errors improved on neither least"
