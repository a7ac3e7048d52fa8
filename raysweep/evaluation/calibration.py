"""Temperature scaling, which calibrates the class probabilities of a softmax head.

The calibrated probabilities are softmax(z / T), where z are the head's logits and the temperature T minimizes the log
loss on held-out sentences (Guo et al. 2017, arXiv:1706.04599).
"""

import numpy as np
import numpy.typing as npt

from raysweep.evaluation.evaluation_set import TrialDivergedError
from raysweep.evaluation.operating_points import Head, softmax
from raysweep.metrics.arrays import Float32Array
from raysweep.results.types import Calibration, ScoredSplit

MIN_TEMPERATURE = 0.05
"""Minimum temperature, which is returned if all sentences are classified correctly and the loss has no minimum."""

MAX_TEMPERATURE = 20.0
"""Maximum temperature, which is returned if the head is worse than random."""

NUM_BINS = 15
"""Number of bins used for the expected calibration error."""

_EXACT = 1e-10  # tolerance for 1 / T


def fit_temperature(logits: npt.NDArray[np.floating], labels: npt.NDArray[np.integer]) -> float:
    """Return the temperature T in the allowed range that minimizes the mean log loss of softmax(logits / T).

    ``labels`` (n,) are column indices of ``logits`` (n, classes), which must have at least one row. The loss is convex
    in 1 / T.
    """
    from scipy.optimize import brentq

    exact = np.asarray(logits, dtype=np.float64)
    label_logits = exact[np.arange(len(labels)), labels]

    def slope(inverse: float) -> float:
        weighted = softmax(inverse * exact) * exact
        expected = weighted.sum(axis=1)
        return float((expected - label_logits).mean())

    low = 1 / MAX_TEMPERATURE  # bounds of 1 / T
    high = 1 / MIN_TEMPERATURE
    if slope(high) <= 0:
        return MIN_TEMPERATURE
    if slope(low) >= 0:
        return MAX_TEMPERATURE
    inverse_temperature = brentq(slope, low, high, xtol=_EXACT)
    return float(1 / inverse_temperature)


def cross_entropy(logits: npt.NDArray[np.floating], labels: npt.NDArray[np.integer]) -> float:
    """Return the mean log loss of softmax(logits), in nats.

    ``labels`` (n,) are column indices of ``logits`` (n, classes).
    """
    exact = np.asarray(logits, dtype=np.float64)
    greatest = exact.max(axis=1)
    log_sums = greatest + np.log(np.exp(exact - greatest[:, None]).sum(axis=1))
    label_logits = exact[np.arange(len(labels)), labels]
    return float((log_sums - label_logits).mean())


def calibration_error(
    probabilities: npt.NDArray[np.floating], labels: npt.NDArray[np.integer]
) -> float:
    """Return the expected calibration error of class probabilities, in [0, 1].

    ``labels`` (n,) are column indices of ``probabilities`` (n, classes). Sentences are sorted by confidence (the
    probability of the most likely class) and split into ``NUM_BINS`` bins of equal size. The error is the absolute
    difference between a bin's accuracy and its mean confidence, averaged over sentences (Nguyen and O'Connor 2015,
    arXiv:1508.05154).
    """
    predicted = probabilities.argmax(axis=1)
    confidence = probabilities.max(axis=1).astype(np.float64)
    is_right = (predicted == labels).astype(np.float64)
    ascending = np.argsort(confidence, kind="stable")
    gaps = (is_right - confidence)[ascending]
    bins = np.array_split(gaps, NUM_BINS)
    return float(sum(abs(gaps_of_bin.sum()) for gaps_of_bin in bins) / len(gaps))


def calibrated(head: Head, embeddings: Float32Array, labels: npt.NDArray[np.integer]) -> Head:
    """Return the head with the temperature that best fits the labels (n,) of unit embeddings (n, width).

    Raises:
        TrialDivergedError: If a logit is not finite.
    """
    logits = head.logits(embeddings)
    if not np.isfinite(logits).all():
        raise TrialDivergedError("the softmax head's weights are not finite")
    return head.at_temperature(fit_temperature(logits, labels))


def calibration_of(
    head: Head, embeddings: Float32Array, labels: npt.NDArray[np.integer], split: ScoredSplit
) -> Calibration:
    """Return a head's calibration before and after scaling on unit embeddings (n, width) with labels (n,)."""
    after = head.logits(embeddings).astype(np.float64)
    before = after * head.temperature
    probabilities_before = softmax(before)
    probabilities = softmax(after)
    return Calibration(
        trial=None,
        step=None,
        split=split,
        temperature=head.temperature,
        cross_entropy_before=cross_entropy(before, labels),
        cross_entropy=cross_entropy(after, labels),
        error_before=calibration_error(probabilities_before, labels),
        error=calibration_error(probabilities, labels),
    )
