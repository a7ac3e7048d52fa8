"""Learning curves of trials, with early-stopped trials extrapolated to the length of the longest ones.

Partial training flatters similarity and hurts polarity, so scores at different rungs cannot be used to compare
configurations. Legend: ``n`` trials, ``d`` axes, ``t`` scores of a rung.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

SEED = 0  # fixed, so that the trees give the same predictions for the same curves


@dataclass(frozen=True)
class Curve:
    """The ``scores`` (rungs, t) of one trial by increasing step, with ``steps`` (rungs,) and ``examples`` seen (rungs,).

    ``num_rungs`` is the number of rungs in the full trial; 0 if unknown.
    """

    scores: FloatArray
    steps: FloatArray
    examples: FloatArray
    num_rungs: int

    @property
    def examples_per_rung(self) -> float:
        return float(self.examples[-1] / self.steps[-1])

    def begun_at(self, untrained: FloatArray) -> "Curve":
        """Return a curve that starts at step 0 with the scores (t,) before any training."""
        scores = np.vstack([untrained, self.scores])
        return Curve(scores, np.append(0.0, self.steps), np.append(0.0, self.examples), self.num_rungs)


def scores_at_the_end(curves: Sequence[Curve], places: FloatArray, untrained: FloatArray | None = None) -> FloatArray:
    """Return the scores (n, t) of each trial, extrapolated to the longest trials' progress.

    The longest trials have completed some share of their planned rungs, and every trial is extrapolated to the same
    share of its own. The missing rungs are added one by one: the gain of a rung is predicted from the configuration's
    ``places`` (n, d), the trial's progress and its scores at that point.

    ``untrained`` (t,) are the scores at which every trial starts, if known. The gain of the first rung is then part of
    the training data, which has no selection bias: trials that continued were selected for their scores, and are poor
    evidence about configurations that gain next to nothing.
    """
    if untrained is not None:
        curves = [curve.begun_at(untrained) for curve in curves]
    steps = np.array([curve.steps[-1] for curve in curves])
    scores = np.array([curve.scores[-1] for curve in curves])
    planned = _planned_rungs(curves)
    gains = _Gains.learned(curves, places, planned)
    if gains is None:
        return scores
    ends = np.round(planned * np.max(steps / planned))
    rung_sizes = np.array([curve.examples_per_rung for curve in curves])
    while np.any(steps < ends):
        short = np.flatnonzero(steps < ends)
        at = steps[short]
        progress = at / planned[short]
        features = _features(places[short], progress, rung_sizes[short], scores[short])
        scores[short] += gains.predict(features)
        steps[short] += 1
    return scores


def _planned_rungs(curves: Sequence[Curve]) -> FloatArray:
    """Return the planned rungs of each trial (n,): the maximum over trials with equal rung sizes.

    A resume may have added rungs.
    """
    most: defaultdict[int, float] = defaultdict(float)
    for curve in curves:
        length = round(curve.examples_per_rung)
        most[length] = max(most[length], curve.num_rungs, curve.steps[-1])
    return np.array([most[round(curve.examples_per_rung)] for curve in curves])


def _features(places: FloatArray, progress: FloatArray, rung_sizes: FloatArray, scores: FloatArray) -> FloatArray:
    """Return the features that predict a gain, (rungs, d + 2 + t); ``rung_sizes`` are the examples of a rung."""
    return np.column_stack([places, progress, np.log(rung_sizes), scores])


def _features_before_gains(curve: Curve, place: FloatArray, num_rungs: float) -> FloatArray:
    """Return the features of a trial's rungs but the last, which has no gain; ``num_rungs`` is the planned number."""
    num_gains = len(curve.steps) - 1
    places = np.tile(place, (num_gains, 1))
    progress = curve.steps[:-1] / num_rungs
    rung_sizes = np.full(num_gains, curve.examples_per_rung)
    return _features(places, progress, rung_sizes, curve.scores[:-1])


@dataclass(frozen=True)
class _Gains:
    """A model of the next rung's gain in each score: the mean of a forest and of boosted trees.

    Boosted trees are better if the effects of parameters add up, as in synthetic grids; the forest is better on the
    recorded table.
    """

    forest: Any
    boosted: Sequence[Any]  # one per score

    @classmethod
    def learned(cls, curves: Sequence[Curve], places: FloatArray, planned: FloatArray) -> "_Gains | None":
        """Fit the model; return None if no trial has scores at two steps."""
        from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor

        by_trial = map(_features_before_gains, curves, places, planned)
        features = np.concatenate(list(by_trial))
        if not len(features):
            return None
        gains = np.concatenate([np.diff(curve.scores, axis=0) for curve in curves])
        forest = ExtraTreesRegressor(50, min_samples_leaf=2, random_state=SEED).fit(features, gains)
        boosted = []
        for gain in gains.T:
            trees = HistGradientBoostingRegressor(max_depth=3, min_samples_leaf=5, random_state=SEED)
            boosted.append(trees.fit(features, gain))
        return cls(forest, boosted)

    def predict(self, features: FloatArray) -> FloatArray:
        """Return the predicted gains (rungs, t)."""
        by_boosting = np.column_stack([each.predict(features) for each in self.boosted])
        mean: FloatArray = (self.forest.predict(features) + by_boosting) / 2
        return mean
