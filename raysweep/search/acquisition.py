"""Acquisition functions based on Gaussian processes, for a single value or a front."""

import math
from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
from scipy.special import ndtr

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.scores import Pair
from raysweep.metrics.staircase import Steps
from raysweep.search.conditional_space import Code
from raysweep.search.gaussian_process import KernelFitter, Queries, TrainingSet, predict
from raysweep.search.history import History, Row, fill_failed, row_values

# maximum distance of a value below the median, relative to the best value's distance above the median
MAX_DISTANCE_BELOW = 3.0
TINY = 1e-12  # avoids division by 0
UCB_DEVIATIONS = 0.5  # standard deviations added to the mean
# Weights w of P, where 1 - w is the weight of S. Each weight selects one point of a front.
SUPPORTING_WEIGHTS = (
    0.1,
    0.3,
    0.5,
    0.7,
    0.9,
)


MAX_STEPS = 48  # maximum number of steps of the joint front in gain computations
# number of rows above which kernels are fitted less often, because fits take longer and change less
NUM_ROWS_AT_EASE = 32


class Acquisition(Protocol):
    """A function that scores candidates for the next trial.

    It is used once ``num_startup_trials`` trials have a value.
    """

    num_startup_trials: int
    starts_in_middle: bool

    def scores(
        self, history: History, candidates: Float64Array, random: np.random.Generator
    ) -> Float64Array:
        """Return the scores (candidates,) of candidates (candidates, axes); higher is better."""

    def to_refine(self, history: History, count: int, random: np.random.Generator) -> list[int]:
        """Return the numbers of at most ``count`` trials to search near."""


class UpperConfidenceBound:
    """The upper confidence bound on a trial's value at the largest budget seen."""

    num_startup_trials = 8
    starts_in_middle = False

    def __init__(self, num_axes: int) -> None:
        self._fitter = KernelFitter(num_axes)

    def scores(
        self, history: History, candidates: Float64Array, random: np.random.Generator
    ) -> Float64Array:
        training, rows = history.training_data(random)
        values = row_values(rows)
        largest = np.abs(values).max() or 1.0
        # the division avoids overflow
        clipped = _clip_outliers(values / largest)
        # Use square roots, because most values are poor and hypervolumes grow quadratically.
        roots = np.sqrt(clipped - clipped.min())
        unit = roots.std() + TINY
        standardized: Float64Array = (roots - roots.mean()) / unit
        posteriors = self._fitter.fit(training, standardized, random)

        num_axes = candidates.shape[1]
        pending = as_array(history.pending.values(), num_axes)
        queries = Queries(training, pending, candidates)
        mean, deviation = predict(posteriors, queries)
        bound: Float64Array = mean + UCB_DEVIATIONS * deviation
        return bound[len(pending) :, 0]

    def to_refine(self, history: History, count: int, random: np.random.Generator) -> list[int]:
        return history.best(count)


class FrontImprovement:
    """The expected increase of the joint front's hypervolume at the largest budget seen.

    P and S have separate Gaussian processes. Each process has one output per weight in
    SUPPORTING_WEIGHTS; see :func:`representative_points`. Running trials are treated as if they had
    reached their predicted values.
    """

    num_startup_trials = 4
    starts_in_middle = True  # good values tend to be in the middle of user-defined ranges

    def __init__(self, num_axes: int, reference_point: Pair) -> None:
        self._reference_point = reference_point
        self._fitters = (KernelFitter(num_axes), KernelFitter(num_axes))
        self._num_predictions = 0

    def scores(
        self, history: History, candidates: Float64Array, random: np.random.Generator
    ) -> Float64Array:
        num_axes = candidates.shape[1]
        training, rows = history.training_data(random)
        pending = as_array(history.pending.values(), num_axes)
        rising = as_array(history.codes_with_values, num_axes)
        queries = Queries(training, pending, np.concatenate([rising, candidates]))
        points = representative_points(rows)
        means, deviations = self._predict(training, points, queries, random)

        num_running = len(pending) + len(rising)
        points_of_running = means[:num_running].reshape(-1, 2)
        front_points = np.concatenate([history.joint_front.points, points_of_running])
        front = Steps(self._reference_point, front_points)
        mean = means[num_running:]
        deviation = deviations[num_running:]
        gains = expected_gains(front, mean, deviation)
        if gains.any():
            return gains
        # If no candidate has an expected gain, rank them by their margins above the reference point.
        above = mean - np.array(self._reference_point)
        margins = above / deviation
        smaller_margins = margins.min(axis=2)  # of P and S
        largest_margins: Float64Array = smaller_margins.max(axis=1)
        return largest_margins

    def _predict(
        self,
        training: TrainingSet,
        points: Float64Array,
        queries: Queries,
        random: np.random.Generator,
    ) -> tuple[Float64Array, Float64Array]:
        """Return the queries' predicted means and standard deviations, (queries, points, 2)."""
        period = math.ceil(len(points) / NUM_ROWS_AT_EASE)
        num_posteriors = None if period == 1 else 1  # None: all
        means = []
        deviations = []
        for objective, fitter in enumerate(self._fitters):
            clipped = _clip_outliers(points[:, :, objective])
            center = clipped.mean(axis=0)
            unit = clipped.std(axis=0) + TINY
            values = (clipped - center) / unit
            turn = self._num_predictions - objective
            is_due = turn % period == 0  # P and S take turns if the period allows
            posteriors = fitter.posteriors(training, values, random, is_due=is_due)
            mean, deviation = predict(posteriors[:num_posteriors], queries)
            means.append(center + unit * mean)
            deviations.append(unit * deviation)
        self._num_predictions += 1
        return np.stack(means, axis=-1), np.stack(deviations, axis=-1)

    def to_refine(self, history: History, count: int, random: np.random.Generator) -> list[int]:
        front = history.joint_front
        exceeds = front.points > np.array(self._reference_point)
        is_above = exceeds.all(axis=1)
        owners = np.unique(front.owners[is_above])
        chosen: list[int] = random.permutation(owners)[:count].tolist()
        return chosen or history.best(count)


def representative_points(rows: Sequence[Row]) -> Float64Array:
    """Return points (rows, points, 2) that represent the rows' fronts.

    For each weight in SUPPORTING_WEIGHTS, the point with the highest weighted sum of P and S is
    selected. If no front has more than one point, one point per row is returned.
    """
    fronts = [row.front for row in rows if row.front is not None]
    lengths = np.array([[len(front)] for front in fronts])  # (fronts, 1)
    begins = np.cumsum(lengths, axis=0) - lengths
    points = np.concatenate(fronts)
    longest = lengths.max()
    if longest == 1:
        return fill_failed(rows, points[:, None])
    # pad fronts to equal length by repeating the last point
    index_in_front = np.minimum(np.arange(longest), lengths - 1)
    units = np.ptp(points, axis=0) + TINY
    scaled = points / units
    padded_fronts = scaled[begins + index_in_front]
    weights = np.array(SUPPORTING_WEIGHTS)
    directions = np.stack([weights, 1 - weights])
    distances = padded_fronts @ directions  # (fronts, longest, directions)
    farthest = np.argmax(distances, axis=1)
    representatives = points[begins + farthest]
    return fill_failed(rows, representatives)


def expected_gains(front: Steps, mean: Float64Array, deviation: Float64Array) -> Float64Array:
    """Return the area (trials,) that each trial's points are expected to add to a front.

    The points (trials, points, 2) have the given ``mean`` and ``deviation``. P and S are independent
    normal variables, and their deviations from the mean are shared by all points of a trial.

    Let x and y be P and S relative to the reference point. With a trial's points sorted by x, each
    point adds a strip between the previous point's x and its own x, with height y. For each step of
    the front, the strip adds its width within the step, multiplied by its height above the step. The
    expected widths are differences of expected excesses, and the expected heights are expected
    excesses. For a single point, this is the closed form of the expected hypervolume improvement
    (Emmerich, Deutz and Klinkenberg, 2011).
    """
    order = np.argsort(mean[:, :, :1], axis=1)
    sorted_mean = np.take_along_axis(mean, order, axis=1)
    sorted_deviation = np.take_along_axis(deviation, order, axis=1)
    above = sorted_mean - front.reference_point
    x, y = np.moveaxis(above, 2, 0)
    x_deviation, y_deviation = np.moveaxis(sorted_deviation, 2, 0)
    ends, step_heights = merge_steps(front, MAX_STEPS)
    begins = np.append(0.0, ends)  # includes the area beyond the last step
    heights = np.append(step_heights, 0.0)
    beyond = _expected_excess(x, x_deviation, begins)  # (trials, points, steps)
    beyond_end = np.zeros((*x.shape, 1))
    beyond_next = np.concatenate([beyond[:, :, 1:], beyond_end], axis=2)
    reached = beyond - beyond_next  # expected width within each step
    added = np.diff(reached, axis=1, prepend=0.0)  # beyond the previous point
    widths = np.maximum(added, 0.0)
    rises = _expected_excess(y, y_deviation, heights)
    areas = widths * rises
    gains: Float64Array = areas.sum(axis=(1, 2))
    return gains


def merge_steps(front: Steps, max_steps: int) -> tuple[Float64Array, Float64Array]:
    """Return the ends and heights (n,) of at most ``max_steps`` steps, merging neighbors if necessary.

    The front is divided into stretches of equal length, with x and y scaled by their maximums. The
    steps in a stretch are replaced by one step of the same total area.
    """
    x, y = front.x, front.y
    if len(x) <= max_steps:
        return x, y
    first_x, last_x, highest = x[0], x[-1], y[0]
    run = (x - first_x) / last_x
    fall = (highest - y) / highest
    length = run + fall  # cumulative
    share = length / length[-1]
    last_stretch = max_steps - 1
    stretches = np.minimum(max_steps * share, last_stretch).astype(np.int64)
    increments = np.diff(stretches, prepend=-1)
    firsts = np.flatnonzero(increments)
    after_last = np.append(firsts[1:], len(x))
    lasts = after_last - 1
    ends = x[lasts]
    step_areas = np.diff(x, prepend=0.0) * y
    areas = np.add.reduceat(step_areas, firsts)
    widths = np.diff(ends, prepend=0.0)
    return ends, areas / widths


def _expected_excess(
    mean: Float64Array, deviation: Float64Array, limits: Float64Array
) -> Float64Array:
    """Return the expected excess (trials, points, n) of normal variables (trials, points) over limits (n,)."""
    deviations = deviation[:, :, None]
    above = mean[:, :, None] - limits
    scores = above / deviations
    density = np.exp(-0.5 * scores**2) / math.sqrt(2 * math.pi)
    excess: Float64Array = above * ndtr(scores) + deviations * density
    return np.maximum(excess, 0.0)  # rounding may produce negative values


def as_array(codes: Collection[Code], num_axes: int) -> Float64Array:
    """Return an array (codes, axes), which may be empty."""
    return np.array(list(codes), dtype=np.float64).reshape(len(codes), num_axes)


def _clip_outliers(values: Float64Array) -> Float64Array:
    """Clip low outliers in each column, so that a diverged trial does not dominate the scale."""
    median = np.median(values, axis=0)
    best = values.max(axis=0)
    lowest = median - MAX_DISTANCE_BELOW * (best - median)
    clipped: Float64Array = np.maximum(values, lowest)
    return clipped
