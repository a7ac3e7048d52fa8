"""Validation examples of a trial, mined from dev sentences, and the rule that stops idle trials."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from raysweep.config.loss_spec import EXAMPLES, LossExamples
from raysweep.config.sides import Sides
from raysweep.data import dev_examples
from raysweep.data.prepared import Prepared
from raysweep.data.relation_examples import RelationExamples
from raysweep.data.relations import GroupedPairs
from raysweep.output import counted
from raysweep.training.batches import interleave_classes


@dataclass(frozen=True)
class ValidationExamples:
    """Validation examples built from dev sentences.

    ``rows`` (n, columns) holds examples of the kind that the trial's loss uses, and ``targets`` (n,) their targets, or
    None for kinds without targets. ``rows`` and ``triplets`` (m, 3) are indices into dev's queries; for retrieval data
    and pairs, document columns are indices into dev's documents.
    """

    rows: npt.NDArray[np.integer]
    targets: npt.NDArray[np.generic] | None
    triplets: npt.NDArray[np.integer]

    @classmethod
    def of(
        cls,
        prepared: Prepared,
        kind: LossExamples,
        queries: npt.NDArray[np.integer],
        cosines: tuple[float, float],
    ) -> "ValidationExamples":
        """Return examples built from dev sentences and their neighbors in dev under the reference encoder.

        ``cosines`` are the targets of scored pairs of the same class and of different classes.
        """
        labels = np.asarray(prepared.sentences.labels[queries])
        vectors = np.asarray(prepared.reference_embeddings.document[queries])
        neighbors = dev_examples.find_neighbors(vectors, labels)
        triplets, _ = dev_examples.draw("triplet", neighbors)
        if kind == "labeled_sentence":
            every_query = np.arange(len(queries))
            return cls(every_query[:, None], labels, triplets)
        rows, targets = dev_examples.draw(kind, neighbors, cosines)
        return cls(rows, targets, triplets)

    @classmethod
    def of_relations(
        cls, pairs: GroupedPairs, kind: LossExamples, cosines: tuple[float, float]
    ) -> "ValidationExamples":
        """Return examples built from dev's pairs, as indices into dev's queries and documents."""
        assert kind != "labeled_sentence"
        candidates = RelationExamples(pairs)
        triplets, _ = candidates.draw("triplet", dev_examples.MAX_EXAMPLES, seed=0)
        rows, targets = candidates.draw(kind, dev_examples.MAX_EXAMPLES, seed=0, cosines=cosines)
        return cls(rows, targets, triplets)

    def with_soft_targets(
        self, prepared: Prepared, rule: str, queries: npt.NDArray[np.integer]
    ) -> "ValidationExamples":
        """Return a copy with dev's expert-scored pairs and their soft targets; ``queries`` are dev's sentence ids."""
        pairs, targets = prepared.dev_pairs(rule)
        return replace(self, rows=np.searchsorted(queries, pairs), targets=targets)

    def interleaved(self, per_class: int, labels: npt.NDArray[np.integer]) -> "ValidationExamples":
        """Return the examples in the order of :func:`interleave_classes`; ``labels`` (queries,) belong to dev's queries."""
        order = interleave_classes(labels[self.rows[:, 0]], per_class, np.random.default_rng(0))
        targets = None if self.targets is None else self.targets[order]
        return ValidationExamples(self.rows[order], targets, self.triplets)


def triplet_errors(
    embeddings: Sides[npt.NDArray[np.float32]], triplets: npt.NDArray[np.integer]
) -> int:
    """Count the triplets whose negative is at least as close to the anchor as the positive.

    ``triplets`` (m, 3) holds row numbers of the unit ``embeddings``.
    """
    sides = EXAMPLES["triplet"].sides
    anchor, positive, negative = (
        embeddings.of(side)[rows] for side, rows in zip(sides, triplets.T, strict=True)
    )
    negative_cosine = (anchor * negative).sum(axis=1)
    positive_cosine = (anchor * positive).sum(axis=1)
    return int((negative_cosine >= positive_cosine).sum())


@dataclass
class IdleRule:
    """Stopping rule: stop after ``rungs`` rungs without improvement (Vasilyev et al. 2024, appendix E).

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
            f"idle for {counted(self.idle, 'rung')}: the validation loss ({loss:.4g}) and the number of "
            f"errors ({errors}) are not both below those of the last rung that improved"
        )
