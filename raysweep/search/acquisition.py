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
from raysweep.search.history import History, Row, values_of, with_failed

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


MAX_STEPS = 48  # of the joint front that gains are worked out over; of more, neighbours are made one


NUM_ROWS_AT_EASE = 32  # with more, kernels are fitted less often, since a fit takes longer and changes them less


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
        return bound[len(pending) :, 0]

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
        self._num_predictions = 0

    def scores(self, history: History, candidates: Float64Array, random: np.random.Generator) -> Float64Array:
        num_axes = candidates.shape[1]
        training, rows = history.lessons(random)
        pending = as_array(list(history.pending.values()), num_axes)
        rising = as_array(history.rising, num_axes)
        queries = Queries(training, pending, np.concatenate([rising, candidates]))
        predicted = self._predicted(training, _points_that_stand_for(rows), queries, random)
        num_running = len(pending) + len(rising)
        of_running = predicted[0, :num_running]
        mean, deviation = predicted[:, num_running:]
        points = np.concatenate([history.joint_front.points, of_running.reshape(-1, 2)])
        gains = expected_gains(Steps(self._reference_point, points), mean, deviation)
        return gains if gains.any() else _margins(mean, deviation, self._reference_point)

    def _predicted(
        self, training: TrainingSet, points: Float64Array, queries: Queries, random: np.random.Generator
    ) -> Float64Array:
        """Mean and standard deviation of the queries' points, learnt from those of the rows: (2, queries, points, 2)."""
        period = math.ceil(len(points) / NUM_ROWS_AT_EASE)
        predicted = []
        for objective, fitter in enumerate(self._fitters):
            values, centre, unit = _standardised(points[:, :, objective])
            is_due = (self._num_predictions - objective) % period == 0  # where the period allows, by turns
            posteriors = fitter.posteriors(training, values, random, is_due=is_due)
            mean, deviation = predict(posteriors if period == 1 else posteriors[:1], queries)
            predicted.append([centre + unit * mean, unit * deviation])
        self._num_predictions += 1
        return np.stack(predicted, axis=-1)

    def to_refine(self, history: History, count: int, random: np.random.Generator) -> list[int]:
        front = history.joint_front
        is_above = (front.points > np.array(self._reference_point)).all(axis=1)
        owners = np.unique(front.owners[is_above])
        chosen: list[int] = random.permutation(owners)[:count].tolist()
        return chosen or history.best(count)


def _points_that_stand_for(rows: Sequence[Row]) -> Float64Array:
    """(rows, points, 2), one point a row where no trial has more."""
    fronts = [row.front for row in rows if row.front is not None]
    num_points = np.array([len(front) for front in fronts])
    begins = np.cumsum(num_points) - num_points
    points = np.concatenate(fronts)
    longest = num_points.max()
    if longest == 1:
        return with_failed(rows, points[:, None])
    repeating_the_last = np.minimum(np.arange(longest), num_points[:, None] - 1)
    units = np.ptp(points, axis=0) + TINY
    farthest = _farthest((points / units)[begins[:, None] + repeating_the_last])
    return with_failed(rows, points[begins[:, None] + farthest])


def _farthest(fronts: Float64Array) -> NDArray[np.int64]:
    """Which of each front's points (fronts, n, 2) lies farthest in each direction between P and S: (fronts, directions)."""
    weights = np.array(SUPPORTING_WEIGHTS)
    directions = np.stack([weights, 1 - weights])
    farthest: NDArray[np.int64] = np.argmax(fronts @ directions, axis=1)
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
    ends, step_heights = _at_most(MAX_STEPS, front)
    begins = np.append(0.0, ends)  # of the front's steps, and of the ground beyond them
    heights = np.append(step_heights, 0.0)
    beyond = _expected_excess(x, x_deviation, begins)  # (trials, points, steps)
    beyond_end = np.zeros((*x.shape, 1))
    reached = beyond - np.concatenate([beyond[:, :, 1:], beyond_end], axis=2)  # how far into each step
    widths = np.maximum(np.diff(reached, axis=1, prepend=0.0), 0.0)
    rises = _expected_excess(y, y_deviation, heights)
    gains: Float64Array = (widths * rises).sum(axis=(1, 2))
    return gains


def _at_most(count: int, front: Steps) -> tuple[Float64Array, Float64Array]:
    """Where the front's steps end, and how high they are, each (n,); of more than ``count``, neighbours are made one.

    They are taken together so that each stretch along the front is as long, and stand at their mean height, so that the
    area stays.
    """
    x, y = front.x, front.y
    if len(x) <= count:
        return x, y
    stretches = _stretches(count, front)
    firsts = np.flatnonzero(np.diff(stretches, prepend=-1))
    lasts = np.append(firsts[1:], len(x)) - 1
    ends = x[lasts]
    areas = np.add.reduceat(np.diff(x, prepend=0.0) * y, firsts)
    widths = np.diff(ends, prepend=0.0)
    return ends, areas / widths


def _stretches(count: int, front: Steps) -> NDArray[np.int64]:
    """On which of ``count`` equally long stretches along the front each step lies (n,), in units of its ends."""
    run = (front.x - front.x[0]) / front.x[-1]
    fall = (front.y[0] - front.y) / front.y[0]
    length_so_far = run + fall
    share = length_so_far / length_so_far[-1]
    stretches: NDArray[np.int64] = np.minimum(count * share, count - 1).astype(np.int64)
    return stretches


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
