"""Retrieval measures, each of which returns one value per query."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from raysweep.metrics.arrays import Float64Array

VOTES_PER_BLOCK = 2**22  # elements of a (queries, k, k) block


@dataclass(frozen=True)
class Retrieved:
    """The sentences retrieved for each query, best first.

    Args:
        labels: Labels (queries, k) of the retrieved sentences.
        cosines: Cosines (queries, k) between each query and its retrieved sentences under the reference encoder.
        query_labels: Labels (queries,).
        pool_labels: Labels (pool,).
        weights: Rank weights (k,).
    """

    labels: npt.NDArray[np.integer]
    cosines: Float64Array
    query_labels: npt.NDArray[np.integer]
    pool_labels: npt.NDArray[np.integer]
    weights: Float64Array

    @property
    def has_query_label(self) -> npt.NDArray[np.bool_]:
        """Return a mask (queries, k) of the retrieved sentences that have the query's label."""
        mask: npt.NDArray[np.bool_] = self.labels == self.query_labels[:, None]
        return mask


Measure = Callable[[Retrieved], Float64Array]


def polarity(retrieved: Retrieved) -> Float64Array:
    """Return the weighted share of retrieved sentences that have the query's label, in [0, 1]."""
    shares: Float64Array = retrieved.has_query_label @ retrieved.weights
    return shares


def similarity(retrieved: Retrieved) -> Float64Array:
    """Return the weighted mean cosine between each query and its retrieved sentences."""
    means: Float64Array = retrieved.cosines @ retrieved.weights
    return means


def accuracy(retrieved: Retrieved) -> Float64Array:
    """Return 1 for each query whose label wins the :func:`vote`, else 0."""
    winners = vote(retrieved.labels, retrieved.weights)
    is_right: Float64Array = (winners == retrieved.query_labels).astype(np.float64)
    return is_right


def vote(
    labels: npt.NDArray[np.integer], weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.integer]:
    """Return the label (queries,) with the largest total weight in each row of ``labels`` (queries, k).

    Columns are ranks, and ``weights`` (k,) are their weights. Ties go to the label with the best rank. To make ties
    exact, weights are rounded to integer multiples of the smallest weight.
    """
    votes = np.rint(weights / weights.min())
    k = len(weights)
    winners = np.empty(len(labels), labels.dtype)
    num_rows = max(1, VOTES_PER_BLOCK // k**2)
    for start in range(0, len(labels), num_rows):
        rows = slice(start, start + num_rows)
        block = labels[rows]
        agrees = block[:, :, None] == block[:, None, :]
        votes_of_rank = agrees @ votes  # total votes for the label at each rank
        best_rank = votes_of_rank.argmax(axis=1)  # argmax breaks ties by rank
        best_label = np.take_along_axis(block, best_rank[:, None], axis=1)
        winners[rows] = best_label[:, 0]
    return winners
