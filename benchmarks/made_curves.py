"""Simulated learning curves: true and noisy scores of trials by rung.

Rungs are counted from 1, and time in rungs. An untrained trial scores ``REFERENCE``. With training, P rises and S falls,
each toward a level of the trial's own; the speed depends on the trial's family: exponentials, power laws, and exponentials
whose speed falls with their final level, so that curves cross. Each rung has three operating points, from the tuned encoder
toward the untrained one, like interpolations.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.scores import Pair

Family = Literal["exponential", "power", "crossing"]
FAMILIES: tuple[Family, ...] = get_args(Family)
REFERENCE = (0.63, 0.466)
NUM_RUNGS = 32
NOISE = 0.01  # standard deviation of P and of S: one point
SHARED_NOISE = 0.7  # correlation of the noise of a rung's points, which share their queries
SHARES = (1.0, 0.6, 0.3)  # of the way to the tuned encoder, one for each operating point
MOST_GAIN, MOST_LOSS = 0.24, 0.16  # of P and of S, of an ordinary trial
NUM_ORDINARY = 2000  # curves that are drawn, more than any search begins


@dataclass(frozen=True)
class Curve:
    """The true curve of one trial: the final gain of P and loss of S, and the share reached after each rung (rungs,)."""

    gain: float
    loss: float
    progress: Float64Array

    def points(self, rung: int) -> list[Pair]:
        """Return the true points of a rung."""
        reached = self.progress[rung - 1]
        polarity, similarity = REFERENCE
        points = []
        for share in SHARES:
            rise = self.gain * reached * share**0.7
            fall = self.loss * reached * share**1.5
            points.append((polarity + rise, similarity - fall))
        return points


class Curves:
    """The curves of a search's trials, by number. ``planted`` curves replace ordinary ones."""

    def __init__(self, family: Family, seed: int) -> None:
        self.planted: dict[int, Curve] = {}
        self._seed = seed
        random = np.random.default_rng([seed, FAMILIES.index(family)])
        self._ordinary = [_ordinary(family, random) for _ in range(NUM_ORDINARY)]

    def __getitem__(self, trial: int) -> Curve:
        return self.planted.get(trial) or self._ordinary[trial % NUM_ORDINARY]

    def measured(self, trial: int, rung: int) -> list[Pair]:
        """Return the points of a rung with noise, the same in every call."""
        random = np.random.default_rng([self._seed, trial, rung])
        shared = random.standard_normal(2)
        own = random.standard_normal((len(SHARES), 2))
        noise = NOISE * (np.sqrt(SHARED_NOISE) * shared + np.sqrt(1 - SHARED_NOISE) * own)
        points: Float64Array = np.array(self[trial].points(rung)) + noise
        return [(polarity, similarity) for polarity, similarity in points.tolist()]


def _ordinary(family: Family, random: np.random.Generator) -> Curve:
    """Return a random trial: most are average, and those that gain more P tend to lose more S."""
    quality = random.beta(2, 2)
    gain = MOST_GAIN * quality
    loss = MOST_LOSS * np.clip(0.5 * quality + random.uniform(0, 0.6), 0, 1)
    speed = random.uniform()
    if family == "power":
        return Curve(gain, loss, _power_law(0.5 + 3 * speed))
    time_constant = 1 + 11 * quality * speed if family == "crossing" else 1 + 5 * speed
    return Curve(gain, loss, _exponential(time_constant))


def slow_starter(random: np.random.Generator) -> Curve:
    """Return a trial that starts slowly, crosses the others in the middle, and ends above all of them."""
    time_constant = random.uniform(10, 14)
    progress = 1 - np.exp(-((_time() / time_constant) ** 2))
    return Curve(1.15 * MOST_GAIN, 0.2 * MOST_LOSS, progress)


def end_extender(random: np.random.Generator) -> Curve:
    """Return a trial with the highest P, at so little S that most trials have a larger area of their own."""
    return Curve(1.25 * MOST_GAIN, 1.2 * MOST_LOSS, _exponential(random.uniform(2, 4)))


def _time() -> Float64Array:
    return np.arange(1, NUM_RUNGS + 1, dtype=np.float64)


def _exponential(time_constant: float) -> Float64Array:
    progress: Float64Array = 1 - np.exp(-_time() / time_constant)
    return progress


def _power_law(scale: float) -> Float64Array:
    progress: Float64Array = 1 - (1 + _time() / scale) ** -0.8
    return progress
