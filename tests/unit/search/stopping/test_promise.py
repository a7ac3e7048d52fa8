"""Expected hypervolume against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.pareto import hypervolume
from raysweep.metrics.staircase import Staircase
from raysweep.metrics.steps import Steps
from raysweep.search.stopping.curve_mixture import Prediction
from raysweep.search.stopping.promise import MIN_RELATIVE_GAIN, Promise, promise_of

REFERENCE_POINT = (0.5, 0.2)


COORDINATES = st.floats(0.4, 1.0).map(lambda value: round(value, 2))


POINTS = st.lists(st.tuples(COORDINATES, COORDINATES), max_size=8)


@given(POINTS, st.lists(st.lists(st.tuples(COORDINATES, COORDINATES), min_size=2, max_size=2), min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_gains_are_those_of_points_that_come_one_rung_after_the_other(
    front: list[tuple[float, float]], rungs: list[list[tuple[float, float]]]
) -> None:
    steps = Steps(REFERENCE_POINT, np.array(front).reshape(-1, 2))
    assert steps.area == pytest.approx(hypervolume(front, REFERENCE_POINT), abs=1e-12)
    gains = steps.gains(np.array([rungs]))[0]
    staircase = Staircase(REFERENCE_POINT, front)
    for gain, points in zip(gains, rungs, strict=True):
        for point in points:
            staircase.add(point)
        assert gain == pytest.approx(staircase.area - steps.area, abs=1e-12)


def made(seed: int) -> tuple[Staircase, Prediction, Float64Array]:
    """A front, and a prediction of its last rung and two ahead, of three shapes and two points."""
    random = np.random.default_rng(seed)
    front = Staircase(REFERENCE_POINT, [(0.6, 0.45), (0.7, 0.42), (0.78, 0.36), (0.85, 0.25)])
    weights = random.dirichlet([1, 1, 1])
    begin = np.array([[0.66, 0.40], [0.60, 0.43]])
    drift = random.uniform(0, [0.08, 0.04], size=(3, 1, 1, 2)) * np.arange(3)[:, None, None]
    spread = random.uniform(0.01, 0.03, size=(3, 1, 1, 2)) * (1 + np.arange(3))[:, None, None]
    mean = begin + drift
    return front, Prediction(weights, mean, np.broadcast_to(spread, mean.shape)), np.array([10.0, 20.0, 50.0])


def brute_force(front: Staircase, prediction: Prediction, budgets: Float64Array, seed: int, num: int) -> Promise:
    """The same expectation over draws of a shape and of one score for P and one for S."""
    random = np.random.default_rng(seed)
    rates, totals = np.empty(num), np.empty(num)
    for draw in range(num):
        shape = random.choice(len(prediction.weights), p=prediction.weights)
        points = prediction.mean[shape] + prediction.sd[shape] * random.standard_normal(2)
        drawn = front.copy()
        for point in points[0].tolist():
            drawn.add(tuple(point))
        begin, rate = drawn.area, 0.0
        for budget, rung in zip(budgets[1:], points[1:], strict=True):
            for point in rung.tolist():
                drawn.add(tuple(point))
            rate = max(rate, (drawn.area - begin) / (budget - budgets[0]))
        rates[draw], totals[draw] = rate, drawn.area - begin
    likely = float(np.mean(totals > MIN_RELATIVE_GAIN * front.area))
    return Promise(float(rates.mean()), float(totals.mean()), likely, float(totals.max()))


def test_a_promise_is_the_expectation_over_many_draws() -> None:
    ratios = []
    for seed in range(8):
        front, prediction, budgets = made(seed)
        steps = Steps(REFERENCE_POINT, np.array(front_points(front)))
        promise = promise_of(steps, prediction, budgets, begin=10.0)
        expected = brute_force(front, prediction, budgets, seed, 4000)
        ratios.append((promise.per_example / expected.per_example, promise.total / expected.total))
        assert promise.probability == pytest.approx(expected.probability, abs=0.1)
        assert promise.at_best > promise.total
    assert np.median(ratios, axis=0) == pytest.approx(1.0, abs=0.06)
    assert np.array(ratios) == pytest.approx(1.0, abs=0.25)


def front_points(front: Staircase) -> list[tuple[float, float]]:
    return [(0.6, 0.45), (0.7, 0.42), (0.78, 0.36), (0.85, 0.25)] if front.area else []


def test_certain_points_promise_just_what_they_add() -> None:
    """Of a trial at 10 examples: 0.02 above the front after 20 examples, 0.03 after 50. And since its beginning, with 0.01."""
    front = Steps(REFERENCE_POINT, np.array([[0.6, 0.4]]))
    mean = np.array([[[[0.6, 0.4]], [[0.7, 0.4]], [[0.75, 0.4]]]])
    prediction = Prediction(np.ones(1), mean, np.zeros_like(mean))
    budgets = np.array([10.0, 20.0, 50.0])
    promise = promise_of(front, prediction, budgets, begin=10.0)
    assert (promise.total, promise.at_best) == pytest.approx((0.03, 0.03))
    assert promise.per_example == pytest.approx(0.02 / 10)
    assert promise.probability == pytest.approx(1)
    since_its_beginning = promise_of(front, prediction, budgets, begin=0.0, gained=0.01)
    assert since_its_beginning.per_example == pytest.approx(0.03 / 20)


def test_luck_that_a_trial_has_had_is_no_promise() -> None:
    """Its points may lie anywhere about the front, but no further training moves them."""
    front = Steps(REFERENCE_POINT, np.array([[0.6, 0.4]]))
    mean = np.full((1, 3, 1, 2), [0.6, 0.4])
    prediction = Prediction(np.ones(1), mean, np.full_like(mean, 0.02))
    promise = promise_of(front, prediction, np.array([10.0, 20.0, 50.0]), begin=10.0)
    assert promise == Promise(0.0, 0.0, 0.0, 0.0)


def test_where_a_trial_may_lie_lower_than_it_seems_it_still_adds_what_it_gains() -> None:
    """It stands far beyond the others, nobody knows just how far, and further training moves it a little for sure."""
    front = Steps(REFERENCE_POINT, np.array([[0.6, 0.4]]))
    mean = np.array([[[[0.75, 0.4]], [[0.752, 0.4]]]])
    prediction = Prediction(np.ones(1), mean, np.full_like(mean, 0.02))
    promise = promise_of(front, prediction, np.array([10.0, 20.0]), begin=10.0)
    assert promise.probability == pytest.approx(1)
    assert promise.total == pytest.approx(0.002 * (0.4 - REFERENCE_POINT[1]), rel=0.05)
