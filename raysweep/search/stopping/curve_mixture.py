"""How the points of trials move with training: a trial's learning curve, and the distribution of how it goes on.

Notation: a trial has operating points i, each with two scores d, P and S. After b examples of training a score is

    y(b) = origin + l + A shape_k(b) + noise,

where ``origin`` is what an untrained trial scores, l a small offset, and shape_k one of ``NUM_SHAPES`` curves that rise from
0 to 1 at the horizon: quick and slow exponentials, and some that stand still at first. A is normal with the mean and spread
that the trials so far had at the same operating point; so are the noise's variance and how frequent each shape is learnt
from all trials. Which shape a trial has is unknown: the distribution of how it goes on is a mixture of normal ones, one for
each shape, weighted by how well it explains the trial's rungs. While a trial has few rungs the slow shapes explain them as
well as the quick ones, and its distribution is wide; the more it has, the narrower.

Of a trial only sums over its rungs are kept, in which older rungs fade, since no shape is exactly right.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import Pair

# Time constants of the shapes 1 - exp(-b / t), from half of the first rung's examples to twice the last one's.
NUM_EXPONENTIALS = 6


# And of the shapes 1 - exp(-(b / t)**2), which begin slowly, from twice the first rung's examples to the last one's.
NUM_SLOW = 3


NUM_SHAPES = NUM_EXPONENTIALS + NUM_SLOW


OFFSET_SD = 0.005  # of l, where the untrained trial's scores are known


UNKNOWN_ORIGIN_SD = 0.3  # of l, where they are not


FADING = 0.92  # what a rung counts for at the next one


PRIOR_AMPLITUDE_SD, PRIOR_AMPLITUDE_WEIGHT = 0.1, 2.0  # of A before any trial, and how many trials that counts for


HEAVY_TAILS = 2.0  # times the variance of A where a curve is predicted: the best trials lie farther out than normal


PRIOR_NOISE_SD, PRIOR_NOISE_WEIGHT = 0.004, 4.0  # and of the noise


PRIOR_SHAPE_WEIGHT = 8.0  # trials that all shapes together count for


ANY_SHAPE = 0.1  # of trials may have any shape, whatever others had


CHI_SQUARED_MEDIAN = 0.455  # of one degree of freedom: what the median of squared residuals is of their mean


@dataclass
class Sums:
    """What is kept of a trial's rungs, for shapes k, points i and scores d."""

    count: float
    shape: Float64Array  # (k,)
    shape_squared: Float64Array  # (k,)
    score: Float64Array  # (i, d)
    score_squared: Float64Array  # (i, d)
    shape_times_score: Float64Array  # (k, i, d)

    @classmethod
    def of_none(cls, num_points: int) -> "Sums":
        shape = (num_points, 2)
        return cls(
            0.0,
            np.zeros(NUM_SHAPES),
            np.zeros(NUM_SHAPES),
            np.zeros(shape),
            np.zeros(shape),
            np.zeros((NUM_SHAPES, *shape)),
        )

    def add(self, shapes: Float64Array, scores: Float64Array) -> None:
        """A rung, at which the shapes have these values (k,), and the points these scores (i, d) above the origin's."""
        self.count = FADING * self.count + 1
        self.shape = FADING * self.shape + shapes
        self.shape_squared = FADING * self.shape_squared + shapes**2
        self.score = FADING * self.score + scores
        self.score_squared = FADING * self.score_squared + scores**2
        self.shape_times_score = FADING * self.shape_times_score + shapes[:, None, None] * scores


@dataclass
class LearningCurve:
    """A trial's operating points (P, S), rung after rung, in an order that is the same at each rung."""

    budgets: list[int] = field(default_factory=list)  # examples seen at its rungs so far
    points: list[Float64Array] = field(default_factory=list)  # (i, d) at each of them
    budgets_ahead: tuple[int, ...] = ()  # examples that it will have seen at its further rungs
    base: Float64Array | None = None  # (i, d) from which scores are counted; (1, d) where the origin is known
    sums: Sums | None = None
    num_alike: int = 0  # latest rungs that have equally many points, which the sums are of
    fit: "Fit | None" = None  # to its rungs, as last learnt from


@dataclass(frozen=True)
class Prediction:
    """The points that a curve has at some budgets: normal for each shape k, which has weight ``weights`` (k,).

    ``mean`` and ``sd`` have shape (k, budgets, i, d).
    """

    weights: Float64Array
    mean: Float64Array
    sd: Float64Array

    @property
    def expected(self) -> Float64Array:
        """(budgets, i, d)."""
        expected: Float64Array = np.einsum("k,khid->hid", self.weights, self.mean)
        return expected


@dataclass(frozen=True)
class Fit:
    """Offset l and amplitude A of a curve for each shape (k, i, d), and the shapes' weights (k,)."""

    weights: Float64Array
    offset: Float64Array
    amplitude: Float64Array
    offset_variance: Float64Array
    amplitude_variance: Float64Array
    covariance: Float64Array


@dataclass
class _Amplitudes:
    """Of all trials with equally many points: how far they are expected to have moved at the horizon, (i, d)."""

    count: float
    total: Float64Array
    total_squared: Float64Array

    @classmethod
    def of_none(cls, num_points: int) -> "_Amplitudes":
        weight = PRIOR_AMPLITUDE_WEIGHT
        squared = np.full((num_points, 2), weight * PRIOR_AMPLITUDE_SD**2)
        return cls(weight, np.zeros((num_points, 2)), squared)

    @property
    def mean(self) -> Float64Array:
        return self.total / self.count

    @property
    def variance(self) -> Float64Array:
        variance: Float64Array = np.maximum(self.total_squared / self.count - self.mean**2, 1e-8)
        return variance


@dataclass
class _Share:
    """What one trial has put into what all have in common."""

    num_points: int
    amplitude: Float64Array
    amplitude_squared: Float64Array
    weights: Float64Array
    weight: float  # of these weights: one rung tells nothing of the shape


class _Noise:
    """The variance of the noise (d,), from how far rungs lie off the line between their neighbours."""

    def __init__(self) -> None:
        self._squares: tuple[list[float], list[float]] = ([], [])  # rising, of P and of S

    def learn(self, squares: Float64Array) -> None:
        for values, square in zip(self._squares, squares.tolist(), strict=True):
            bisect.insort(values, square)

    @property
    def variance(self) -> Float64Array:
        return np.array([self._variance(values) for values in self._squares])

    def _variance(self, squares: Sequence[float]) -> float:
        prior = PRIOR_NOISE_WEIGHT * PRIOR_NOISE_SD**2
        num = len(squares)
        learnt = num * squares[num // 2] / CHI_SQUARED_MEDIAN if num else 0.0
        return (prior + learnt) / (PRIOR_NOISE_WEIGHT + num)


class Forecaster:
    """Predicts how learning curves go on, from their own rungs and from what the curves so far have in common."""

    def __init__(self, origin: Pair | None) -> None:
        self._origin = None if origin is None else np.array([origin])
        self._time_constants = np.zeros(NUM_SHAPES)
        self._horizon = 0
        self._powers = np.repeat([1.0, 2.0], [NUM_EXPONENTIALS, NUM_SLOW])
        self._amplitudes: dict[int, _Amplitudes] = {}  # by the number of points
        self._shape_counts = np.full(NUM_SHAPES, PRIOR_SHAPE_WEIGHT / NUM_SHAPES)
        self._noise = _Noise()
        self._shares: dict[int, _Share] = {}  # by trial

    @property
    def noise_sd(self) -> Float64Array:
        """The standard deviation (d,) of the noise of P and of S, as far as it is known."""
        sd: Float64Array = np.sqrt(self._noise.variance)
        return sd

    def add_rung(self, trial: int, curve: LearningCurve, examples_seen: int, points: Float64Array) -> None:
        """Let a trial's curve go on to a rung with these points (i, d), and learn from it. It has its budgets ahead."""
        self._begin_shapes(examples_seen, curve)
        has_other_points = bool(curve.points) and curve.points[-1].shape != points.shape
        if curve.sums is None or has_other_points:
            curve.sums, curve.num_alike = Sums.of_none(len(points)), 0
            curve.base = points if self._origin is None else self._origin
        assert curve.base is not None
        curve.budgets.append(examples_seen)
        curve.points.append(points)
        curve.num_alike += 1
        curve.sums.add(self._shapes(examples_seen), points - curve.base)
        self.learn(trial, curve)
        self._learn_noise(curve)

    def _begin_shapes(self, examples_seen: int, curve: LearningCurve) -> None:
        """The first rung of all says how long trials are, and so how quick and how slow they may be."""
        if self._horizon:
            return
        first = max(1, examples_seen)
        self._horizon = max(first, *curve.budgets_ahead) if curve.budgets_ahead else first
        exponentials = np.geomspace(first / 2, 2 * self._horizon, NUM_EXPONENTIALS)
        slow = np.geomspace(min(2 * first, self._horizon), self._horizon, NUM_SLOW)
        self._time_constants = np.concatenate([exponentials, slow])

    def _shapes(self, budgets: float | Float64Array) -> Float64Array:
        """Their values at budgets, (k, *budgets)."""
        at = self._raw_shapes(np.asarray(budgets, dtype=np.float64))
        end = self._raw_shapes(np.array(float(self._horizon)))
        shapes: Float64Array = at / end.reshape(-1, *[1] * (at.ndim - 1))
        return shapes

    def _raw_shapes(self, budgets: Float64Array) -> Float64Array:
        constants = self._time_constants.reshape(-1, *[1] * budgets.ndim)
        powers = self._powers.reshape(-1, *[1] * budgets.ndim)
        raw: Float64Array = -np.expm1(-((budgets / constants) ** powers))
        return raw

    def learn(self, trial: int, curve: LearningCurve) -> None:
        """Put what a trial's curve says, by what is known now, in the place of what it said before."""
        num_points = len(curve.points[-1])
        fit = self._fit(curve, 1.0)
        curve.fit = self._fit(curve, HEAVY_TAILS)
        weights = fit.weights[:, None, None]
        amplitude = (weights * fit.amplitude).sum(axis=0)
        squared = (weights * (fit.amplitude_variance + fit.amplitude**2)).sum(axis=0)
        share = _Share(num_points, amplitude, squared, fit.weights, 1 - 1 / curve.num_alike)
        if before := self._shares.get(trial):
            self._count(before, -1)
        self._count(share, 1)
        self._shares[trial] = share

    def _count(self, share: _Share, times: int) -> None:
        amplitudes = self._amplitudes_of(share.num_points)
        amplitudes.count += times
        amplitudes.total = amplitudes.total + times * share.amplitude
        amplitudes.total_squared = amplitudes.total_squared + times * share.amplitude_squared
        self._shape_counts = self._shape_counts + times * share.weight * share.weights

    def _amplitudes_of(self, num_points: int) -> _Amplitudes:
        if num_points not in self._amplitudes:
            self._amplitudes[num_points] = _Amplitudes.of_none(num_points)
        return self._amplitudes[num_points]

    def _learn_noise(self, curve: LearningCurve) -> None:
        """How far the rung before the last lies off the line between its neighbours, less what the fitted curve bends."""
        if curve.num_alike < 3:
            return
        budgets = np.array(curve.budgets[-3:], dtype=np.float64)
        points = np.array(curve.points[-3:])
        before, between, after = points - self._at(curve, budgets).expected
        begin, middle, end = budgets.tolist()
        share = (middle - begin) / (end - begin)  # of the way
        off_line = between - (1 - share) * before - share * after
        mean_square = (off_line**2).mean(axis=0)
        of_unit_noise = 1 + (1 - share) ** 2 + share**2
        self._noise.learn(mean_square / of_unit_noise)

    @property
    def _shape_frequencies(self) -> Float64Array:
        """How frequent each shape is (k,), in part taken as equally frequent, since a rare one must stay possible."""
        learnt = self._shape_counts / self._shape_counts.sum()
        frequencies: Float64Array = (1 - ANY_SHAPE) * learnt + ANY_SHAPE / NUM_SHAPES
        return frequencies

    def _fit(self, curve: LearningCurve, widening: float) -> Fit:
        """Of a curve's rungs, by Bayes' rule for each shape, on which offset and amplitude depend linearly."""
        sums, noise = curve.sums, self._noise.variance
        assert sums is not None
        amplitudes = self._amplitudes_of(len(curve.points[-1]))
        spread = widening * amplitudes.variance
        offset_sd = UNKNOWN_ORIGIN_SD if self._origin is None else OFFSET_SD
        shape = sums.shape[:, None, None]
        shape_squared = sums.shape_squared[:, None, None]
        # The posterior precision [[a, b], [b, c]] of offset and amplitude, and precision times mean (u, v).
        a = sums.count / noise + 1 / offset_sd**2
        b = shape / noise
        c = shape_squared / noise + 1 / spread
        u = sums.score / noise
        v = sums.shape_times_score / noise + amplitudes.mean / spread
        determinant = a * c - b * b
        offset = (c * u - b * v) / determinant
        amplitude = (a * v - b * u) / determinant
        log_evidence = 0.5 * (u * offset + v * amplitude - np.log(determinant))
        weights = self._weights(log_evidence)
        return Fit(weights, offset, amplitude, c / determinant, a / determinant, -b / determinant)

    def _weights(self, log_evidence: Float64Array) -> Float64Array:
        """How probable each shape is (k,), by its evidence (k, points, scores)."""
        of_points = log_evidence.mean(axis=1)  # points of a rung share their noise, so they count as one
        logits = of_points.sum(axis=1) + np.log(self._shape_frequencies)
        likelihoods = np.exp(logits - logits.max())
        weights: Float64Array = likelihoods / likelihoods.sum()
        return weights

    def _at(self, curve: LearningCurve, budgets: Float64Array) -> Prediction:
        """What a fitted curve is at budgets."""
        fit = curve.fit
        assert fit is not None and curve.base is not None
        shapes = self._shapes(budgets)[:, :, None, None]
        mean = curve.base + fit.offset[:, None] + shapes * fit.amplitude[:, None]
        variance = (
            fit.offset_variance[:, None]
            + 2 * shapes * fit.covariance[:, None]
            + shapes**2 * fit.amplitude_variance[:, None]
        )
        return Prediction(fit.weights, mean, np.sqrt(np.maximum(variance, 0.0)))

    def predict(self, curve: LearningCurve, budgets: Sequence[int]) -> Prediction:
        """The points that a curve is predicted to have at budgets ahead, without noise."""
        return self._at(curve, np.array(budgets, dtype=np.float64))

    def shown(self, curve: LearningCurve) -> Float64Array:
        """The points (n, d) that the curve is believed to have had at its rungs, less their noise."""
        budgets = np.array(curve.budgets[-curve.num_alike :], dtype=np.float64)
        return self._at(curve, budgets).expected.reshape(-1, 2)

    def share_ahead(self, curve: LearningCurve) -> float:
        """How much of its way to the horizon a curve is expected to have before it."""
        assert curve.fit is not None
        ahead = 1 - self._shapes(float(curve.budgets[-1]))
        return float(curve.fit.weights @ ahead)


def horizons(budgets_ahead: Sequence[int], num: int) -> tuple[int, ...]:
    """At most ``num`` of the budgets ahead: the next, the last, and some between, ever farther apart."""
    last = len(budgets_ahead) - 1
    if last < 0:
        return ()
    indices = {0, last, *(round(last ** (each / (num - 1))) for each in range(1, num - 1) if last > 1)}
    chosen = sorted(index for index in indices if 0 <= index <= last)
    return tuple(budgets_ahead[index] for index in chosen[:num])
