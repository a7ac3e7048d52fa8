"""Why a front is better on dev than on test: it was selected there, and the two splits are not the same queries.

Selection is measured by nested resampling of dev: queries are dealt into folds, the front is selected on all folds but one,
and its members are scored on that one. The mean difference between the two is free of bias for a dev of nine tenths the
size (Stone, 1974). The bootstrap's optimism varies less, but sees only seven tenths of it where points are near ties.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.pareto import non_dominated
from raysweep.uncertainty import interval
from raysweep.uncertainty.interval import LEVEL, Interval
from raysweep.uncertainty.seeds import of_queries

FOLDS = 10
REPEATS = 5

Selection = Callable[[Float64Array], list[int]]
"""From P and S (points, 2) of all candidates to the rows of those that are selected."""


@dataclass(frozen=True)
class Drop:
    """By how much a mean score of selected points is less on test than on dev, and why.

    ``selection`` is what selecting on dev adds to a score there, ``shift`` the rest: what the same encoders score less on
    the queries of test than on new ones of dev's kind. ``reference`` is what the reference encoder scores less on test, an
    encoder that nobody selected; None where it is not stored.
    """

    total: float
    total_interval: Interval
    selection: float
    shift: float
    reference: Interval | None = None


def optimism(candidates: Float64Array, seed: int, select: Selection = non_dominated) -> Float64Array:
    """By how much selected points are better (2,) in P and S on the queries that they were selected on than on others.

    ``candidates`` (points, 2, queries) are all points that may be selected. Means over the selected ones, then over folds.
    """
    num_queries = candidates.shape[-1]
    if num_queries < 2:
        return np.zeros(2)
    folds = min(FOLDS, num_queries)
    rng = np.random.default_rng(seed)
    gains = []
    for _ in range(REPEATS):
        dealt = rng.permutation(num_queries) % folds
        gains += _gains_by_fold(candidates, dealt, folds, select)
    mean: Float64Array = np.mean(gains, axis=0)
    return mean


def _gains_by_fold(
    candidates: Float64Array, dealt: NDArray[np.int64], folds: int, select: Selection
) -> list[Float64Array]:
    inside, outside = _means_by_fold(candidates, dealt, folds)
    gains = []
    for fold in range(folds):
        selected = select(outside[fold])
        gain = outside[fold][selected] - inside[fold][selected]
        gains.append(gain.mean(axis=0))
    return gains


def _means_by_fold(candidates: Float64Array, dealt: NDArray[np.int64], folds: int) -> tuple[Float64Array, Float64Array]:
    """Means (folds, points, 2) over the queries in each fold, and over all others."""
    in_fold = dealt[:, None] == np.arange(folds)
    num_inside = in_fold.sum(axis=0)
    num_outside = len(dealt) - num_inside
    sums = candidates @ in_fold.astype(np.float64)
    totals = sums.sum(axis=-1, keepdims=True)
    inside = sums / num_inside
    outside = (totals - sums) / num_outside
    return np.moveaxis(inside, -1, 0), np.moveaxis(outside, -1, 0)


def split_drop(
    dev: Float64Array, test: Float64Array, selection: float, reference: Interval | None = None, level: float = LEVEL
) -> Drop:
    """The drop of selected points, whose scores are ``dev`` (queries,) and ``test`` (other queries,), means over the points.

    ``selection`` is their mean :func:`optimism` in this score.
    """
    difference = between_splits(dev, test, level)
    total = float(dev.mean() - test.mean())
    return Drop(total, difference, selection, total - selection, reference)


def between_splits(dev: Float64Array, test: Float64Array, level: float = LEVEL) -> Interval:
    """Welch's interval (1947) of the difference of two means over different queries."""
    estimate = float(dev.mean() - test.mean())
    variance = of_queries(dev[None]) + of_queries(test[None])
    return interval.around(estimate, variance.value, variance.degrees, level)
