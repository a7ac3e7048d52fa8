"""Measures of the cosines of pairs of sentences: how well they separate classes, and how far tuning moved them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

BINS = 200
"""Number of bins of a histogram of cosines, on [-1, 1]."""


class PrecisionRecall(NamedTuple):
    """Precision and recall, (m,) each, of the pairs at or above each distinct cosine, from the highest down."""

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]


def precision_recall(same_class: ArrayLike, cosines: ArrayLike) -> PrecisionRecall:
    """Return the precision-recall curve of pairs, in which pairs of the same class are to have the higher cosines.

    ``same_class`` (n,) and ``cosines`` (n,) describe the pairs. Pairs with equal cosines are one step of the curve.
    """
    is_same = np.asarray(same_class, bool)
    values = np.asarray(cosines)
    descending = np.argsort(-values, kind="stable")
    in_order = values[descending]
    is_last = np.append(in_order[1:] != in_order[:-1], True)
    num_same = np.cumsum(is_same[descending])[is_last]
    num_pairs = np.flatnonzero(is_last) + 1
    return PrecisionRecall(num_same / num_pairs, num_same / is_same.sum())


def average_precision(same_class: ArrayLike, cosines: ArrayLike) -> float:
    """Return the area under the precision-recall curve of pairs, in [0, 1], as steps without interpolation.

    It equals ``average_precision_score`` of scikit-learn. Pairs of the same class must exist.
    """
    precision, recall = precision_recall(same_class, cosines)
    return float(np.diff(recall, prepend=0.0) @ precision)


def cosine_divergence(before: ArrayLike, after: ArrayLike) -> float:
    """Return the symmetric Kullback-Leibler divergence of two distributions of cosines, in nats.

    It is (KL(p, q) + KL(q, p)) / 2 for histograms p and q of ``BINS`` bins with one pseudo-count each.
    """
    p, q = (_histogram(cosines) for cosines in (before, after))
    return float(((p - q) * np.log(p / q)).sum() / 2)


def _histogram(cosines: ArrayLike) -> NDArray[np.float64]:
    """Return the share of each bin, (BINS,). Cosines beyond 1 by rounding count for the last bin."""
    counts, _ = np.histogram(np.clip(cosines, -1, 1), BINS, (-1, 1))
    shares: NDArray[np.float64] = (counts + 1) / (counts.sum() + BINS)
    return shares
