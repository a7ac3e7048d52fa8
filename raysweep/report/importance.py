"""The importance of each parameter for a sweep's scores, over all trials, including those stopped early."""

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

MIN_TRIALS = 5  # fewer are not enough for an estimate


def importances(summary: Summary) -> Mapping[str, Mapping[str, float]]:
    """Return the share of each varied parameter, largest first, by target (``polarity``, ``similarity``, ``objective``).

    The shares of a target sum to 1. A parameter's share is the variance that it explains by itself, divided by the sum
    over all parameters; variance that only interactions explain is left out. A target is a score on dev of each rung's
    best point under the objective, as in the table of trials. All trials are compared at equal budget, that of the
    longest ones: see :func:`raysweep.report.curves.scores_at_the_end`. A target has no shares if fewer than
    ``MIN_TRIALS`` trials have a rung, or if no parameter varies or has an effect.
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
    """Return whether the rungs have valid steps and scores; a ledger edited by hand can contain anything."""
    places = [place for rung in each.rungs for place in (rung.step, rung.examples_seen)]
    objectives = [info.objective(point) for point in each.best_points]
    return min(places) > 0 and all(map(math.isfinite, [*places, *objectives]))


def _axes(trials: Sequence[TrialSummary]) -> list[Axis]:
    names = varied_parameters(each.trial for each in trials)
    return axes_of([each.trial.config for each in trials], names)


def _untrained(summary: Summary) -> FloatArray | None:
    """Return the scores at which every trial starts, which are those of R if the trials tune R; else None."""
    info = summary.results.info
    reference = summary.references.get("dev")
    if reference is None or info.model != info.reference:
        return None
    return np.array(_scores(reference, info))


def _scores(point: Point, info: RunInfo) -> tuple[float, float, float]:
    """Return the scores in the order of ``TARGETS``."""
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
    if total < 1e-12:  # equal scores, up to rounding
        return {}
    largest_first = np.argsort(-effects, kind="stable")
    return {axes[index].name: float(effects[index] / total) for index in largest_first}
