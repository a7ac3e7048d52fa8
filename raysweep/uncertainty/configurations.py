"""Intervals of configurations that were trained several times: of what they score on average over queries and seeds."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.uncertainty import interval, seeds
from raysweep.uncertainty.interval import LEVEL, Interval, ScoreIntervals
from raysweep.uncertainty.noise import Noise, SeedDraws
from raysweep.uncertainty.resamples import RESAMPLES
from raysweep.uncertainty.seeds import Variance


@dataclass(frozen=True)
class Replicated:
    """A configuration's points and their scores (runs, points, 2, queries), P and S. ``keys`` name its operating points.

    All configurations are scored on the same queries. The noise of seeds is pooled among points of one key.
    """

    keys: tuple[Hashable, ...]
    scores: Float64Array

    @property
    def runs(self) -> int:
        return len(self.scores)


class SeedNoise:
    """The variances of P and S of one run, by operating point, pooled over configurations."""

    def __init__(self, configurations: Sequence[Replicated]) -> None:
        keys = {key for each in configurations for key in each.keys}
        self._by_key = {key: _pooled(configurations, key) for key in keys}
        self._of_all = _pooled(configurations, None)

    @property
    def is_known(self) -> bool:
        """Whether any configuration has a second run."""
        return self._of_all[0] is not None

    def of(self, key: Hashable, score: int) -> Variance:
        """Of one run; that of all operating points together where no other run has this one."""
        found = self._by_key.get(key, self._of_all)[score] or self._of_all[score]
        return found or Variance(np.inf, 0.0)


def _pooled(configurations: Sequence[Replicated], key: Hashable | None) -> list[Variance | None]:
    """Of P and of S, over the points of one key, or over all."""
    chosen = []
    for each in configurations:
        rows = [row for row, name in enumerate(each.keys) if key is None or name == key]
        if rows:
            chosen.append(each.scores[:, rows])
    return [
        seeds.of_seeds([[scores[:, row, score] for row in range(scores.shape[1])] for scores in chosen])
        for score in (0, 1)
    ]


def intervals(
    configurations: Sequence[Replicated], reference: Float64Array | None, level: float = LEVEL
) -> list[list[ScoreIntervals]]:
    """For each configuration those of its points, over the queries and seeds that might have been.

    ``reference`` (2, queries): scores of the reference encoder.

    The reference encoder is not trained, so that it has no seeds.
    """
    noise = SeedNoise(configurations)
    return [
        [_of_point(each.scores[:, row], key, noise, reference, level) for row, key in enumerate(each.keys)]
        for each in configurations
    ]


def _of_point(
    scores: Float64Array, key: Hashable, noise: SeedNoise, reference: Float64Array | None, level: float
) -> ScoreIntervals:
    """``scores`` (runs, 2, queries) of one operating point."""
    runs = len(scores)
    by_seeds = [noise.of(key, score).over(runs) for score in (0, 1)]
    polarity, similarity = (
        _around(scores[:, score], seeds.of_queries(scores[:, score]) + by_seeds[score], level) for score in (0, 1)
    )
    retention = None
    if reference is not None and reference[1].mean():
        retention = _of_retention(scores[:, 1], reference[1], by_seeds[1], level)
    return ScoreIntervals(polarity.within(0, 1), similarity.within(-1, 1), retention)


def _around(scores: Float64Array, variance: Variance, level: float) -> Interval:
    return interval.around(float(scores.mean()), variance.value, variance.degrees, level)


def _of_retention(scores: Float64Array, unit: Float64Array, by_seeds: Variance, level: float) -> Interval:
    """Of S (runs, queries) over the reference's (queries,), linearised as in :func:`.interval.of_ratio`."""
    mean_unit = float(unit.mean())
    ratio = float(scores.mean()) / mean_unit
    residuals = (scores - ratio * unit) / mean_unit
    of_seed = Variance(by_seeds.value / mean_unit**2, by_seeds.degrees)
    variance = seeds.of_queries(residuals) + of_seed
    return interval.around(ratio, variance.value, variance.degrees, level)


def noise_of(
    configurations: Sequence[Replicated], untrained: Float64Array, seed: int, resamples: int = RESAMPLES
) -> Noise:
    """Noise of queries and seeds of all configurations' points, in order, and then of those that nothing trained.

    ``untrained`` (points, 2, queries): the reference encoder and the oracle.
    """
    means = [each.scores.mean(axis=0) for each in configurations]
    by_queries = Noise.of_queries(np.concatenate([*means, untrained]), seed, resamples)
    noise = SeedNoise(configurations)
    if not noise.is_known:
        return by_queries
    variances = [[noise.of(key, score) for score in (0, 1)] for each in configurations for key in each.keys]
    sizes = np.sqrt([[variance.value for variance in pair] for pair in variances])
    run_means = [each.scores.mean(axis=-1) for each in configurations]
    drawn = seeds.drawn_deviations(run_means, sizes, seed, resamples)
    resting = np.zeros((resamples, len(untrained), 2))
    degrees = min(variance.degrees for pair in variances for variance in pair)
    deviations = SeedDraws(np.concatenate([*drawn, resting], axis=1), degrees)
    return Noise(by_queries.means, by_queries.resampled, by_queries.num_queries, deviations)
