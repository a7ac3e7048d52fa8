"""How the points of trials move with training: one trial's learning curve, and what all trials' curves have in common."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import Pair


@dataclass(frozen=True)
class Prediction:
    """The points (points, 2) that a curve is predicted to have at each of its further rungs."""

    points: list[Float64Array]
    num_rates_learnt: int  # that the prediction was made from; with more of them it is out of date


@dataclass
class LearningCurve:
    """A trial's operating points (P, S), rung after rung, in an order that is the same at each rung."""

    budgets: list[int] = field(default_factory=list)  # examples seen at its rungs so far
    points: list[Float64Array] = field(default_factory=list)  # (points, 2) at each of them
    rate: Float64Array | None = None  # (points, 2): how far each point moved for each example, up to the last rung
    budgets_ahead: tuple[int, ...] = ()  # examples that it will have seen at its further rungs
    front: tuple[Pair, ...] = ()  # non-dominated points of all its rungs
    area: float = 0.0  # under the front
    prediction: Prediction | None = None  # of the rungs ahead


class RateModel:
    """How trials' points moved for each example from one budget on: on average, and against how they moved before it."""

    def __init__(self) -> None:
        self._sum, self._count = np.zeros(2), 0
        self._sum_before_times_rate = np.zeros(2)
        self._sum_before_squared = np.zeros(2)

    def learn(self, before: Float64Array | None, rate: Float64Array) -> None:
        """A trial's rates (points, 2) from this budget on, and those before it, where there were any."""
        self._sum += rate.mean(axis=0)
        self._count += 1
        if before is not None:
            self._sum_before_times_rate += (before * rate).mean(axis=0)
            self._sum_before_squared += (before * before).mean(axis=0)

    @property
    def mean(self) -> Float64Array:
        """The average rate (2,), of P and of S."""
        return self._sum / self._count

    def factor(self, own: Float64Array) -> Float64Array:
        """By what to multiply a trial's rates ``own`` (points, 2) before this budget to predict those after it: (2,).

        It is the slope of a least-squares line through the origin, of other trials' rates after the budget on their rates
        before it. The belief that ``own`` stay as they are counts as one trial more.
        """
        prior = np.add.reduce(own * own) / len(own)
        slope = (self._sum_before_times_rate + prior) / np.maximum(self._sum_before_squared + prior, 1e-300)
        factor: Float64Array = np.minimum(np.maximum(slope, 0.0), 4.0)  # faster than np.clip, and asked often
        return factor


class Forecaster:
    """Predicts how learning curves go on, from their own rates and from how others went on from the same budget."""

    def __init__(self, origin: Pair | None) -> None:
        self._origin = origin  # where an untrained trial's points lie, if that is known
        self._rate_models: dict[int, RateModel] = {}  # by the budget from which on they say how points move
        self._nearest: dict[int, RateModel] = {}  # by any budget: the model whose budget is nearest to it
        self._num_rates_learnt = 0

    @property
    def has_learnt(self) -> bool:
        """Whether any trial has gone on from one rung to another, so that there is something to predict from."""
        return bool(self._rate_models)

    def add_rung(self, curve: LearningCurve, examples_seen: int, points: Float64Array) -> None:
        """Let a curve go on to a rung with these points (points, 2), and learn from how they moved."""
        if curve.points:
            curve.rate = self._learn_rate(curve, examples_seen, points)
        elif self._origin is not None:
            curve.rate = (points - self._origin) / examples_seen
        curve.budgets.append(examples_seen)
        curve.points.append(points)
        curve.prediction = None

    def _learn_rate(self, curve: LearningCurve, examples_seen: int, points: Float64Array) -> Float64Array | None:
        """How far a curve's points moved for each example since its last rung; None where they are others than there."""
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
        self._num_rates_learnt += 1
        return rate

    def points_ahead(self, curve: LearningCurve) -> list[Float64Array]:
        """The points (points, 2) that the curve is predicted to have at each of its further rungs."""
        prediction = curve.prediction
        if prediction is None or prediction.num_rates_learnt != self._num_rates_learnt:
            prediction = curve.prediction = Prediction(list(self._predicted(curve)), self._num_rates_learnt)
        return prediction.points

    def next_points(self, curve: LearningCurve) -> Float64Array:
        """The points (points, 2) that the curve is predicted to have at its next rung."""
        return next(self._predicted(curve))

    def _predicted(self, curve: LearningCurve) -> Iterator[Float64Array]:
        points = curve.points[-1]
        rate = curve.rate
        budget = curve.budgets[-1]
        for next_budget in curve.budgets_ahead:
            rate = self._rate_from(budget, rate)
            points = points + rate * (next_budget - budget)
            yield points
            budget = next_budget

    def _rate_from(self, budget: int, own: Float64Array | None) -> Float64Array:
        """How points are predicted to move from a budget on, for each example, having moved at the rates ``own`` before."""
        if not self._rate_models:
            return np.zeros((1, 2)) if own is None else own
        if budget not in self._nearest:
            nearest = min(self._rate_models, key=lambda known: abs(math.log(known / budget)))
            self._nearest[budget] = self._rate_models[nearest]
        model = self._nearest[budget]
        return model.mean[None] if own is None else own * model.factor(own)
