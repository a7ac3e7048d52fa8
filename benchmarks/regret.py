"""The regret curve of one search of a recording, and statistics over seeds and recordings.

Regret is the share of the recording's hypervolume that is still missing; it is 1 before the first rung ends. The area
under its curve, over the recording's total budget, is the mean regret: 0 at best, 1 at worst. A search that ends early
keeps its last regret.

Intervals are from the percentile bootstrap (Efron, 1979). Seeds are resampled with replacement within each row of each
recording; for a geometric mean over recordings, the recordings are resampled too, each with its own seeds. The best peer of
a recording is the one with the minimum mean over all its seeds, in resamples as well. Among many equally good peers the
luckiest one counts as the best, which disadvantages the row that is compared; choosing it again in each resample would do
so twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.replay.recordings import RecordedSweep
from raysweep.replay.simulator import Step

SHARES = (0.9, 0.95, 0.99)  # of the recording's hypervolume
NUM_RESAMPLES = 2000
LEVEL = 0.95

Interval = tuple[float, float]
Areas = Mapping[str, Sequence[float]]  # under the regret curve, by row: one for each seed


@dataclass(frozen=True)
class Curve:
    """The result of one search. ``budgets`` were spent when SHARES were reached, infinity if they never were."""

    area: float
    budgets: tuple[float, ...]


def curve(recording: RecordedSweep, steps: Iterable[Step]) -> Curve:
    area, regret, spent = 0.0, 1.0, 0
    budgets = [float("inf")] * len(SHARES)
    for step in steps:
        area += regret * (step.budget - spent)
        spent, regret = step.budget, 1 - step.area / recording.area
        for index, share in enumerate(SHARES):
            if step.area >= share * recording.area:
                budgets[index] = min(budgets[index], step.budget)
    area += regret * (recording.total_budget - spent)
    return Curve(area / recording.total_budget, tuple(budgets))


def mean_interval(values: Sequence[float], seed: int) -> Interval:
    """Return the interval of the mean over seeds."""
    return _interval(_resampled_means(values, NUM_RESAMPLES, np.random.default_rng(seed)))


def median_interval(values: Sequence[float], seed: int) -> Interval:
    """Return the interval of the median over seeds, the lower of two; either end may be infinite."""
    chosen = _resamples(values, NUM_RESAMPLES, np.random.default_rng(seed))
    medians = np.sort(chosen, axis=1)[:, (len(values) - 1) // 2]
    return _interval(medians)


def median(values: Sequence[float]) -> float:
    """Return the lower median, which is one of the values even if another is infinite."""
    return sorted(values)[(len(values) - 1) // 2]


@dataclass(frozen=True)
class Ratio:
    """A row's area over the minimum of several others', and its interval."""

    value: float
    interval: Interval


def ratio(areas: Areas, row: str, others: Sequence[str], seed: int) -> Ratio:
    """Return the row's mean area over that of the best of the others, on one recording."""
    return geometric_mean_ratio([areas], row, others, seed)


def geometric_mean_ratio(
    recordings: Sequence[Areas], row: str, others: Sequence[str], seed: int
) -> Ratio:
    """Return the geometric mean over recordings of :func:`ratio`; each recording uses the others that it has areas of."""
    value = float(np.exp(np.mean([_log_ratio(areas, row, others) for areas in recordings])))
    random = np.random.default_rng(seed)
    count = len(recordings)
    chosen = random.integers(count, size=(NUM_RESAMPLES, count))
    # A recording that is drawn twice has other seeds each time.
    logs = np.stack(
        [
            _resampled_log_ratios(areas, row, others, (NUM_RESAMPLES, count), random)
            for areas in recordings
        ]
    )
    resample, place = np.indices(chosen.shape)
    means = logs[chosen, resample, place].mean(axis=1)
    low, high = _interval(np.exp(means))
    return Ratio(value, (low, high))


def _log_ratio(areas: Areas, row: str, others: Sequence[str]) -> float:
    best = areas[best_of(areas, others)]
    return float(np.log(np.mean(areas[row]) / np.mean(best)))


def _resampled_log_ratios(
    areas: Areas,
    row: str,
    others: Sequence[str],
    shape: tuple[int, int],
    random: np.random.Generator,
) -> Float64Array:
    """Return log ratios of ``shape`` independent resamples of one recording's seeds."""
    size = shape[0] * shape[1]
    own = _resampled_means(areas[row], size, random)
    best = _resampled_means(areas[best_of(areas, others)], size, random)
    logs: Float64Array = np.log(own / best).reshape(shape)
    return logs


def _resampled_means(
    values: Sequence[float], size: int, random: np.random.Generator
) -> Float64Array:
    means: Float64Array = _resamples(values, size, random).mean(axis=1)
    return means


def _resamples(values: Sequence[float], size: int, random: np.random.Generator) -> Float64Array:
    """Return ``size`` resamples with replacement, (size, values)."""
    samples = np.asarray(values, dtype=np.float64)
    chosen: Float64Array = samples[random.integers(len(samples), size=(size, len(samples)))]
    return chosen


def _interval(statistics: Float64Array) -> Interval:
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(statistics, [tail, 1 - tail], method="inverted_cdf")  # no inf - inf
    return float(low), float(high)


def best_of(areas: Areas, rows: Iterable[str]) -> str:
    """Return the row with the minimum mean area."""
    return min((row for row in rows if row in areas), key=lambda row: float(np.mean(areas[row])))
