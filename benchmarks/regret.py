"""How fast searches come to a table's front: the regret curve of one search, and statistics over seeds and tables.

Regret is the share of the table's hypervolume that is still missing, 1 before the first rung has ended. The area under its
curve over the spent budget, of everything that recording the table cost, is the mean regret: 0 at best, 1 at worst, and a
search that ends early keeps what it has reached.

Intervals are of the percentile bootstrap (Efron, 1979). Seeds are drawn anew, with replacement, within each row of each
table; for a geometric mean over tables the tables are too, each with seeds of its own. The best peer of a table is the one
of the least mean over all its seeds, also in resamples. Of many peers that are equally good the one that was luckiest is
taken for the best, which counts against the row that is compared; to find it anew in each resample would do so twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.replay.recordings import RecordedSweep
from raysweep.replay.simulator import Step

SHARES = (0.9, 0.95, 0.99)  # of the table's hypervolume
NUM_RESAMPLES = 2000
LEVEL = 0.95

Interval = tuple[float, float]
Areas = Mapping[str, Sequence[float]]  # under the regret curve, by row: one for each seed


@dataclass(frozen=True)
class Curve:
    """What one search of a table came to. ``budgets`` were spent when SHARES were reached, infinity if they never were."""

    area: float
    budgets: tuple[float, ...]


def curve(table: RecordedSweep, steps: Iterable[Step]) -> Curve:
    area, regret, spent = 0.0, 1.0, 0
    budgets = [float("inf")] * len(SHARES)
    for step in steps:
        area += regret * (step.budget - spent)
        spent, regret = step.budget, 1 - step.area / table.area
        for index, share in enumerate(SHARES):
            if step.area >= share * table.area:
                budgets[index] = min(budgets[index], step.budget)
    area += regret * (table.total_budget - spent)
    return Curve(area / table.total_budget, tuple(budgets))


def mean_interval(values: Sequence[float], seed: int) -> Interval:
    """Of the mean over seeds."""
    return _interval(_resampled_means(values, NUM_RESAMPLES, np.random.default_rng(seed)))


def median_interval(values: Sequence[float], seed: int) -> Interval:
    """Of the median over seeds, the lower one of two; either end may be infinite."""
    chosen = _resamples(values, NUM_RESAMPLES, np.random.default_rng(seed))
    medians = np.sort(chosen, axis=1)[:, (len(values) - 1) // 2]
    return _interval(medians)


def median(values: Sequence[float]) -> float:
    """The lower one of two, so that it is among the values where one is infinite."""
    return sorted(values)[(len(values) - 1) // 2]


@dataclass(frozen=True)
class Ratio:
    """A row's area over the least of several others', and its interval."""

    value: float
    interval: Interval


def ratio(areas: Areas, row: str, others: Sequence[str], seed: int) -> Ratio:
    """On one table: the row's mean area over that of the best of the others."""
    return geometric_mean_ratio([areas], row, others, seed)


def geometric_mean_ratio(tables: Sequence[Areas], row: str, others: Sequence[str], seed: int) -> Ratio:
    """The geometric mean over tables of :func:`ratio`. Of the others each table has those that it has areas of."""
    value = float(np.exp(np.mean([_log_ratio(areas, row, others) for areas in tables])))
    random = np.random.default_rng(seed)
    count = len(tables)
    chosen = random.integers(count, size=(NUM_RESAMPLES, count))
    # A table that is drawn twice has other seeds each time.
    logs = np.stack([_resampled_log_ratios(areas, row, others, (NUM_RESAMPLES, count), random) for areas in tables])
    resample, place = np.indices(chosen.shape)
    means = logs[chosen, resample, place].mean(axis=1)
    low, high = _interval(np.exp(means))
    return Ratio(value, (low, high))


def _log_ratio(areas: Areas, row: str, others: Sequence[str]) -> float:
    best = areas[best_of(areas, others)]
    return float(np.log(np.mean(areas[row]) / np.mean(best)))


def _resampled_log_ratios(
    areas: Areas, row: str, others: Sequence[str], shape: tuple[int, int], random: np.random.Generator
) -> Float64Array:
    """Log ratios of ``shape`` independent resamples of one table's seeds."""
    size = shape[0] * shape[1]
    own = _resampled_means(areas[row], size, random)
    best = _resampled_means(areas[best_of(areas, others)], size, random)
    logs: Float64Array = np.log(own / best).reshape(shape)
    return logs


def _resampled_means(values: Sequence[float], size: int, random: np.random.Generator) -> Float64Array:
    means: Float64Array = _resamples(values, size, random).mean(axis=1)
    return means


def _resamples(values: Sequence[float], size: int, random: np.random.Generator) -> Float64Array:
    """``size`` draws with replacement of as many values as there are, (size, values)."""
    given = np.asarray(values, dtype=np.float64)
    chosen: Float64Array = given[random.integers(len(given), size=(size, len(given)))]
    return chosen


def _interval(statistics: Float64Array) -> Interval:
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(statistics, [tail, 1 - tail], method="inverted_cdf")  # no inf - inf
    return float(low), float(high)


def best_of(areas: Areas, rows: Iterable[str]) -> str:
    """The row of the least mean area."""
    return min((row for row in rows if row in areas), key=lambda row: float(np.mean(areas[row])))
