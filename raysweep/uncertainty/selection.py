"""The drop in a front's scores from dev to test, split into the effects of selection on dev and of different queries.

The effect of selection is measured by cross-validation on dev: queries are split into folds, the front is selected on
all folds but one, and its members are scored on the held-out fold. The mean difference between the scores on the two
parts is an unbiased estimate for a dev set nine tenths the size (Stone, 1974). The bootstrap estimate of this effect
varies less but captures only seven tenths of it if points are nearly tied.
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
    """The selected points' decrease in mean score from dev to test, and its causes.

    ``selection`` is the part of the dev score that is due to selecting on dev. ``shift`` is the rest of
    the drop: how much lower the same encoders score on the test queries than on new queries like those in dev.
    ``reference`` is the decrease for the reference encoder, which was not selected; it is None if its scores are not
    stored.
    """

    total: float
    total_interval: Interval
    selection: float
    shift: float
    reference: Interval | None = None


def optimism(
    candidates: Float64Array, seed: int, select: Selection = non_dominated
) -> Float64Array:
    """Return the amount (2,) by which selected points' P and S on the selection queries exceed those on other queries.

    ``candidates`` (points, 2, queries) holds all points that may be selected. The excess is averaged over the selected
    points and then over folds.
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
    """Return the drop for selected points with mean scores ``dev`` (queries,) and ``test`` (other queries,).

    ``selection`` is the points' mean :func:`optimism` for this score.
    """
    total = float(dev.mean() - test.mean())
    return Drop(total, between_splits(dev, test), selection, total - selection, reference)


def between_splits(dev: Float64Array, test: Float64Array) -> Interval:
    """Return Welch's interval (1947) for the difference between two means over different queries."""
    estimate = float(dev.mean() - test.mean())
    variance = of_queries(dev[None]) + of_queries(test[None])
    return interval.around(estimate, variance.value, variance.degrees)
