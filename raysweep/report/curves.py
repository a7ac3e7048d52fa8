"""Learning curves of trials, and what those that were stopped early would have scored where the longest ones are.

Partial training flatters similarity and hurts polarity, so that scores of different rungs say nothing about configurations.
Legend: ``n`` trials, ``d`` axes, ``t`` scores of a rung.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

SEED = 0  # of the trees: the same curves give the same predictions


@dataclass(frozen=True)
class Curve:
    """What one trial scored: ``scores`` (rungs, t) by rising step, at ``steps`` (rungs,) and after so many ``examples``.

    ``num_rungs`` is how many it has if it runs to its end; 0 where that is not known.
    """

    scores: FloatArray
    steps: FloatArray
    examples: FloatArray
    num_rungs: int

    @property
    def examples_per_rung(self) -> float:
        return float(self.examples[-1] / self.steps[-1])

    def begun_at(self, untrained: FloatArray) -> "Curve":
        """The same, with the scores (t,) before any training as step 0."""
        scores = np.vstack([untrained, self.scores])
        return Curve(scores, np.append(0.0, self.steps), np.append(0.0, self.examples), self.num_rungs)


def scores_at_the_end(curves: Sequence[Curve], places: FloatArray, untrained: FloatArray | None = None) -> FloatArray:
    """The scores (n, t) of each trial where the longest ones are, of configurations at ``places`` (n, d).

    The longest have come to a share of the rungs that they have in all, and each trial is taken to that share of its own.
    To one that did not come so far, rung after rung is added what such a rung brought others: that is learned from the
    configuration, from how far the trial is, and from its scores there.

    ``untrained`` (t,) are the scores that every trial begins with, where they are known. Then what the first rung brought is
    learned from too, of which nobody has been left out: trials that went on were chosen for their scores, and tell little of
    configurations that bring next to nothing.
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
    """How many rungs each trial has in all (n,): as many as any whose rungs are as long. A resume may have added some."""
    most: defaultdict[int, float] = defaultdict(float)
    for curve in curves:
        length = round(curve.examples_per_rung)
        most[length] = max(most[length], curve.num_rungs, curve.steps[-1])
    return np.array([most[round(curve.examples_per_rung)] for curve in curves])


def _features(places: FloatArray, progress: FloatArray, rung_sizes: FloatArray, scores: FloatArray) -> FloatArray:
    """What a gain is learned from, (rungs, d + 2 + t); ``rung_sizes`` are the examples of a rung."""
    return np.column_stack([places, progress, np.log(rung_sizes), scores])


def _features_before_gains(curve: Curve, place: FloatArray, num_rungs: float) -> FloatArray:
    """Of all rungs of a trial but its last, which nothing follows; ``num_rungs`` is how many it has in all."""
    num_gains = len(curve.steps) - 1
    places = np.tile(place, (num_gains, 1))
    progress = curve.steps[:-1] / num_rungs
    rung_sizes = np.full(num_gains, curve.examples_per_rung)
    return _features(places, progress, rung_sizes, curve.scores[:-1])


@dataclass(frozen=True)
class _Gains:
    """What the next rung adds to each score: the mean of two kinds of trees.

    Boosted ones are better where effects of parameters add up, as on made grids; the forest is on the recorded table.
    """

    forest: Any
    boosted: Sequence[Any]  # by score

    @classmethod
    def learned(cls, curves: Sequence[Curve], places: FloatArray, planned: FloatArray) -> "_Gains | None":
        """None where no trial has scores at two steps."""
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
        """Of rungs with these features, (rungs, t)."""
        by_boosting = np.column_stack([each.predict(features) for each in self.boosted])
        mean: FloatArray = (self.forest.predict(features) + by_boosting) / 2
        return mean
