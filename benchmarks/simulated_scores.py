"""Invented per-query scores of encoders whose true P and S are known exactly, for :mod:`benchmarks.calibration`.

Each query has a difficulty that all encoders share, each trial its own way with each query, and each point of it a little
more. A query's P is the logistic function of the sum, rounded to a multiple of 1/k, so that it piles up at 0 and 1 as real
ones do. Its S is a mean plus parts of the same kind; the shared one is skewed. The mean of P over all queries that might be
drawn is a sum of normal probabilities, that of S is what it was given.
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
    """How data differ: queries of a split, neighbors, what R and the best encoders score, and how alike encoders are."""

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
    def of_scores(cls, setting: Setting, scores: Float64Array, trials: NDArray[np.int64], shared: float) -> Self:
        """Encoders whose true scores are ``scores`` (points, 2)."""
        polarity, similarity = scores.T
        low, high = setting.reference[0], 1.0
        progress = np.clip((polarity - low) / (high - low), 0, 1)
        deviations = 0.9 + 1.8 * progress
        logits = _logits_of(polarity, deviations, setting.k)
        return cls(setting, logits, deviations, similarity, trials, np.full(len(scores), shared))

    @property
    def truth(self) -> Float64Array:
        """True P and S (points, 2)."""
        return np.stack([_polarity(self.logits, self.deviations, self.setting.k), self.similarity], axis=1)

    def chosen(self, rows: NDArray[np.int64]) -> Self:
        """Only some of them."""
        parts: dict[str, Any] = {name: getattr(self, name)[rows] for name in _BY_POINT}
        return replace(self, **parts)

    def joined(self, other: Self) -> Self:
        """These and then others."""
        parts: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in _BY_POINT
        }
        return replace(self, **parts)

    def over_seeds(self, logits_std: Float64Array) -> Float64Array:
        """True P and S (points, 2) of the configurations, where a run's logits deviate so far (points,) by its seed."""
        deviations = np.sqrt(self.deviations**2 + logits_std**2)
        return np.stack([_polarity(self.logits, deviations, self.setting.k), self.similarity], axis=1)

    def moved(self, logits: Float64Array, similarity: Float64Array) -> Self:
        """The encoders of one run, by how its seed moves each of them."""
        return replace(self, logits=self.logits + logits, similarity=self.similarity + similarity)


@dataclass(frozen=True)
class Queries:
    """What a sample of queries does to encoders: shared parts (queries,) and those of each trial (trials, queries)."""

    difficulty: Float64Array
    closeness: Float64Array
    by_trial: tuple[Float64Array, Float64Array]

    @classmethod
    def draw(cls, setting: Setting, num_trials: int, rng: np.random.Generator) -> Self:
        num = setting.num_queries
        own = rng.normal(size=(num_trials, num)), rng.normal(size=(num_trials, num))
        return cls(rng.normal(size=num), (rng.gamma(4, size=num) - 4) / 2, own)

    def scores(self, encoders: Encoders, rng: np.random.Generator) -> Float64Array:
        """P and S (points, 2, queries) of the encoders. What is neither shared nor a trial's is drawn for each point."""
        shared = encoders.shared[:, None]
        parts = np.sqrt(shared), np.sqrt(0.7 * (1 - shared)), np.sqrt(0.3 * (1 - shared))
        found = np.empty((len(encoders.logits), 2, len(self.difficulty)))
        for score, common in enumerate((self.difficulty, self.closeness)):
            own = self.by_trial[score][encoders.trials]
            rest = rng.normal(size=own.shape)
            found[:, score] = parts[0] * common + parts[1] * own + parts[2] * rest
        k = encoders.setting.k
        logits = encoders.logits[:, None] + encoders.deviations[:, None] * found[:, 0]
        found[:, 0] = np.rint(k * expit(logits)) / k
        found[:, 1] = encoders.similarity[:, None] + SIMILARITY_STD * found[:, 1]
        return found


def limits(setting: Setting, trial: int) -> Encoders:
    """R, and then the oracle's points: P rises to nearly 1 while S falls by little, and their scores differ by no more."""
    bonuses = np.concatenate([[0.0], np.geomspace(0.05, 1, 8)])
    polarity, similarity = setting.reference
    scores = np.stack(
        [polarity + (0.998 - polarity) * bonuses**0.7, similarity - 0.05 * similarity * bonuses**1.4], axis=1
    )
    with_reference = np.concatenate([[setting.reference], scores])
    return Encoders.of_scores(setting, with_reference, np.full(len(with_reference), trial), shared=1.0)


def trial_scores(setting: Setting, num_trials: int, num_points: int, rng: np.random.Generator) -> Float64Array:
    """True P and S (trials * points, 2) of trials, each of them so many operating points, from weak to strong."""
    strength = np.linspace(0.15, 1, num_points) + rng.normal(0, 0.03, (num_trials, num_points))
    lost = rng.exponential(setting.spread, (num_trials, 1))
    polarity = setting.reference[0] + setting.gain * (1 - np.exp(-3 * strength)) - lost
    similarity = setting.reference[1] - setting.loss * strength**3 - 0.5 * lost
    return np.stack([polarity.ravel(), similarity.ravel()], axis=1)


def _polarity(logits: Float64Array, deviations: Float64Array, k: int) -> Float64Array:
    """The mean over all queries of P rounded to multiples of 1/k: the probability of each next multiple, added up."""
    borders = logit((np.arange(1, k + 1) - 0.5) / k)
    above = ndtr((logits[:, None] - borders) / deviations[:, None])
    mean: Float64Array = above.mean(axis=1)
    return mean


def _logits_of(polarity: Float64Array, deviations: Float64Array, k: int) -> Float64Array:
    """The logits whose mean P is this, by bisection."""
    low, high = np.full(len(polarity), -30.0), np.full(len(polarity), 30.0)
    for _ in range(50):
        middle = (low + high) / 2
        is_below = _polarity(middle, deviations, k) < polarity
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    found: Float64Array = (low + high) / 2
    return found
