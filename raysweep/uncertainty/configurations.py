"""Mean scores of configurations trained with several seeds, and the noise in these means.

On splits other than dev, only runs on the front are scored. They were selected partly because of lucky seeds. A run
that beats its configuration's other runs on dev is expected to keep the part of its lead that is due to its seed. This
part is subtracted as luck.

Notation (see also :mod:`.seeds`) for r runs, of which m are scored on the split:

    l           v_a / (v_a + v_e / n) on dev, the reliability of differences between runs
    l (x_M - x) expected lead of the m runs over the mean of all runs: the best linear prediction (Henderson, 1975)
    v           v_a / r + (1 - l) v_a (1 / m - 1 / r), the remaining variance due to seeds; v_a / r if m = r
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.scores import Goals
from raysweep.uncertainty import interval, seeds
from raysweep.uncertainty.interval import Interval, ScoreIntervals
from raysweep.uncertainty.noise import Noise, SeedSamples
from raysweep.uncertainty.resamples import RESAMPLES
from raysweep.uncertainty.seeds import RunNoise, Variance

_UNKNOWN = RunNoise(Variance(np.inf, 0.0), 0.0)


@dataclass(frozen=True)
class Replicated:
    """P and S of a configuration's points on dev.

    ``scores`` has shape (runs, points, 2, queries); the queries are the same for all configurations. Seed noise is pooled
    over points with the same key in ``keys``.
    """

    keys: tuple[Hashable, ...]
    scores: Float64Array

    @property
    def runs(self) -> int:
        return len(self.scores)

    @property
    def run_means(self) -> Float64Array:
        """Return the means of P and S over the queries, (runs, points, 2)."""
        means: Float64Array = self.scores.mean(axis=-1)
        return means


@dataclass(frozen=True)
class Scored:
    """A configuration's scores on one split, (points, 2, queries), averaged over each point's ``runs``."""

    configuration: Replicated
    scores: Float64Array
    runs: tuple[tuple[int, ...], ...]

    @classmethod
    def by_all_runs(cls, configuration: Replicated) -> "Scored":
        """Return the configuration's scores on dev, averaged over all runs."""
        all_runs = tuple(range(configuration.runs))
        means = configuration.scores.mean(axis=0)
        return cls(configuration, means, (all_runs,) * len(configuration.keys))


class SeedNoise:
    """Seed noise in a run's P and S at each operating point, pooled over configurations."""

    def __init__(self, configurations: Sequence[Replicated]) -> None:
        keys = {key for configuration in configurations for key in configuration.keys}
        self._by_key = {key: _pooled(configurations, key) for key in keys}
        self._of_all = _pooled(configurations, None)

    @property
    def is_known(self) -> bool:
        """Return whether any configuration has more than one run."""
        return self._of_all[0] is not None

    def of(self, key: Hashable, score: int) -> RunNoise:
        """Return the noise in P (``score`` 0) or S (1) for a key, or for all points if the key has no repeated runs."""
        own = self._by_key.get(key, self._of_all)[score]
        return own or self._of_all[score] or _UNKNOWN

    def of_mean(self, key: Hashable, runs: int) -> tuple[Variance, Variance]:
        """Return the variances of P and S averaged over ``runs`` runs."""
        return self.of(key, 0).seeds.over(runs), self.of(key, 1).seeds.over(runs)

    def of_points(self, keys: Iterable[Hashable]) -> "PointNoise":
        """Return the noise in points with these keys."""
        noises = [self.of(key, score) for key in keys for score in (0, 1)]
        variance = np.array([noise.seeds.value for noise in noises])
        reliability = np.array([noise.reliability for noise in noises])
        degrees = min(noise.seeds.degrees for noise in noises)
        return PointNoise(variance.reshape(-1, 2), reliability.reshape(-1, 2), degrees)


@dataclass(frozen=True)
class PointNoise:
    """Seed noise in a run's P and S, per point.

    ``variance`` is the variance due to the seed and ``reliability`` is the reliability of differences between runs, both
    (points, 2). ``degrees`` is the minimum of their degrees of freedom.
    """

    variance: Float64Array
    reliability: Float64Array
    degrees: float


@dataclass(frozen=True)
class Trained:
    """Configurations scored on one split, and their seed noise."""

    configurations: Sequence[Scored]
    noise: SeedNoise

    @property
    def num_points(self) -> int:
        return sum(len(configuration.scores) for configuration in self.configurations)


def noise_text(*, has_seeds: bool) -> str:
    """Return the sources of variation that an interval covers, as display text."""
    return "queries and seeds" if has_seeds else "queries"


def _pooled(configurations: Sequence[Replicated], key: Hashable | None) -> list[RunNoise | None]:
    """Return the noise in P and S, pooled over the points with this key, or over all points if it is None."""
    noises = []
    for score in (0, 1):
        pooled = []
        for configuration in configurations:
            scores = configuration.scores[:, :, score]
            scores_of_points = []
            for row, name in enumerate(configuration.keys):
                if key is None or name == key:
                    scores_of_points.append(scores[:, row])
            if scores_of_points:
                pooled.append(scores_of_points)
        noises.append(seeds.of_runs(pooled))
    return noises


def intervals(
    configurations: Sequence[Replicated],
    reference: Float64Array | None,
    noise: SeedNoise,
    goals: Goals,
) -> list[list[ScoreIntervals]]:
    """Return the intervals for each configuration's points, which account for queries and seeds.

    ``reference`` (2, queries) holds the reference encoder's scores. Intervals are clipped to the ranges of the scores in
    ``goals``.
    """
    by_configuration = []
    for configuration in configurations:
        point_intervals = []
        for row, key in enumerate(configuration.keys):
            by_seeds = noise.of_mean(key, configuration.runs)
            scores = configuration.scores[:, row]
            point_intervals.append(_of_point(scores, by_seeds, reference).within(goals))
        by_configuration.append(point_intervals)
    return by_configuration


def _of_point(
    scores: Float64Array, by_seeds: tuple[Variance, Variance], reference: Float64Array | None
) -> ScoreIntervals:
    """Return the intervals for one operating point, without clipping P and S.

    Args:
        scores: Scores (runs, 2, queries).
        by_seeds: Variances of mean P and mean S due to seeds.
        reference: Scores of the reference encoder, (2, queries).
    """
    polarity = _of_mean(scores[:, 0], by_seeds[0])
    similarity = _of_mean(scores[:, 1], by_seeds[1])
    retention = None
    if reference is not None and reference[1].mean():
        retention = _of_retention(scores[:, 1], reference[1], by_seeds[1]).within(-math.inf, 1)
    return ScoreIntervals(polarity, similarity, retention)


def _of_mean(scores: Float64Array, by_seeds: Variance) -> Interval:
    """Return the interval for the mean of ``scores`` (runs, queries)."""
    variance = seeds.of_queries(scores) + by_seeds
    return interval.around(float(scores.mean()), variance.value, variance.degrees)


def _of_retention(scores: Float64Array, unit: Float64Array, by_seeds: Variance) -> Interval:
    """Return the interval for the ratio of S (runs, queries) to the reference encoder's S (queries,).

    The ratio is linearized as in :func:`.interval.of_ratios`.
    """
    mean_unit = float(unit.mean())
    ratio = float(scores.mean()) / mean_unit
    residuals = (scores - ratio * unit) / mean_unit
    of_seed = Variance(by_seeds.value / mean_unit**2, by_seeds.degrees)
    variance = seeds.of_queries(residuals) + of_seed
    return interval.around(ratio, variance.value, variance.degrees)


def noise_of(
    trained: Trained, untrained: Float64Array, seed: int, resamples: int = RESAMPLES
) -> Noise:
    """Return the query and seed noise in all configurations' points, followed by the untrained points.

    ``untrained`` (points, 2, queries) holds the scores of the reference encoder, the oracle and the linear probe.
    """
    rng = np.random.default_rng([seed, 1])
    scores = []
    deviations = []
    degrees = math.inf
    for configuration in trained.configurations:
        effect = _SeedEffect.of(configuration, trained.noise)
        scores.append(effect.without_luck)
        deviations.append(effect.sample_deviations(rng, resamples))
        degrees = min(degrees, effect.degrees)
    scores.append(untrained)
    no_deviations = np.zeros((resamples, len(untrained), 2))
    deviations.append(no_deviations)
    by_queries = Noise.of_queries(np.concatenate(scores), seed, resamples)
    by_seeds = SeedSamples(np.concatenate(deviations, axis=1), degrees)
    return replace(by_queries, seeds=by_seeds)


@dataclass(frozen=True)
class _SeedEffect:
    """The expected effect of seeds (``luck``) and its standard deviations (``sizes``), both (points, 2)."""

    scored: Scored
    luck: Float64Array
    sizes: Float64Array
    degrees: float

    @classmethod
    def of(cls, scored: Scored, noise: SeedNoise) -> "_SeedEffect":
        point_noise = noise.of_points(scored.configuration.keys)
        means = scored.configuration.run_means
        scored_means = [means[list(runs), row].mean(axis=0) for row, runs in enumerate(scored.runs)]
        # the scored runs' lead over all of the configuration's runs on dev, (points, 2)
        lead: Float64Array = np.stack(scored_means) - means.mean(axis=0)
        luck = point_noise.reliability * lead
        per_run = 1 / scored.configuration.runs
        per_scored = np.array([[1 / len(runs)] for runs in scored.runs])
        unseen = (1 - point_noise.reliability) * (per_scored - per_run)
        variances = point_noise.variance * (per_run + unseen)
        return cls(scored, luck, np.sqrt(variances), point_noise.degrees)

    @property
    def without_luck(self) -> Float64Array:
        """Return the scores (points, 2, queries) minus the expected effect of the seeds."""
        return self.scored.scores - self.luck[..., None]

    def sample_deviations(self, rng: np.random.Generator, num_samples: int) -> Float64Array:
        """Return sampled deviations due to seeds, (samples, points, 2)."""
        return seeds.sample_deviations(
            self.scored.configuration.run_means, self.sizes, rng, num_samples
        )
