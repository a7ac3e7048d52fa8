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
"""Maximum number of sentences to fit on; larger sets are sampled to limit the driver's memory use and time."""

MAX_CLASSES = 2**10
"""Maximum number of classes; with more, a fit would take hours on the driver and be limited to too few sentences."""

_MAX_VALUES = 2**27  # maximum number of elements of the sample's embeddings: 512 MiB
# maximum number of class probabilities for the sample; the solver keeps several copies and recomputes them at each step
_MAX_PROBABILITIES = 2**24

_SAMPLE = (0, 0, 1)  # spawn key of a random stream used only here

MAX_STEPS = 1000  # iteration limit of the solver, which usually needs dozens


def max_sentences(width: int, num_classes: int) -> int:
    """Return the maximum number of sentences to fit on; it is lower for many classes or wide embeddings."""
    return min(MAX_SENTENCES, _MAX_VALUES // width, _MAX_PROBABILITIES // num_classes)


def sample(num_sentences: int, max_rows: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the rows to fit a probe on, in ascending order: all rows, or a random sample of ``max_rows`` rows."""
    if num_sentences <= max_rows:
        return np.arange(num_sentences)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=_SAMPLE))
    return np.sort(rng.choice(num_sentences, max_rows, replace=False))


def fit(embeddings: Float32Array, labels: npt.NDArray[np.integer]) -> Head | None:
    """Fit a logistic regression of labels (n,) on unit embeddings (n, width), with scikit-learn's default penalty.

    The result is a softmax head over the classes that occur, in ascending order, or None if only one class occurs.
    """
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(labels)) < 2:
        return None
    regression = LogisticRegression(max_iter=MAX_STEPS)
    regression.fit(embeddings, labels)
    weight = regression.coef_
    bias = regression.intercept_
    # for two classes, the solver returns only the second class's logit; the first class's logit is 0
    if len(weight) == 1:
        weight = np.vstack([np.zeros_like(weight), weight])
        bias = np.concatenate([[0.0], bias])
    scale = embeddings.shape[1] ** 0.5  # heads multiply their weights by this factor
    weight = weight / scale
    return Head(weight.astype(np.float32), bias.astype(np.float32))


def fit_prepared(prepared: Prepared, seed: int, dev: EvaluationSet | None) -> Head | None:
    """Return a probe fitted on a sweep's training sentences, embedded by the reference, or None if all have the same label.

    If ``dev`` is given and no class is missing, the probe is calibrated on it. ``seed`` is the sweep's seed.
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
    """Return the per-query scores of the reference encoder's ``class_concat(g)`` with this head, keyed by g."""
    queries, pool = evaluation.reference_queries, evaluation.reference_pool
    encoded = Encoded(queries, pool).under(head)
    keys: list[PointKey] = [("class_concat", value) for value in values]
    scores = score_encoded(encoded, evaluation, keys)
    return {value: scores["class_concat", value] for value in values}
