"""Learning curves of trials, and predictions of how their operating points move with more training."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.scores import Pair


@dataclass(frozen=True)
class Prediction:
    """The predicted points (points, 2) of a curve at each of its remaining rungs."""

    points: list[Float64Array]
    # the prediction is outdated once the model has learned more rates than this
    num_rates_learned: int


@dataclass
class LearningCurve:
    """The operating points (P, S) of a trial at each rung, always in the same order."""

    budgets: list[int] = field(default_factory=list)  # examples seen at its rungs so far
    points: list[Float64Array] = field(default_factory=list)  # (points, 2) at each rung so far
    # (points, 2), movement of each point per example up to the last rung
    rate: Float64Array | None = None
    budgets_ahead: tuple[int, ...] = ()  # examples seen at its remaining rungs
    front: tuple[Pair, ...] = ()  # non-dominated points of all its rungs
    area: float = 0.0  # hypervolume of the front
    prediction: Prediction | None = None  # latest prediction for the remaining rungs


class RateModel:
    """A model of the rates at which trials' points move after a given budget.

    A rate is the movement of a point per example.
    """

    def __init__(self) -> None:
        self._sum = np.zeros(2)
        self._count = 0
        self._sum_before_times_rate = np.zeros(2)
        self._sum_before_squared = np.zeros(2)

    def learn(self, before: Float64Array | None, rate: Float64Array) -> None:
        """Add a trial's rates (points, 2) after this budget and, if known, before it."""
        self._sum += rate.mean(axis=0)
        self._count += 1
        if before is not None:
            self._sum_before_times_rate += (before * rate).mean(axis=0)
            self._sum_before_squared += (before * before).mean(axis=0)

    @property
    def mean(self) -> Float64Array:
        """Mean rate of P and S, (2,)."""
        return self._sum / self._count

    def factor(self, own: Float64Array) -> Float64Array:
        """Return the predicted ratio (2,) of a trial's rates after this budget to its rates ``own`` (points, 2) before it.

        The ratio is the slope of a least-squares line through the origin, fitted to the rates of other
        trials. One additional trial, whose rates stay at ``own``, serves as the prior.
        """
        prior = np.add.reduce(own * own) / len(own)
        slope = (self._sum_before_times_rate + prior) / np.maximum(
            self._sum_before_squared + prior, 1e-300
        )
        # faster than np.clip
        factor: Float64Array = np.minimum(np.maximum(slope, 0.0), 4.0)
        return factor


class Forecaster:
    """A model that predicts learning curves from their own rates and those of other trials."""

    def __init__(self, origin: Pair | None) -> None:
        self._origin = origin  # P and S of an untrained trial, if known
        self._rate_models: dict[int, RateModel] = {}  # keyed by budget
        self._nearest: dict[int, RateModel] = {}  # cached nearest model, keyed by budget
        self._num_rates_learned = 0

    @property
    def has_learned(self) -> bool:
        """Whether any rates have been learned, which requires a trial with two completed rungs."""
        return bool(self._rate_models)

    def add_rung(self, curve: LearningCurve, examples_seen: int, points: Float64Array) -> None:
        """Add a rung with these points (points, 2) to a curve, and learn their rates."""
        if curve.points:
            curve.rate = self._learn_rate(curve, examples_seen, points)
        elif self._origin is not None:
            curve.rate = (points - self._origin) / examples_seen
        curve.budgets.append(examples_seen)
        curve.points.append(points)
        curve.prediction = None

    def _learn_rate(
        self, curve: LearningCurve, examples_seen: int, points: Float64Array
    ) -> Float64Array | None:
        """Learn and return the rates since the curve's last rung, or return None if the number of points changed."""
        last_points = curve.points[-1]
        if last_points.shape != points.shape:
            return None
        last_budget = curve.budgets[-1]
        num_examples = examples_seen - last_budget
        rate: Float64Array = (points - last_points) / num_examples
        if last_budget not in self._rate_models:
            self._rate_models[last_budget] = RateModel()
            self._nearest = {}
        model = self._rate_models[last_budget]
        model.learn(curve.rate, rate)
        self._num_rates_learned += 1
        return rate

    def points_ahead(self, curve: LearningCurve) -> list[Float64Array]:
        """Return the predicted points (points, 2) at each of the curve's remaining rungs."""
        prediction = curve.prediction
        if prediction is None or prediction.num_rates_learned != self._num_rates_learned:
            prediction = curve.prediction = Prediction(
                list(self._predict(curve)), self._num_rates_learned
            )
        return prediction.points

    def next_points(self, curve: LearningCurve) -> Float64Array:
        """Return the predicted points (points, 2) at the curve's next rung."""
        return next(self._predict(curve))

    def _predict(self, curve: LearningCurve) -> Iterator[Float64Array]:
        points = curve.points[-1]
        rate = curve.rate
        budget = curve.budgets[-1]
        for next_budget in curve.budgets_ahead:
            rate = self._predict_rate(budget, rate)
            points = points + rate * (next_budget - budget)
            yield points
            budget = next_budget

    def _predict_rate(self, budget: int, own: Float64Array | None) -> Float64Array:
        """Return the predicted rates after a budget, given the rates ``own`` before it."""
        if not self._rate_models:
            return np.zeros((1, 2)) if own is None else own
        if budget not in self._nearest:
            nearest = min(self._rate_models, key=lambda known: abs(math.log(known / budget)))
            self._nearest[budget] = self._rate_models[nearest]
        model = self._nearest[budget]
        return model.mean[None] if own is None else own * model.factor(own)
