"""Estimate how much each parameter affects a sweep's scores.

Similarity usually falls and polarity rises during training, so scores at different rungs are not comparable. The
learning curves of trials that stopped early are therefore extrapolated.

Notation: ``n`` trials, ``d`` axes, ``t`` scores per rung.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysweep.report.axes import Axis, axes_of
from raysweep.report.response_surface import main_effects, resampled_effects, sample_size
from raysweep.report.summary import Summary, TrialSummary
from raysweep.results.types import Point, RunInfo
from raysweep.results.views import varied_parameters
from raysweep.uncertainty.interval import LEVEL, Interval

FloatArray = NDArray[np.float64]


MIN_TRIALS = 20  # minimum number of trials with MIN_RUNGS rungs; fewer would yield mostly noise
MIN_RUNGS = 2  # one rung does not distinguish a fast start from a good final score
NUM_SAMPLES = 60  # number of bootstrap samples
MIN_VARIANCE = 1e-12  # smaller variances are rounding errors

SEED = 0  # fixed for reproducible results


@dataclass(frozen=True)
class Curve:
    """A trial's ``scores`` (rungs, t), with the ``steps`` (rungs,) and the ``examples`` seen (rungs,).

    ``num_rungs`` is the number of planned rungs, or 0 if unknown.
    """

    scores: FloatArray
    steps: FloatArray
    examples: FloatArray
    num_rungs: int

    @property
    def examples_per_rung(self) -> float:
        return float(self.examples[-1] / self.steps[-1])

    def with_start(self, untrained: FloatArray) -> "Curve":
        """Return a copy with the scores ``untrained`` (t,) at step 0."""
        scores = np.vstack([untrained, self.scores])
        steps = np.append(0.0, self.steps)
        examples = np.append(0.0, self.examples)
        return Curve(scores, steps, examples, self.num_rungs)


def scores_at_the_end(
    curves: Sequence[Curve], places: FloatArray, untrained: FloatArray | None = None
) -> FloatArray:
    """Return the scores (n, t) of all trials, extrapolated to the largest progress of any trial.

    Progress is the share of a trial's planned rungs that it has completed. Missing rungs are added
    one at a time. The gain from a rung is predicted from the configuration's ``places`` (n, d), the
    trial's progress, its rung size and its current scores.

    ``untrained`` (t,) contains the scores before training, if they are the same for all trials.
    Gains from first rungs are then used to fit the model. Later gains alone would bias it, because
    trials with low scores are stopped early.
    """
    if untrained is not None:
        curves = [curve.with_start(untrained) for curve in curves]
    steps = np.array([curve.steps[-1] for curve in curves])
    scores = np.array([curve.scores[-1] for curve in curves])
    planned = _planned_rungs(curves)
    gains = _Gains.fit(curves, places, planned)
    if gains is None:
        return scores
    largest_share = np.max(steps / planned)
    ends = np.round(planned * largest_share)
    rung_sizes = np.array([curve.examples_per_rung for curve in curves])
    unfinished = np.flatnonzero(steps < ends)
    while len(unfinished):
        progress = steps[unfinished] / planned[unfinished]
        features = _features(
            places[unfinished], progress, rung_sizes[unfinished], scores[unfinished]
        )
        scores[unfinished] += gains.predict(features)
        steps[unfinished] += 1
        unfinished = np.flatnonzero(steps < ends)
    return scores


def _planned_rungs(curves: Sequence[Curve]) -> FloatArray:
    """Return each trial's number of planned rungs (n,).

    A resume may add rungs, so this is the maximum over all trials with the same rung size.
    """
    maxima: defaultdict[int, float] = defaultdict(float)
    for curve in curves:
        rung_size = round(curve.examples_per_rung)
        maxima[rung_size] = max(maxima[rung_size], curve.num_rungs, curve.steps[-1])
    return np.array([maxima[round(curve.examples_per_rung)] for curve in curves])


def _features(
    places: FloatArray, progress: FloatArray, rung_sizes: FloatArray, scores: FloatArray
) -> FloatArray:
    """Return features (rungs, d + 2 + t) for predicting gains; ``rung_sizes`` are in examples."""
    return np.column_stack([places, progress, np.log(rung_sizes), scores])


@dataclass(frozen=True)
class _Gains:
    """A model that predicts each score's gain at the next rung as the mean of a forest and boosted trees.

    Boosted trees predict additive effects better; the forest is better on recorded sweeps.
    """

    forest: Any
    boosted: Sequence[Any]  # one per score

    @classmethod
    def fit(
        cls, curves: Sequence[Curve], places: FloatArray, planned: FloatArray
    ) -> "_Gains | None":
        """Fit the model, or return None if no trial has scores at two steps."""
        from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor

        features_by_trial = []
        for curve, place, num_rungs in zip(curves, places, planned, strict=True):
            num_gains = len(curve.steps) - 1  # the gain after the last rung is unknown
            repeated_place = np.tile(place, (num_gains, 1))
            progress = curve.steps[:-1] / num_rungs
            rung_sizes = np.full(num_gains, curve.examples_per_rung)
            of_trial = _features(repeated_place, progress, rung_sizes, curve.scores[:-1])
            features_by_trial.append(of_trial)
        features = np.concatenate(features_by_trial)
        if not len(features):
            return None
        gains_by_trial = [np.diff(curve.scores, axis=0) for curve in curves]
        gains = np.concatenate(gains_by_trial)
        forest = ExtraTreesRegressor(50, min_samples_leaf=2, random_state=SEED)
        forest.fit(features, gains)
        boosted = []
        for gain in gains.T:
            trees = HistGradientBoostingRegressor(
                max_depth=3, min_samples_leaf=5, random_state=SEED
            )
            trees.fit(features, gain)
            boosted.append(trees)
        return cls(forest, boosted)

    def predict(self, features: FloatArray) -> FloatArray:
        """Return the predicted gains (rungs, t)."""
        boosted = np.column_stack([trees.predict(features) for trees in self.boosted])
        mean: FloatArray = (self.forest.predict(features) + boosted) / 2
        return mean


@dataclass(frozen=True)
class Share:
    """A parameter's share of the variance that individual parameters explain, with its bootstrap interval."""

    value: float
    interval: Interval


@dataclass(frozen=True)
class Importance:
    """The parameters' ``shares``, keyed by target (such as ``polarity``) and parameter, largest first.

    A target has no shares if there are too few trials or no parameter has an effect.
    ``num_missing`` is the number of additional trials needed.
    """

    shares: Mapping[str, Mapping[str, Share]]
    num_missing: int = 0


def importances(summary: Summary) -> Importance:
    """Return each parameter's share of the variance of a sweep's dev scores.

    A share is the variance that the parameter explains by itself, divided by the sum of these
    variances over all parameters. Variance that only interactions explain is left out. Scores are
    those of each rung's best point by the objective, extrapolated by :func:`scores_at_the_end`.
    Intervals are bootstrapped over trials without repeating the extrapolation.

    ``MIN_TRIALS`` trials must have ``MIN_RUNGS`` rungs, or one rung if only one was planned.
    """
    info = summary.results.info
    targets = (*info.goals, "objective")
    trials = [trial for trial in summary.trials if trial.rungs and _is_valid(trial, info)]
    configs = [trial.trial.config for trial in trials]
    names = varied_parameters(trial.trial for trial in trials)
    axes = axes_of(configs, names)
    num_usable = 0
    for trial in trials:
        min_rungs = min(MIN_RUNGS, trial.trial.num_rungs or MIN_RUNGS)
        num_usable += len(trial.rungs) >= min_rungs
    num_missing = max(0, MIN_TRIALS - num_usable)
    if not axes or num_missing:
        return Importance({target: {} for target in targets}, num_missing)
    places = np.column_stack([axis.places for axis in axes])
    curves = [_curve(trial, info) for trial in trials]
    reference = summary.references.get("dev")
    untrained = None
    # every trial fine-tunes the reference, so its initial scores are the reference's
    if reference is not None and info.model == info.reference:
        untrained = np.array(_scores(reference, info))
    final_scores = scores_at_the_end(curves, places, untrained)
    shares = [_shares(axes, scores) for scores in final_scores.T]
    return Importance(dict(zip(targets, shares, strict=True)))


def _is_valid(trial: TrialSummary, info: RunInfo) -> bool:
    """Return whether steps and scores are valid; a manually edited ledger can contain anything."""
    progress = [number for rung in trial.rungs for number in (rung.step, rung.examples_seen)]
    objectives = [info.objective(point) for point in trial.best_points]
    return min(progress) > 0 and all(map(math.isfinite, [*progress, *objectives]))


def _curve(trial: TrialSummary, info: RunInfo) -> Curve:
    """Return the scores of the best point at each rung."""
    rungs = trial.rungs
    scores = [_scores(point, info) for point in trial.best_points]
    steps = [rung.step for rung in rungs]
    examples = [rung.examples_seen for rung in rungs]
    return Curve(
        scores=np.array(scores),
        steps=np.array(steps, dtype=np.float64),
        examples=np.array(examples, dtype=np.float64),
        num_rungs=trial.trial.num_rungs,
    )


def _scores(point: Point, info: RunInfo) -> tuple[float, float, float]:
    """Return a point's P, S and objective."""
    return *point.pair(info.goals), info.objective(point)


def _shares(axes: Sequence[Axis], scores: FloatArray) -> dict[str, Share]:
    effects = main_effects(axes, scores)
    total = effects.sum()
    if total < MIN_VARIANCE:
        return {}
    values = effects / total
    lows, highs = _bounds(axes, scores, values)
    shares = {}
    for index in np.argsort(-effects, kind="stable"):
        interval = Interval(float(lows[index]), float(highs[index])).within(0.0, 1.0)
        shares[axes[index].name] = Share(float(values[index]), interval)
    return shares


def _bounds(axes: Sequence[Axis], scores: FloatArray, values: FloatArray) -> FloatArray:
    """Return the bounds (2, d) of bootstrap intervals that contain the shares ``values`` (d,).

    If bootstrap samples are smaller than the number of trials, deviations are scaled down accordingly (P. Bickel, F.
    Goetze, W. van Zwet, "Resampling fewer than n observations", 1997).
    """
    effects = resampled_effects(axes, scores, NUM_SAMPLES)
    totals = effects.sum(axis=1, keepdims=True)
    has_effects = totals[:, 0] >= MIN_VARIANCE
    if not has_effects.any():
        return np.stack([np.zeros_like(values), np.ones_like(values)])
    shares = effects[has_effects] / totals[has_effects]
    share_drawn = sample_size(len(scores)) / len(scores)
    deviations = math.sqrt(share_drawn) * (shares - values)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(deviations, [tail, 1 - tail], axis=0)
    bounds: FloatArray = values + np.stack([np.minimum(low, 0), np.maximum(high, 0)])
    return bounds
