"""What a trial is expected to add to the front: hypervolume for each example of its further training.

A prediction is a mixture of normal distributions, one for each shape that the learning curve may have. An expectation is
a weighted sum over nodes: for each shape a grid of ``NUM_NODES`` by ``NUM_NODES`` standard scores, of P and of S, each to
``LARGEST_SCORE`` on either side. The same grid serves every trial, so that promises differ by what is predicted alone. A
score of the grid moves all points of a trial, at all its rungs, by so many of their standard deviations.
"""

from dataclasses import dataclass

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.steps import Steps
from raysweep.search.stopping.curve_mixture import Prediction

NUM_NODES = 5


LARGEST_SCORE = 2.2


MIN_RELATIVE_GAIN = 0.0001  # of the front's area: what is no less counts as adding to it


MIN_WEIGHT = 0.005  # shapes that are less likely are left out


_GRID = np.linspace(-LARGEST_SCORE, LARGEST_SCORE, NUM_NODES)
_P_SCORES, _S_SCORES = (scores.ravel() for scores in np.meshgrid(_GRID, _GRID, indexing="ij"))
_SCORES = np.stack([_P_SCORES, _S_SCORES], axis=1)  # (nodes, d)
_DENSITY = np.exp(-0.5 * (_SCORES**2).sum(axis=1))
_NODE_WEIGHTS = _DENSITY / _DENSITY.sum()


@dataclass(frozen=True)
class Promise:
    """Expected hypervolume: the most for each example of further training, and all that the rungs ahead add.

    ``probability`` is that of adding anything, ``at_best`` what is added in the best of the cases.
    """

    per_example: float
    total: float
    probability: float
    at_best: float


NOTHING = Promise(0.0, 0.0, 0.0, 0.0)


def promise_of(
    front: Steps, prediction: Prediction, budgets: Float64Array, begin: float, gained: float = 0.0
) -> Promise:
    """What a trial adds to the front of others from its last rung on, beyond what it adds with its last rung.

    The prediction is of its last rung and those ahead, which end after ``budgets`` (rungs,) examples. Where its points lie
    higher or lower than they seem to, they do so at its last rung already, which is neither a gain nor a loss. Examples are
    counted from ``begin`` on, since when its points have added ``gained``: nothing where it is the last rung.
    """
    likely = prediction.weights >= MIN_WEIGHT
    likely_weights = prediction.weights[likely]
    shape_weights = likely_weights / likely_weights.sum()
    mean, sd = prediction.mean[likely], prediction.sd[likely]
    points = mean[:, None] + sd[:, None] * _SCORES[None, :, None, None, :]  # (k, nodes, rungs, i, d)
    areas = front.gains(points.reshape(-1, *points.shape[2:]))
    gains = areas[:, 1:] - areas[:, :1]
    weights = (shape_weights[:, None] * _NODE_WEIGHTS).ravel()
    rates = (gained + gains) / (budgets[1:] - begin)
    rate_so_far = gained / (budgets[0] - begin) if gained else 0.0
    best_rates = np.maximum(rates.max(axis=1), rate_so_far)
    totals = gains[:, -1]
    adds = totals > MIN_RELATIVE_GAIN * front.area
    return Promise(
        per_example=float(weights @ best_rates),
        total=float(weights @ totals),
        probability=float(weights @ adds),
        at_best=float(totals.max()),
    )
