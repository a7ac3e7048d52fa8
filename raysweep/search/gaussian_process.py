"""The Gaussian process of the sampler ``mfgp``: kernel settings, training data, fits."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.arrays import Float64Array

MIN_WEIGHT = 0.05  # of the likeliest's weight: settings that have less are passed over


LENGTH, LENGTH_SPREAD = math.log(4.0), 1.2  # prior of a squared length scale's logarithm
ADDITIVE_VARIANCE = 5.0  # prior variance of the sum over single parameters; their product's is 1


class KernelParams:
    """Of the kernel, by their logarithms: the parameters' coded to [0, 1], values standardised."""

    def __init__(self, logs: Float64Array) -> None:
        self._logs = logs  # of squared length scales, of unscaled shares, of the deviations ``noise`` and ``slope``
        num_axes = (len(logs) - 2) // 2
        shares = np.exp(logs[num_axes:-2])
        self.precisions = np.exp(-logs[:num_axes])
        self.shares = (
            ADDITIVE_VARIANCE * shares / max(shares.sum(), 1e-300)
        )  # variances in the sum over single parameters
        self.noise = math.exp(2 * logs[-2])  # variance, half of it a trial's own
        self.slope = math.exp(logs[-1])  # s, and the standard deviation of c
        squares = ((logs[:num_axes] - LENGTH) / LENGTH_SPREAD) ** 2
        last = ((logs[-2:] - math.log(0.5)) / 0.5) ** 2
        self.prior = float((0.5 * logs[num_axes:-2] - shares).sum() - 0.5 * (squares.sum() + last.sum()))  # log density

    @classmethod
    def draw(cls, random: np.random.Generator, num_axes: int) -> "KernelParams":
        """From the prior."""
        shares = np.log(np.maximum(random.gamma(0.5, 1.0, num_axes), 1e-300))
        lengths = random.normal(LENGTH, LENGTH_SPREAD, num_axes)
        return cls(np.concatenate([lengths, shares, random.normal(math.log(0.5), 0.5, 2)]))

    def moved(self, random: np.random.Generator) -> "KernelParams":
        """Some of them a little: a step of a Metropolis walk."""
        steps = np.full(len(self._logs), 0.7)
        steps[-2:] = 0.3
        return KernelParams(self._logs + steps * random.normal(size=len(steps)) * (random.random(len(steps)) < 0.3))


@dataclass(frozen=True)
class TrainingSet:
    """What the model learns from: trials, and of some of them two rungs, each a row."""

    codes: Float64Array  # (trials, axes)
    index: NDArray[np.int64]  # (rows,), the row's trial
    doublings: Float64Array  # (rows,), of the smallest budget
    values: Float64Array  # (rows,), standardised
    top: float  # doublings of the largest budget that any trial has seen


@dataclass(frozen=True)
class _Fit:
    settings: KernelParams
    likelihood: float  # its logarithm
    covariance: Float64Array  # of what was learnt
    weights: Float64Array  # its inverse times the values
