"""Measures of pairwise cosines: how well they separate classes, and how much tuning changes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysweep.metrics.arrays import Float64Array

BINS = 200
"""Number of bins of a cosine histogram over [-1, 1]."""


@dataclass(frozen=True)
class MeasureSpec:
    """Display settings for a measure."""

    heading: str
    description: str
    scale: float
    digits: int

    def show(self, value: float) -> str:
        """Format a value for tables."""
        return f"{self.scale * value:.{self.digits}f}"


AVERAGE_PRECISION = "average_precision"
DIVERGENCE = "divergence"

MEASURES: Mapping[str, MeasureSpec] = MappingProxyType(
    {
        AVERAGE_PRECISION: MeasureSpec(
            "AP",
            "area under the precision-recall curve of pairs of neighbors, ranked by cosine, with same-class pairs as "
            "positives, x100",
            scale=100.0,
            digits=2,
        ),
        DIVERGENCE: MeasureSpec(
            "KL",
            "symmetric Kullback-Leibler divergence, in nats, between the cosines of random pairs before and after tuning",
            scale=1.0,
            digits=4,
        ),
    }
)
"""The measures of a rung other than the scores of its operating points."""


class PrecisionRecall(NamedTuple):
    """Precision and recall at each distinct cosine in descending order, each (m,)."""

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]

    def at_equal_steps(self, count: int) -> Float64Array:
        """Return the precisions (count,) where recall first reaches 1 / count, 2 / count, ..., 1."""
        recalls = np.arange(1, count + 1) / count
        # The tolerance allows for rounding errors when a recall equals a step.
        reached = np.searchsorted(self.recall, recalls - 1e-12)
        precisions: Float64Array = self.precision[reached]
        return precisions


def precision_recall(same_class: ArrayLike, cosines: ArrayLike) -> PrecisionRecall:
    """Return the precision-recall curve of pairs ranked by cosine, with same-class pairs as positives.

    ``same_class`` and ``cosines`` have shape (n,). Pairs with equal cosines form one step of the curve.
    """
    is_same = np.asarray(same_class, bool)
    descending, is_last = _order(cosines)
    num_same = np.cumsum(is_same[descending])[is_last]
    num_pairs = np.flatnonzero(is_last) + 1
    return PrecisionRecall(num_same / num_pairs, num_same / is_same.sum())


def _order(cosines: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the order (n,) by descending cosine, and a mask (n,) of the last pair of each tie in that order."""
    values = np.asarray(cosines)
    descending = np.argsort(-values, kind="stable")
    in_order = values[descending]
    is_last = np.append(in_order[1:] != in_order[:-1], True)
    return descending, is_last


def average_precision(same_class: ArrayLike, cosines: ArrayLike) -> float:
    """Return the average precision of pairs ranked by cosine, in [0, 1].

    The result equals scikit-learn's ``average_precision_score``. At least one same-class pair is required.
    """
    precision, recall = precision_recall(same_class, cosines)
    return float(np.diff(recall, prepend=0.0) @ precision)


def weighted_average_precision(
    same_class: ArrayLike, cosines: ArrayLike, weights: ArrayLike
) -> Float64Array:
    """Return :func:`average_precision` (m,) for each row of ``weights`` (m, n).

    A weight is the number of times a pair counts. The result is NaN if all same-class pairs have weight 0.
    """
    descending, is_last = _order(cosines)
    is_same = np.asarray(same_class, bool)[descending]
    counts = np.asarray(weights, np.float64)[:, descending]
    num_pairs = np.cumsum(counts, axis=1)[:, is_last]
    num_same = np.cumsum(counts * is_same, axis=1)[:, is_last]
    precision = num_same / np.maximum(num_pairs, 1)
    num_added = np.diff(num_same, axis=1, prepend=0.0)
    areas = (num_added * precision).sum(axis=1)
    totals = num_same[:, -1]
    result: Float64Array = np.divide(
        areas, totals, out=np.full_like(areas, np.nan), where=totals > 0
    )
    return result


def cosine_divergence(
    before: ArrayLike, after: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Return the symmetric Kullback-Leibler divergence between two distributions of cosines, in nats.

    The divergence is (KL(p, q) + KL(q, p)) / 2 for histograms p and q with ``BINS`` bins and one pseudocount per bin.
    ``weights`` (n,) is the number of times each pair counts.
    """
    shares = []
    for cosines in (before, after):
        # Rounding can push cosines slightly above 1.
        clipped = np.clip(cosines, -1, 1)
        counts, _ = np.histogram(clipped, BINS, (-1, 1), weights=weights)
        shares.append((counts + 1) / (counts.sum() + BINS))
    p, q = shares
    return float(((p - q) * np.log(p / q)).sum() / 2)
