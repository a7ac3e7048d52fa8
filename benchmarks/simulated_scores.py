"""Simulated per-query scores of encoders whose true P and S are known exactly, for :mod:`benchmarks.calibration`.

Each query has a difficulty shared by all encoders, one per trial, and a small one per point. A query's P is the
logistic function of their sum, rounded to a multiple of 1/k, so that it accumulates at 0 and 1 like real P. Its S is a
mean plus parts of the same kind; the shared part is skewed. The mean of P over all possible queries is a sum of normal
probabilities; the mean of S is given.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr

from raysweep.metrics.arrays import Float64Array

_BY_POINT = ("logits", "deviations", "similarity", "trials", "shared")  # of encoders

SIMILARITY_STD = 0.074  # over queries, as of MiniLM on SST-2


@dataclass(frozen=True)
class Setting:
    """Properties of data: queries, neighbors, scores of R and of the best encoders, and similarity of encoders."""

    name: str
    num_queries: int
    k: int
    reference: tuple[float, float]  # P and S
    gain: float  # of P, the most that training gives
    loss: float  # of S, that goes with it
    spread: float  # of P that trials lose by their configuration, the mean
    shared: float  # part of the variance over queries that all encoders have in common
    seed_logits: float  # standard deviation of a run's P, in logits
    seed_similarity: float  # and of its S


@dataclass(frozen=True)
class Encoders:
    """Encoders (points,): true S, the mean and deviation of the logits of P over queries, and the trial of each."""

    setting: Setting
    logits: Float64Array
    deviations: Float64Array
    similarity: Float64Array
    trials: NDArray[np.int64]
    shared: Float64Array

    @classmethod
    def of_scores(
        cls, setting: Setting, scores: Float64Array, trials: NDArray[np.int64], shared: float
    ) -> Self:
        """Return encoders with the true scores ``scores`` (points, 2)."""
        polarity, similarity = scores.T
        low, high = setting.reference[0], 1.0
        progress = np.clip((polarity - low) / (high - low), 0, 1)
        deviations = 0.9 + 1.8 * progress
        logits = _logits_of(polarity, deviations, setting.k)
        return cls(setting, logits, deviations, similarity, trials, np.full(len(scores), shared))

    @property
    def truth(self) -> Float64Array:
        """True P and S (points, 2)."""
        return np.stack(
            [_polarity(self.logits, self.deviations, self.setting.k), self.similarity], axis=1
        )

    def chosen(self, rows: NDArray[np.int64]) -> Self:
        """Return some of the encoders."""
        parts: dict[str, Any] = {name: getattr(self, name)[rows] for name in _BY_POINT}
        return replace(self, **parts)

    def joined(self, other: Self) -> Self:
        """Return these encoders followed by others."""
        parts: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in _BY_POINT
        }
        return replace(self, **parts)

    def over_seeds(self, logits_std: Float64Array) -> Float64Array:
        """Return true P and S (points, 2) of the configurations, given deviations (points,) of logits by seed."""
        deviations = np.sqrt(self.deviations**2 + logits_std**2)
        return np.stack(
            [_polarity(self.logits, deviations, self.setting.k), self.similarity], axis=1
        )

    def moved(self, logits: Float64Array, similarity: Float64Array) -> Self:
        """Return the encoders of one run, moved by its seed."""
        return replace(self, logits=self.logits + logits, similarity=self.similarity + similarity)


@dataclass(frozen=True)
class Queries:
    """Effects of a sample of queries on encoders: shared parts (queries,) and those of each trial (trials, queries)."""

    difficulty: Float64Array
    closeness: Float64Array
    by_trial: tuple[Float64Array, Float64Array]

    @classmethod
    def draw(cls, setting: Setting, num_trials: int, rng: np.random.Generator) -> Self:
        num = setting.num_queries
        own = rng.normal(size=(num_trials, num)), rng.normal(size=(num_trials, num))
        return cls(rng.normal(size=num), (rng.gamma(4, size=num) - 4) / 2, own)

    def scores(self, encoders: Encoders, rng: np.random.Generator) -> Float64Array:
        """Return P and S (points, 2, queries) of the encoders. Other parts are drawn per point."""
        shared = encoders.shared[:, None]
        parts = np.sqrt(shared), np.sqrt(0.7 * (1 - shared)), np.sqrt(0.3 * (1 - shared))
        noise = np.empty((len(encoders.logits), 2, len(self.difficulty)))
        for score, common in enumerate((self.difficulty, self.closeness)):
            own = self.by_trial[score][encoders.trials]
            rest = rng.normal(size=own.shape)
            noise[:, score] = parts[0] * common + parts[1] * own + parts[2] * rest
        k = encoders.setting.k
        logits = encoders.logits[:, None] + encoders.deviations[:, None] * noise[:, 0]
        noise[:, 0] = np.rint(k * expit(logits)) / k
        noise[:, 1] = encoders.similarity[:, None] + SIMILARITY_STD * noise[:, 1]
        return noise


def limits(setting: Setting, trial: int) -> Encoders:
    """Return R, then the oracle's points: P rises to nearly 1 while S falls slightly."""
    bonuses = np.concatenate([[0.0], np.geomspace(0.05, 1, 8)])
    polarity, similarity = setting.reference
    scores = np.stack(
        [
            polarity + (0.998 - polarity) * bonuses**0.7,
            similarity - 0.05 * similarity * bonuses**1.4,
        ],
        axis=1,
    )
    with_reference = np.concatenate([[setting.reference], scores])
    return Encoders.of_scores(
        setting, with_reference, np.full(len(with_reference), trial), shared=1.0
    )


def trial_scores(
    setting: Setting, num_trials: int, num_points: int, rng: np.random.Generator
) -> Float64Array:
    """Return true P and S (trials * points, 2) of trials, each with operating points from weak to strong."""
    strength = np.linspace(0.15, 1, num_points) + rng.normal(0, 0.03, (num_trials, num_points))
    lost = rng.exponential(setting.spread, (num_trials, 1))
    polarity = setting.reference[0] + setting.gain * (1 - np.exp(-3 * strength)) - lost
    similarity = setting.reference[1] - setting.loss * strength**3 - 0.5 * lost
    return np.stack([polarity.ravel(), similarity.ravel()], axis=1)


def _polarity(logits: Float64Array, deviations: Float64Array, k: int) -> Float64Array:
    """Return the mean over all queries of P rounded to multiples of 1/k, as a sum of probabilities."""
    borders = logit((np.arange(1, k + 1) - 0.5) / k)
    above = ndtr((logits[:, None] - borders) / deviations[:, None])
    mean: Float64Array = above.mean(axis=1)
    return mean


def _logits_of(polarity: Float64Array, deviations: Float64Array, k: int) -> Float64Array:
    """Return the logits with this mean P, by bisection."""
    low, high = np.full(len(polarity), -30.0), np.full(len(polarity), 30.0)
    for _ in range(50):
        middle = (low + high) / 2
        is_below = _polarity(middle, deviations, k) < polarity
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    root: Float64Array = (low + high) / 2
    return root
