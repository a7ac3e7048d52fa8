"""Class probabilities that are calibrated: one temperature, fitted on sentences that a head was not trained on.

With logits z of a head, a temperature T makes its probabilities softmax(z / T). It is the one of least log loss on held-out
sentences: Guo et al. 2017, arXiv:1706.04599. The classes that a head takes for the likeliest stay the same.
"""

import numpy as np
import numpy.typing as npt

from raysweep.evaluation.evaluation_set import TrialDivergedError
from raysweep.evaluation.operating_points import Head
from raysweep.metrics.arrays import Float32Array, Float64Array
from raysweep.results.types import Calibration, ScoredSplit

LEAST_TEMPERATURE = 0.05
"""Also where no wrong sentence limits how sure a head may be: the log loss then has no minimum."""

MOST_TEMPERATURE = 20.0
"""Also where a head knows less than nothing, as one that calls most sentences by another class."""

NUM_BINS = 15
"""Of the expected calibration error."""

_EXACT = 1e-10  # of 1 / T


def fit_temperature(logits: npt.NDArray[np.floating], labels: npt.NDArray[np.integer]) -> float:
    """The T of least mean log loss of softmax(logits / T), between the least and the most temperature.

    ``logits`` are (n, classes), ``labels`` (n,) columns of them, n >= 1. The loss is convex in 1 / T, so where its slope is
    0 it is least.
    """
    from scipy.optimize import brentq

    exact = np.asarray(logits, dtype=np.float64)
    of_label = exact[np.arange(len(labels)), labels]

    def slope(inverse: float) -> float:
        expected = (_softmax(inverse * exact) * exact).sum(axis=1)
        return float((expected - of_label).mean())

    least, most = 1 / MOST_TEMPERATURE, 1 / LEAST_TEMPERATURE
    if slope(most) <= 0:
        return LEAST_TEMPERATURE
    if slope(least) >= 0:
        return MOST_TEMPERATURE
    return float(1 / brentq(slope, least, most, xtol=_EXACT))


def cross_entropy(logits: npt.NDArray[np.floating], labels: npt.NDArray[np.integer]) -> float:
    """The mean log loss, in nats, of softmax(logits): logits (n, classes), labels (n,) columns of them."""
    exact = np.asarray(logits, dtype=np.float64)
    greatest = exact.max(axis=1)
    log_sums = greatest + np.log(np.exp(exact - greatest[:, None]).sum(axis=1))
    of_label = exact[np.arange(len(labels)), labels]
    return float((log_sums - of_label).mean())


def calibration_error(probabilities: npt.NDArray[np.floating], labels: npt.NDArray[np.integer]) -> float:
    """The expected calibration error, in [0, 1], of probabilities (n, classes) and labels (n,), columns of them.

    Sentences by rising probability of their likeliest class fall into ``NUM_BINS`` bins of as many each. It is the mean
    distance, over sentences, of a bin's accuracy from the mean of these probabilities: Nguyen and O'Connor 2015,
    arXiv:1508.05154.
    """
    predicted = probabilities.argmax(axis=1)
    confidence = probabilities.max(axis=1).astype(np.float64)
    is_right = (predicted == labels).astype(np.float64)
    gap = (is_right - confidence)[np.argsort(confidence, kind="stable")]
    bins = np.array_split(gap, NUM_BINS)
    return float(sum(abs(each.sum()) for each in bins) / len(gap))


def calibrated(head: Head, embeddings: Float32Array, labels: npt.NDArray[np.integer]) -> Head:
    """The head with the temperature folded in that fits the labels (n,) of unit embeddings (n, width) best.

    TrialDivergedError where it has become useless.
    """
    logits = head.logits(embeddings)
    if not np.isfinite(logits).all():
        raise TrialDivergedError("the weights of the softmax head are no longer finite numbers")
    return head.at_temperature(fit_temperature(logits, labels))


def calibration_of(
    head: Head, embeddings: Float32Array, labels: npt.NDArray[np.integer], split: ScoredSplit
) -> Calibration:
    """How well a head with its temperature folded in, and without, fits the labels (n,) of unit embeddings (n, width)."""
    after = head.logits(embeddings).astype(np.float64)
    before = after * head.temperature
    return Calibration(
        trial=None,
        step=None,
        split=split,
        temperature=head.temperature,
        cross_entropy_before=cross_entropy(before, labels),
        cross_entropy=cross_entropy(after, labels),
        error_before=calibration_error(_softmax(before), labels),
        error=calibration_error(_softmax(after), labels),
    )


def _softmax(logits: Float64Array) -> Float64Array:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities: Float64Array = powers / powers.sum(axis=1, keepdims=True)
    return probabilities
