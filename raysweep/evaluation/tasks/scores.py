"""Task scores with 95% intervals."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Flags = npt.NDArray[np.bool_]


Values = npt.NDArray[np.float64]


_Z = 1.959964  # 97.5% quantile of the standard normal distribution


@dataclass(frozen=True)
class Score:
    """An accuracy in [0, 1] or a correlation in [-1, 1], with its 95% interval.

    The interval accounts for the sampling of rows, but not for the variation between classifiers or encoders.
    Undefined values are NaN.
    """

    value: float
    low: float
    high: float
    num_rows: int


def _undefined(num_rows: int) -> Score:
    return Score(math.nan, math.nan, math.nan, num_rows)


def accuracy(is_right: Flags) -> Score:
    """Return the share of True values in a mask (rows,), with the interval of Wilson (1927)."""
    n = len(is_right)
    if not n:
        return _undefined(0)
    share = float(is_right.mean())
    shrinkage = 1 / (1 + _Z**2 / n)
    center = shrinkage * (share + _Z**2 / (2 * n))
    binomial_variance = share * (1 - share) / n
    variance = binomial_variance + _Z**2 / (4 * n**2)
    half_width = shrinkage * _Z * math.sqrt(variance)
    low = max(0.0, center - half_width)
    high = min(1.0, center + half_width)
    return Score(share, low, high, n)


def spearman(gold: Values, predicted: Values) -> Score:
    """Return Spearman's rank correlation of two arrays (rows,), with average ranks for ties.

    The interval uses the Fisher transformation with the standard error sqrt((1 + r^2 / 2) / (n - 3)) of Bonett and
    Wright (2000). The correlation is undefined if an array is constant. The interval requires at least 4 rows.
    """
    n = len(gold)
    gold_ranks = _centered_ranks(gold)
    predicted_ranks = _centered_ranks(predicted)
    scale = np.linalg.norm(gold_ranks) * np.linalg.norm(predicted_ranks)
    if not scale:
        return _undefined(n)
    cosine = gold_ranks @ predicted_ranks / scale
    r = float(np.clip(cosine, -1, 1))
    if n < 4:
        return Score(r, math.nan, math.nan, n)
    if abs(r) == 1:
        return Score(r, r, r, n)
    z = math.atanh(r)
    variance = (1 + r**2 / 2) / (n - 3)
    half_width = _Z * math.sqrt(variance)
    low = math.tanh(z - half_width)
    high = math.tanh(z + half_width)
    return Score(r, low, high, n)


def _centered_ranks(values: Values) -> Values:
    """Return the ranks of ``values`` (rows,), minus their mean."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Values = (last - (counts - 1) / 2)[which]
    return ranks - (len(values) + 1) / 2
