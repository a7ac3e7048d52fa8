"""Decomposition of a front's drop in scores from dev to test.

The drop consists of the effect of selection on dev and the effect of different queries. The former is estimated by
cross-validation on dev: the front is selected on all folds but one, and its members are scored on the held-out fold.
The mean difference between the two scores is an unbiased estimate for a dev set that is 10% smaller (Stone, 1974). A
bootstrap estimate varies less but captures only 70% of the effect if points are nearly tied.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.pareto import non_dominated
from raysweep.uncertainty import interval
from raysweep.uncertainty.interval import Interval
from raysweep.uncertainty.seeds import of_queries

FOLDS = 10
REPEATS = 5

Selection = Callable[[Float64Array], list[int]]
"""Maps all candidates' P and S (points, 2) to the rows of those selected."""


@dataclass(frozen=True)
class Drop:
    """The decrease in the selected points' mean score from dev to test, and its causes.

    ``selection`` is the part caused by selection on dev. ``shift`` is the rest, caused by differences between dev and test
    queries. ``reference`` is the drop of the reference encoder, or None if its scores are not stored.
    """

    total: float
    total_interval: Interval
    selection: float
    shift: float
    reference: Interval | None = None


def optimism(
    candidates: Float64Array, seed: int, select: Selection = non_dominated
) -> Float64Array:
    """Return how much higher the selected points' P and S (2,) are on the queries used for selection than on others.

    ``candidates`` (points, 2, queries) holds the scores of all points that may be selected. The difference is averaged
    over the selected points and then over folds.
    """
    num_queries = candidates.shape[-1]
    if num_queries < 2:
        return np.zeros(2)
    folds = min(FOLDS, num_queries)
    rng = np.random.default_rng(seed)
    gains = []
    for _ in range(REPEATS):
        fold_of_query = rng.permutation(num_queries) % folds
        in_fold = fold_of_query[:, None] == np.arange(folds)
        num_inside = in_fold.sum(axis=0)
        num_outside = num_queries - num_inside
        sums = candidates @ in_fold.astype(np.float64)  # (points, 2, folds)
        totals = sums.sum(axis=-1, keepdims=True)
        means_inside = sums / num_inside
        means_outside = (totals - sums) / num_outside
        for fold in range(folds):
            inside = means_inside[..., fold]
            outside = means_outside[..., fold]
            selected = select(outside)
            gain = outside[selected] - inside[selected]
            gains.append(gain.mean(axis=0))
    mean: Float64Array = np.mean(gains, axis=0)
    return mean


def split_drop(
    dev: Float64Array, test: Float64Array, selection: float, reference: Interval | None = None
) -> Drop:
    """Return the drop in the selected points' mean scores from ``dev`` (dev queries,) to ``test`` (test queries,).

    ``selection`` is the points' mean :func:`optimism` for this score.
    """
    total = float(dev.mean() - test.mean())
    return Drop(total, between_splits(dev, test), selection, total - selection, reference)


def between_splits(dev: Float64Array, test: Float64Array) -> Interval:
    """Return Welch's interval (1947) for the difference in means between two sets of queries."""
    estimate = float(dev.mean() - test.mean())
    variance = of_queries(dev[None]) + of_queries(test[None])
    return interval.around(estimate, variance.value, variance.degrees)
