"""Linear probes: logistic regressions of labels on a frozen encoder's embeddings."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from raysweep.data.prepared import Prepared
from raysweep.evaluation.calibration import calibrated
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.evaluation.operating_points import Encoded, Head, score_encoded
from raysweep.metrics.arrays import Float32Array
from raysweep.metrics.retrieval import Scores
from raysweep.results.types import PointKey

MAX_SENTENCES = 100_000
"""Maximum number of sentences to fit on; larger sets are sampled."""

MAX_CLASSES = 2**10
"""Maximum number of classes; with more, a fit would take hours."""

_MAX_VALUES = 2**27  # maximum number of embedding values in the sample (512 MiB)
# maximum number of class probabilities for the sample; the solver keeps several copies of them
_MAX_PROBABILITIES = 2**24

_SAMPLE = (0, 0, 1)  # spawn key of the sample's random stream

MAX_STEPS = 1000  # maximum number of solver iterations; dozens are usually enough


def max_sentences(width: int, num_classes: int) -> int:
    """Return the maximum number of sentences to fit on."""
    return min(MAX_SENTENCES, _MAX_VALUES // width, _MAX_PROBABILITIES // num_classes)


def sample(num_sentences: int, max_rows: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the sorted rows to fit a probe on: all rows, or a random sample of ``max_rows``."""
    if num_sentences <= max_rows:
        return np.arange(num_sentences)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=_SAMPLE))
    return np.sort(rng.choice(num_sentences, max_rows, replace=False))


def fit(embeddings: Float32Array, labels: npt.NDArray[np.integer]) -> Head | None:
    """Fit a logistic regression of labels (n,) on unit embeddings (n, width), with scikit-learn's default penalty.

    Returns:
        A softmax head over the classes in ``labels``, in ascending order, or None if there is only one class.
    """
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(labels)) < 2:
        return None
    regression = LogisticRegression(max_iter=MAX_STEPS)
    regression.fit(embeddings, labels)
    weight = regression.coef_
    bias = regression.intercept_
    # for two classes, scikit-learn stores only the second class's weights; the first class's are 0
    if len(weight) == 1:
        weight = np.vstack([np.zeros_like(weight), weight])
        bias = np.concatenate([[0.0], bias])
    scale = embeddings.shape[1] ** 0.5  # heads multiply their weights by this factor
    weight = weight / scale
    return Head(weight.astype(np.float32), bias.astype(np.float32))


def fit_prepared(prepared: Prepared, seed: int, dev: EvaluationSet | None) -> Head | None:
    """Fit a probe on the reference embeddings of a sweep's training sentences.

    Args:
        prepared: The sweep's artifacts.
        seed: The sweep's seed.
        dev: The set to calibrate the probe on, unless the training sample lacks a class.

    Returns:
        The probe, or None if all sentences have the same label.
    """
    sentences = prepared.sentences
    num_classes = len(sentences.label_names)
    reference_embeddings = prepared.reference_embeddings.document
    _, width = reference_embeddings.shape
    train = sentences.ids("train")
    ids = train[sample(len(train), max_sentences(width, num_classes), seed)]
    head = fit(np.asarray(reference_embeddings[ids]), np.asarray(sentences.labels[ids]))
    if head is None or dev is None or len(head.bias) < num_classes:
        return head
    return calibrated(head, dev.reference_queries, dev.query_labels)


def score(head: Head, evaluation: EvaluationSet, values: Sequence[float]) -> Mapping[float, Scores]:
    """Return the per-query scores of the reference encoder's ``class_concat(g)`` points, keyed by g."""
    queries, pool = evaluation.reference_queries, evaluation.reference_pool
    encoded = Encoded(queries, pool).under(head)
    keys: list[PointKey] = [("class_concat", value) for value in values]
    scores = score_encoded(encoded, evaluation, keys)
    return {value: scores["class_concat", value] for value in values}
