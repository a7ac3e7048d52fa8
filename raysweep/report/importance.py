"""How much each parameter of a sweep matters for its scores, over all trials, those that were stopped early too."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from raysweep.report.axes import Axis, axes_of
from raysweep.report.curves import Curve, scores_at_the_end
from raysweep.report.response_surface import main_effects
from raysweep.report.summary import Summary, TrialSummary
from raysweep.results.types import Point, RunInfo
from raysweep.results.views import varied_parameters

FloatArray = NDArray[np.float64]

TARGETS = ("polarity", "similarity", "objective")

MIN_TRIALS = 5  # of fewer nothing can be told


def importances(summary: Summary) -> Mapping[str, Mapping[str, float]]:
    """By target (``polarity``, ``similarity``, ``objective``) the share of each varied parameter, the largest first.

    Shares of a target sum to 1. A parameter's is the variance that it explains by itself, of what all parameters explain by
    themselves: what several explain only together is in none. A target is a score, on dev, of a rung's best point under the
    objective, as in the table of trials. All trials are compared at equal budget, where the longest ones are: see
    :func:`raysweep.report.curves.scores_at_the_end`. A target has no shares where nothing can be told: of fewer than
    ``MIN_TRIALS`` trials with a rung, or where no parameter varies or makes a difference.
    """
    info = summary.results.info
    trials = [each for each in summary.trials if each.rungs and _is_sound(each, info)]
    axes = _axes(trials) if len(trials) >= MIN_TRIALS else []
    if not axes:
        return {target: {} for target in TARGETS}
    places = np.column_stack([axis.places for axis in axes])
    curves = [_curve(each, info) for each in trials]
    by_target = scores_at_the_end(curves, places, _untrained(summary)).T
    shares = [_shares(axes, scores) for scores in by_target]
    return dict(zip(TARGETS, shares, strict=True))


def _is_sound(each: TrialSummary, info: RunInfo) -> bool:
    """Whether its rungs have places and scores; a ledger that was changed by hand may hold anything."""
    places = [place for rung in each.rungs for place in (rung.step, rung.examples_seen)]
    objectives = [info.objective(point) for point in each.best_points]
    return min(places) > 0 and all(map(math.isfinite, [*places, *objectives]))


def _axes(trials: Sequence[TrialSummary]) -> list[Axis]:
    names = varied_parameters(each.trial for each in trials)
    return axes_of([each.trial.config for each in trials], names)


def _untrained(summary: Summary) -> FloatArray | None:
    """The scores with which every trial begins: those of R, where R is what they train."""
    info = summary.results.info
    reference = summary.references.get("dev")
    if reference is None or info.model != info.reference:
        return None
    return np.array(_scores(reference, info))


def _scores(point: Point, info: RunInfo) -> tuple[float, float, float]:
    """Those of ``TARGETS``."""
    return point.polarity, point.similarity, info.objective(point)


def _curve(each: TrialSummary, info: RunInfo) -> Curve:
    return Curve(
        scores=np.array([_scores(point, info) for point in each.best_points]),
        steps=np.array([rung.step for rung in each.rungs], dtype=np.float64),
        examples=np.array([rung.examples_seen for rung in each.rungs], dtype=np.float64),
        num_rungs=each.trial.num_rungs,
    )


def _shares(axes: Sequence[Axis], scores: FloatArray) -> dict[str, float]:
    effects = main_effects(axes, scores)
    total = effects.sum()
    if total < 1e-12:  # of scores that are all alike, but for rounding
        return {}
    largest_first = np.argsort(-effects, kind="stable")
    return {axes[index].name: float(effects[index] / total) for index in largest_first}
