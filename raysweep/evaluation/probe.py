"""A linear probe: what a logistic regression on the embeddings of a frozen encoder knows of the labels."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.evaluation.operating_points import Encoded, Head, score_encoded
from raysweep.metrics.arrays import Float32Array
from raysweep.metrics.retrieval import Scores

MOST_SENTENCES = 100_000
"""That the regression is fitted on: of more a sample, which bounds the driver's memory and time."""

MOST_CLASSES = 2**10
"""Of which a probe is fitted; with more it would take the driver hours, and a share of the sentences."""

_MOST_NUMBERS = 2**27  # of the sample's embeddings: 512 MiB
_MOST_PROBABILITIES = 2**24  # of the sample, which the solver holds several times, and computes at each of its steps

_SAMPLE = (0, 0, 1)  # the stream of random numbers that nothing else draws from

MOST_STEPS = 1000  # of the solver, which takes some dozens


def most_sentences(width: int, num_classes: int) -> int:
    """``MOST_SENTENCES``, or fewer where embeddings are wide or classes many."""
    return min(MOST_SENTENCES, _MOST_NUMBERS // width, _MOST_PROBABILITIES // num_classes)


def sample(num_sentences: int, most: int, seed: int) -> npt.NDArray[np.int64]:
    """The rows that a probe is fitted on, ascending: all, or of more than ``most`` so many by chance."""
    if num_sentences <= most:
        return np.arange(num_sentences)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=_SAMPLE))
    return np.sort(rng.choice(num_sentences, most, replace=False))


def fit(embeddings: Float32Array, labels: npt.NDArray[np.integer]) -> Head | None:
    """The logistic regression of scikit-learn, with its defaults, of ``labels`` (n,) on unit ``embeddings`` (n, width).

    As the head of a softmax over the classes that occur, in ascending order; None where only one does, of which there is
    nothing to learn.
    """
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(labels)) < 2:
        return None
    regression = LogisticRegression(max_iter=MOST_STEPS).fit(embeddings, labels)
    weight, bias = regression.coef_, regression.intercept_
    if len(weight) == 1:  # of two classes the solver gives the logit of the second, the first one's being 0
        weight = np.vstack([np.zeros_like(weight), weight])
        bias = np.concatenate([[0.0], bias])
    scale = embeddings.shape[1] ** 0.5  # by which a head multiplies its weights
    return Head((weight / scale).astype(np.float32), bias.astype(np.float32))


def score(head: Head, evaluation: EvaluationSet, values: Sequence[float]) -> Mapping[float, Scores]:
    """Per-query scores of ``class_concat(g)`` of the reference encoder with this head, for each g of ``values``."""
    queries, pool = evaluation.reference_queries, evaluation.reference_pool
    encoded = Encoded(queries, pool).under(head)
    scores = score_encoded(encoded, evaluation, [("class_concat", value) for value in values])
    return {value: scores["class_concat", value] for value in values}
