"""Pair measures of an encoder on a split; see :mod:`raysweep.metrics.pairs`."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from raysweep.config.sides import Sides
from raysweep.data import dev_examples
from raysweep.data.neighbors import exact_cosines
from raysweep.data.prepared import Prepared
from raysweep.evaluation.evaluation_set import EvaluationSet, ScoredSet
from raysweep.metrics import pairs
from raysweep.metrics.arrays import Float32Array
from raysweep.results.types import Measure, ScoredSplit
from raysweep.uncertainty import pairs as intervals
from raysweep.uncertainty.interval import Interval

NUM_RANDOM = 20_000

CURVE_STEPS = 50
"""Number of recall levels at which precision is stored."""

_RANDOM_SEED = 0  # fixed so that divergences are comparable across runs


@dataclass(frozen=True)
class PairSet:
    """Sentence pairs of a split, as indices into its queries.

    Each row of ``neighbors`` (n, 2) contains a sentence and one of its nearest neighbors under the reference encoder.
    ``same_class`` (n,) is True for pairs with the same label.
    """

    split: ScoredSplit
    num_sentences: int
    neighbors: npt.NDArray[np.integer]
    same_class: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, prepared: Prepared, evaluation: EvaluationSet) -> "PairSet":
        """Sample a split's neighbor pairs. On dev, ``prepare`` stores expert scores for the same pairs."""
        labels = evaluation.query_labels
        vectors = np.asarray(prepared.reference_embeddings.document[evaluation.queries])
        neighbors, _ = dev_examples.draw(
            "scored_pair", dev_examples.find_neighbors(vectors, labels)
        )
        first, second = neighbors.T
        return cls(evaluation.split, len(labels), neighbors, labels[first] == labels[second])

    @cached_property
    def random(self) -> npt.NDArray[np.int64]:
        """Return random pairs of different sentences, (NUM_RANDOM, 2), sampled with a fixed seed."""
        rng = np.random.default_rng(_RANDOM_SEED)
        first = rng.integers(self.num_sentences, size=NUM_RANDOM)
        distance = rng.integers(1, self.num_sentences, size=NUM_RANDOM)
        return np.stack([first, (first + distance) % self.num_sentences], axis=1)

    def neighbor_cosines(self, embeddings: Sides[Float32Array]) -> Float32Array:
        """Return the cosines of the neighbor pairs, (n,)."""
        return _cosines(embeddings, self.neighbors)

    def random_cosines(self, embeddings: Sides[Float32Array]) -> Float32Array:
        """Return the cosines of the random pairs, (NUM_RANDOM,)."""
        return _cosines(embeddings, self.random)

    def measure(
        self,
        embeddings: Sides[Float32Array],
        before: Float32Array | None = None,
        *,
        with_intervals: bool,
    ) -> Iterator[Measure]:
        """Yield an encoder's measures.

        Args:
            embeddings: Unit embeddings of the sentences as queries and as documents, (queries, width) each.
            before: The cosines of the random pairs before tuning, or None to skip the divergence.
            with_intervals: Whether to compute confidence intervals.
        """
        if self.same_class.any():
            cosines = self.neighbor_cosines(embeddings)
            area = pairs.average_precision(self.same_class, cosines)
            interval = (
                intervals.of_average_precision(self.neighbors, self.same_class, cosines)
                if with_intervals
                else None
            )
            curve = pairs.precision_recall(self.same_class, cosines).at_equal_steps(CURVE_STEPS)
            rounded = tuple(curve.round(4).tolist())
            yield self._measure(pairs.AVERAGE_PRECISION, area, interval, rounded)
        if before is not None:
            after = self.random_cosines(embeddings)
            divergence = pairs.cosine_divergence(before, after)
            interval = (
                intervals.of_divergence(self.random, before, after) if with_intervals else None
            )
            yield self._measure(pairs.DIVERGENCE, divergence, interval)

    def _measure(
        self,
        name: str,
        value: float,
        interval: Interval | None,
        curve: tuple[float, ...] | None = None,
    ) -> Measure:
        low, high = (None, None) if interval is None else (interval.low, interval.high)
        return Measure(None, None, self.split, name, value, low, high, curve)


def _cosines(embeddings: Sides[Float32Array], positions: npt.NDArray[np.integer]) -> Float32Array:
    """Return the cosines (n,) of pairs (n, 2) of a query and a document."""
    first, second = positions.T
    cosines: Float32Array = exact_cosines(embeddings.query, first, embeddings.document, second)
    return cosines


def reference_measures(prepared: Prepared, evaluation: ScoredSet) -> tuple[Measure, ...]:
    """Return the reference encoder's measures on a split, or an empty tuple if no expert scores are stored."""
    if not (prepared.scores_artifacts and isinstance(evaluation, EvaluationSet)):
        return ()
    documents = np.asarray(prepared.reference_embeddings.document[evaluation.queries])
    embeddings = Sides(evaluation.reference_queries, documents)
    return tuple(
        PairSet.of(prepared, evaluation).measure(
            embeddings, with_intervals=evaluation.split == "test"
        )
    )
