"""Validation examples of a trial, mined from dev sentences, and the rule that stops trials without improvement."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from raysweep.config.loss_spec import ExampleKind, LossExamples
from raysweep.data import examples
from raysweep.data.prepared import Prepared
from raysweep.metrics.retrieval import top_k
from raysweep.training.batches import interleave_classes

MAX_ANCHORS = examples.CHUNK
NUM_NEIGHBORS = 4  # per anchor, in its own class and in others
MAX_EXAMPLES = 4096


@dataclass(frozen=True)
class ValidationExamples:
    """Examples over dev sentences.

    ``rows`` (n, columns), of the trial's kind of examples, and ``triplets`` (m, 3) are positions among dev's queries.
    ``targets`` (n,) are the training targets, or None for kinds without targets.
    """

    rows: npt.NDArray[np.integer]
    targets: npt.NDArray[np.generic] | None
    triplets: npt.NDArray[np.integer]

    @classmethod
    def of(
        cls, prepared: Prepared, kind: LossExamples, queries: npt.NDArray[np.integer], cosines: tuple[float, float]
    ) -> "ValidationExamples":
        """Return examples of at most ``MAX_ANCHORS`` anchors and their neighbors in dev under the reference encoder.

        ``cosines`` are the targets of scored pairs, for the same class and for different classes.
        """
        num_queries = len(queries)
        labels = np.asarray(prepared.sentences.labels[queries])
        vectors = np.asarray(prepared.reference_embeddings[queries])
        anchors = np.arange(min(num_queries, MAX_ANCHORS))
        neighbors = _neighbors(vectors, labels, anchors)
        triplets, _ = _draw("triplet", anchors, neighbors, cosines)
        if kind == "labeled_sentence":
            every_query = np.arange(num_queries)
            return cls(every_query[:, None], labels, triplets)
        rows, targets = _draw(kind, anchors, neighbors, cosines)
        return cls(rows, targets, triplets)

    def interleaved(self, per_class: int, labels: npt.NDArray[np.integer]) -> "ValidationExamples":
        """Return the examples in an order for losses over the classes of a batch; ``labels`` (queries,) are dev's."""
        order = interleave_classes(labels[self.rows[:, 0]], per_class, np.random.default_rng(0))
        targets = None if self.targets is None else self.targets[order]
        return ValidationExamples(self.rows[order], targets, self.triplets)


def _neighbors(
    vectors: npt.NDArray[np.float32], labels: npt.NDArray[np.integer], anchors: npt.NDArray[np.integer]
) -> npt.NDArray[np.int32]:
    """Return each anchor's nearest sentences in its own class and in others, (anchors, 2, k), -1 if too few."""
    cosines = vectors[anchors] @ vectors.T
    cosines[anchors, anchors] = -np.inf
    same_class = labels[anchors, None] == labels
    k = min(NUM_NEIGHBORS, len(vectors))
    sides = []
    for is_candidate in (same_class, ~same_class):
        candidate_cosines = np.where(is_candidate, cosines, -np.inf)
        nearest = top_k(candidate_cosines, k)
        nearest_cosines = np.take_along_axis(candidate_cosines, nearest, 1)
        exists = np.isfinite(nearest_cosines)
        sides.append(np.where(exists, nearest, -1))
    return np.stack(sides, axis=1).astype(np.int32)


def _draw(
    kind: ExampleKind,
    anchors: npt.NDArray[np.integer],
    neighbors: npt.NDArray[np.int32],
    cosines: tuple[float, float],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32] | None]:
    counts = examples.num_candidates(kind, neighbors)
    quotas = examples.allocate(counts, MAX_EXAMPLES, seed=0)
    chunk = examples.Chunk(0, anchors, neighbors, quotas)
    return examples.draw(kind, chunk, 0, cosines)


def triplet_errors(embeddings: npt.NDArray[np.float32], triplets: npt.NDArray[np.integer]) -> int:
    """Return how many triplets (m, 3), rows of unit embeddings, have a negative at least as near as the positive."""
    anchor, positive, negative = (embeddings[triplets[:, column]] for column in range(3))
    negative_cosine = (anchor * negative).sum(axis=1)
    positive_cosine = (anchor * positive).sum(axis=1)
    return int((negative_cosine >= positive_cosine).sum())


@dataclass
class IdleRule:
    """Stopping rule: ``rungs`` rungs without improvement (Vasilyev et al. 2024, appendix E).

    A rung improves if its validation loss and its number of errors are both below those of the last rung that improved,
    ``least_loss`` and ``least_errors``. ``idle`` counts the rungs since then. Checkpoints store the fields under these
    names.
    """

    rungs: int
    least_loss: float = float("inf")
    least_errors: int | None = None
    idle: int = 0

    def update(self, loss: float, errors: int) -> str | None:
        """Record a rung's loss and errors, and return the reason to stop, or None to continue."""
        has_fewer_errors = self.least_errors is None or errors < self.least_errors
        if loss < self.least_loss and has_fewer_errors:
            self.least_loss, self.least_errors, self.idle = loss, errors, 0
            return None
        self.idle += 1
        if self.idle < self.rungs:
            return None
        return (
            f"idle for {self.idle} rungs: validation loss {loss:.4g} and {errors} errors are not both below those of the "
            "last rung that improved"
        )
