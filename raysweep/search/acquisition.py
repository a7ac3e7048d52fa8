"""Which of many configurations to try next, by Gaussian processes: for the sake of one value, or of a whole front."""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import Pair
from raysweep.metrics.steps import Steps
from raysweep.search.conditional_space import Code
from raysweep.search.gaussian_process import KernelFitter, Queries, TrainingSet, predict
from raysweep.search.history import History, Row, points_of, values_of

WORST = 3.0  # how far below the median a value may lie, in multiples of how far the best lies above it
TINY = 1e-12  # keeps a divisor from 0


UCB_DEVIATIONS = 0.5  # posterior standard deviations that a candidate may be better by: the upper confidence bound


SUPPORTING_WEIGHTS = (
    0.1,
    0.3,
    0.5,
    0.7,
    0.9,
)  # of P, against that of S: the directions in which a front's points are taken


class Acquisition(Protocol):
    """Says how good candidates are to try next, by what the trials of one space have shown.

    Until ``num_startup_trials`` have a value, the model is not asked and every choice is tried alike.
    """

    num_startup_trials: int
    begins_in_the_middle: bool

    def scores(self, history: History, candidates: Float64Array, random: np.random.Generator) -> Float64Array:
        """Of the candidates (candidates, axes) the one of the highest score (candidates,) is the one to try."""

    def to_refine(self, history: History, count: int, random: np.random.Generator) -> list[int]:
        """The numbers of trials near which to look, ``count`` at most."""


class UpperConfidenceBound:
    """Of a trial's value at the largest budget seen."""

    num_startup_trials = 8
    begins_in_the_middle = False

    def __init__(self, num_axes: int) -> None:
        self._fitter = KernelFitter(num_axes)

    def scores(self, history: History, candidates: Float64Array, random: np.random.Generator) -> Float64Array:
        training, rows = history.lessons(random)
        pending = as_array(list(history.pending.values()), candidates.shape[1])
        values = _standardised_roots(values_of(rows))
        posteriors = self._fitter.fit(training, values, random)
        mean, deviation = predict(posteriors, Queries(training, pending, candidates))
        bound: Float64Array = mean + UCB_DEVIATIONS * deviation
        return bound[:, 0]

    def to_refine(self, history: History, count: int, random: np.random.Generator) -> list[int]:
        return history.best(count)


class FrontImprovement:
    """The hypervolume above a reference point that a trial is expected to add to the joint front at the largest budget seen.

    P and S each have a Gaussian process. A trial of several points is known by those of them that lie farthest in a few
    directions, one output each. Trials that run count as if they had turned out as predicted.
    """

    num_startup_trials = 4
    begins_in_the_middle = True  # where who gave the ranges expects good values

    def __init__(self, num_axes: int, reference_point: Pair) -> None:
        self._reference_point = reference_point
        self._fitters = (KernelFitter(num_axes), KernelFitter(num_axes))

    def scores(self, history: History, candidates: Float64Array, random: np.random.Generator) -> Float64Array:
        num_axes = candidates.shape[1]
        training, rows = history.lessons(random)
        pending = as_array(list(history.pending.values()), num_axes)
        running = np.concatenate([pending, as_array(history.rising, num_axes)])
        queries = Queries(training, pending, np.concatenate([running, candidates]))
        predicted = self._predicted(training, _points_that_stand_for(rows), queries, random)
        of_running = predicted[0, : len(running)]
        mean, deviation = predicted[:, len(running) :]
        seen, _ = history.joint_front(self._reference_point)
        front = Steps(self._reference_point, np.concatenate([seen, of_running.reshape(-1, 2)]))
        gains = expected_gains(front, mean, deviation)
        return gains if gains.any() else _margins(mean, deviation, self._reference_point)

    def _predicted(
        self, training: TrainingSet, points: Float64Array, queries: Queries, random: np.random.Generator
    ) -> Float64Array:
        """Mean and standard deviation of the queries' points, learnt from those of the rows: (2, queries, points, 2)."""
        predicted = []
        for fitter, scores in zip(self._fitters, (points[:, :, 0], points[:, :, 1]), strict=True):
            values, centre, unit = _standardised(scores)
            mean, deviation = predict(fitter.fit(training, values, random), queries)
            predicted.append([centre + unit * mean, unit * deviation])
        return np.stack(predicted, axis=-1)

    def to_refine(self, history: History, count: int, random: np.random.Generator) -> list[int]:
        _, owners = history.joint_front(self._reference_point)
        chosen: list[int] = random.permutation(owners).tolist()[:count]
        return chosen or history.best(count)


def _points_that_stand_for(rows: Sequence[Row]) -> Float64Array:
    """(rows, points, 2), one point a row where no trial has more."""
    fronts = [row.front for row in rows if row.front is not None]
    if all(len(front) == 1 for front in fronts):
        return points_of(rows, lambda front: front)
    units = np.ptp(np.concatenate(fronts), axis=0) + TINY
    return points_of(rows, lambda front: front[_farthest(front / units)])


def _farthest(points: Float64Array) -> NDArray[np.int64]:
    """Which of the points (n, 2) lies farthest in each direction between P and S: (directions,)."""
    weights = np.array(SUPPORTING_WEIGHTS)
    directions = np.stack([weights, 1 - weights])
    farthest: NDArray[np.int64] = np.argmax(points @ directions, axis=0)
    return farthest


def expected_gains(front: Steps, mean: Float64Array, deviation: Float64Array) -> Float64Array:
    """The area that trials' points (trials, points, 2) are expected to add to a front: (trials,).

    P and S of a trial are normal and independent, and move all its points alike. With x and y above the reference point,
    the points of a trial stand side by side: each covers the strip between the point before it and its own x, up to its y.
    What a strip adds is a sum over the front's steps, of the width that it shares with a step times how far it rises above
    it, and both are differences of expected excesses. For one point this is the expected hypervolume improvement in the
    closed form of Emmerich, Deutz and Klinkenberg (2011).
    """
    order = np.argsort(mean[:, :, :1], axis=1)
    x, y = np.moveaxis(np.take_along_axis(mean, order, axis=1) - front.reference_point, 2, 0)
    x_deviation, y_deviation = np.moveaxis(np.take_along_axis(deviation, order, axis=1), 2, 0)
    begins = np.append(0.0, front.x)  # of the front's steps, and of the ground beyond them
    heights = np.append(front.y, 0.0)
    beyond = _expected_excess(x, x_deviation, begins)  # (trials, points, steps)
    beyond_end = np.zeros((*x.shape, 1))
    reached = beyond - np.concatenate([beyond[:, :, 1:], beyond_end], axis=2)  # how far into each step
    widths = np.maximum(np.diff(reached, axis=1, prepend=0.0), 0.0)
    rises = _expected_excess(y, y_deviation, heights)
    gains: Float64Array = (widths * rises).sum(axis=(1, 2))
    return gains


def _expected_excess(mean: Float64Array, deviation: Float64Array, limits: Float64Array) -> Float64Array:
    """How far normal variables (trials, points) are expected to lie above limits (n,): (trials, points, n)."""
    deviations = deviation[:, :, None]
    above = mean[:, :, None] - limits
    scores = above / deviations
    density = np.exp(-0.5 * scores**2) / math.sqrt(2 * math.pi)
    excess: Float64Array = above * ndtr(scores) + deviations * density
    return np.maximum(excess, 0.0)  # rounding may leave less


def _margins(mean: Float64Array, deviation: Float64Array, reference_point: Pair) -> Float64Array:
    """How near trials' points (trials, points, 2) come to lying above the reference point: (trials,).

    By how many standard deviations P and S are expected to lie above, of a point the lesser, of a trial the greatest.
    """
    scores = (mean - np.array(reference_point)) / deviation
    margins: Float64Array = scores.min(axis=2).max(axis=1)
    return margins


def as_array(codes: Sequence[Code], num_axes: int) -> Float64Array:
    """(codes, axes), also where there are none of either."""
    return np.array(codes, dtype=np.float64).reshape(len(codes), num_axes)


def _lifted(values: Float64Array) -> Float64Array:
    """The values of each column, with what is bad no farther below the median than WORST times the best is above it.

    It says no more than that it is bad: a loss that has grown without limit would make all others look alike.
    """
    median, best = np.median(values, axis=0), values.max(axis=0)
    lifted: Float64Array = np.maximum(values, median - WORST * (best - median))
    return lifted


def _standardised(values: Float64Array) -> tuple[Float64Array, Float64Array, Float64Array]:
    """The values (rows, outputs) less their means and over their standard deviations, and these (outputs,)."""
    lifted = _lifted(values)
    centre, unit = lifted.mean(axis=0), lifted.std(axis=0) + TINY
    return (lifted - centre) / unit, centre, unit


def _standardised_roots(values: Float64Array) -> Float64Array:
    """Roots of how far the values lie above the worst, less their mean and over their standard deviation.

    Roots, because many values are poor and few good, and because an area grows with the square of what makes it.
    """
    largest = np.abs(values).max() or 1.0
    lifted = _lifted(values / largest)  # so that nothing grows too large
    roots = np.sqrt(lifted - lifted.min())
    standardised: Float64Array = (roots - roots.mean()) / (roots.std() + TINY)
    return standardised
