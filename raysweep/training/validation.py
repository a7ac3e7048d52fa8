"""Validation examples mined from dev sentences, and the early-stopping rule that uses them."""

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

    ``rows`` and ``triplets`` contain indices into dev's queries. For retrieval data and pairs, the document columns
    contain indices into dev's documents instead.

    Attributes:
        rows: Examples for the trial's loss, (n, columns).
        targets: Targets of the examples, (n,), or None for kinds without targets.
        triplets: Triplets for :func:`triplet_errors`, (m, 3).
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
        """Build examples from dev sentences and their nearest neighbors under the reference encoder.

        ``cosines`` are the target cosines for pairs from the same class and from different classes.
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
        """Build examples from dev's pairs."""
        assert kind != "labeled_sentence"
        candidates = RelationExamples(pairs)
        triplets, _ = candidates.draw("triplet", dev_examples.MAX_EXAMPLES, seed=0)
        rows, targets = candidates.draw(kind, dev_examples.MAX_EXAMPLES, seed=0, cosines=cosines)
        return cls(rows, targets, triplets)

    def with_soft_targets(
        self, prepared: Prepared, rule: str, queries: npt.NDArray[np.integer]
    ) -> "ValidationExamples":
        """Return a copy whose examples are dev's expert-scored pairs with soft targets.

        ``queries`` contains the sentence ids of dev's queries.
        """
        pairs, targets = prepared.dev_pairs(rule)
        return replace(self, rows=np.searchsorted(queries, pairs), targets=targets)

    def interleaved(self, per_class: int, labels: npt.NDArray[np.integer]) -> "ValidationExamples":
        """Return the examples in the order of :func:`interleave_classes`.

        ``labels`` (queries,) contains the labels of dev's queries.
        """
        order = interleave_classes(labels[self.rows[:, 0]], per_class, np.random.default_rng(0))
        targets = None if self.targets is None else self.targets[order]
        return ValidationExamples(self.rows[order], targets, self.triplets)


def triplet_errors(
    embeddings: Sides[npt.NDArray[np.float32]], triplets: npt.NDArray[np.integer]
) -> int:
    """Count the triplets whose negative is at least as close to the anchor as the positive.

    ``triplets`` (m, 3) contains indices into the unit ``embeddings``.
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
    """Stop a trial after ``rungs`` rungs without improvement (Vasilyev et al. 2024, appendix E).

    A rung is an improvement if its validation loss is below ``least_loss`` and its number of errors is below
    ``least_errors``. These are the values of the last improvement, and ``idle`` counts the rungs since then. The field
    names are part of the checkpoint format.
    """

    rungs: int
    least_loss: float = float("inf")
    least_errors: int | None = None
    idle: int = 0

    def update(self, loss: float, errors: int) -> str | None:
        """Record a rung's loss and errors. Return the reason to stop, or None to continue."""
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
