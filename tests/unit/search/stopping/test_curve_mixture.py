"""Predictions of how learning curves go on, against curves that are known."""

import numpy as np
import pytest

from raysweep.metrics.arrays import Float64Array
from raysweep.search.stopping.curve_mixture import Forecaster, LearningCurve, horizons

ORIGIN = (0.6, 0.45)


NUM_RUNGS = 16


def true_points(gain: float, loss: float, time_constant: float, rung: float) -> Float64Array:
    reached = 1 - np.exp(-rung / time_constant)
    return np.array([[ORIGIN[0] + gain * reached, ORIGIN[1] - loss * reached]])


class Trials:
    """Exponential curves with noise, each told rung after rung."""

    def __init__(self, seed: int, noise: float = 0.01, num: int = 30) -> None:
        random = np.random.default_rng(seed)
        self.forecaster = Forecaster(ORIGIN)
        self.truths = [
            (random.uniform(0.05, 0.25), random.uniform(0.02, 0.1), random.uniform(1.5, 5)) for _ in range(num)
        ]
        self.curves = [LearningCurve() for _ in range(num)]
        for trial in range(num):
            self.go_on(trial, random.integers(2, NUM_RUNGS + 1), noise, random)

    def go_on(self, trial: int, to: int, noise: float, random: np.random.Generator) -> None:
        curve = self.curves[trial]
        for rung in range(len(curve.points) + 1, to + 1):
            curve.budgets_ahead = tuple(range(100 * (rung + 1), 100 * NUM_RUNGS + 1, 100))
            points = true_points(*self.truths[trial], rung) + noise * random.standard_normal((1, 2))
            self.forecaster.add_rung(trial, curve, 100 * rung, points)


def test_noise_is_learnt_from_neighbouring_rungs() -> None:
    for noise in (0.003, 0.01):
        found = [Trials(seed, noise).forecaster.noise_sd for seed in range(5)]
        assert np.median(found, axis=0) == pytest.approx(noise, rel=0.35)


def test_what_is_predicted_comes_to_pass_within_its_spread() -> None:
    scores = []
    for seed in range(5):
        trials = Trials(seed)
        for truth, curve in zip(trials.truths, trials.curves, strict=True):
            trials.forecaster.learn(0, trials.curves[0])
            if not curve.budgets_ahead:
                continue
            prediction = trials.forecaster.predict(curve, (100 * NUM_RUNGS,))
            expected = prediction.expected[0]
            squared = prediction.sd[:, 0] ** 2 + (prediction.mean[:, 0] - expected) ** 2
            sd = np.sqrt(np.einsum("k,kid->id", prediction.weights, squared))
            scores.append((true_points(*truth, NUM_RUNGS) - expected) / sd)
    scores_of_all = np.concatenate(scores)
    assert np.median(np.abs(scores_of_all)) < 1.2
    assert np.quantile(np.abs(scores_of_all), 0.9) < 3


def test_a_trial_of_one_rung_is_known_less_than_one_of_many() -> None:
    trials = Trials(0)
    random = np.random.default_rng(1)
    spreads = []
    for rungs in (1, 4, 12):
        trials.truths.append((0.15, 0.05, 3.0))
        trials.curves.append(LearningCurve())
        trials.go_on(len(trials.curves) - 1, rungs, 0.01, random)
        prediction = trials.forecaster.predict(trials.curves[-1], (100 * NUM_RUNGS,))
        expected = prediction.expected[0]
        squared = prediction.sd[:, 0] ** 2 + (prediction.mean[:, 0] - expected) ** 2
        spreads.append(float(np.einsum("k,kid->", prediction.weights, squared)))
    assert spreads[0] > spreads[1] > spreads[2]


def test_one_that_stands_still_at_first_may_still_come() -> None:
    """Among quick ones: of a trial that has not moved in two rungs most of its way is thought to be ahead, of others not."""
    trials = Trials(0)
    random = np.random.default_rng(1)
    shares = []
    for gain, loss in ((0.0, 0.0), (0.2, 0.08)):
        trials.truths.append((gain, loss, 2.0))
        trials.curves.append(LearningCurve())
        trials.go_on(len(trials.curves) - 1, 2, 0.005, random)
        shares.append(trials.forecaster.share_ahead(trials.curves[-1]))
    assert shares[0] > shares[1] + 0.1


@pytest.mark.parametrize("origin", [None, ORIGIN])
def test_whatever_is_measured_predictions_are_finite(origin: tuple[float, float] | None) -> None:
    """All equal, one rung only, a budget of 0, points whose number changes."""
    forecaster = Forecaster(origin)
    for trial in range(30):
        curve = LearningCurve(budgets_ahead=(20, 30, 40))
        forecaster.add_rung(trial, curve, 10, np.full((2, 2), 0.5))
        curve.budgets_ahead = (30, 40)
        forecaster.add_rung(trial, curve, 20, np.full((1 + trial % 3, 2), 0.5))
        prediction = forecaster.predict(curve, curve.budgets_ahead)
        assert np.isfinite(prediction.mean).all() and np.isfinite(prediction.sd).all()
        assert prediction.weights.sum() == pytest.approx(1)
        assert prediction.mean.shape[2] == 1 + trial % 3
    only = LearningCurve()
    Forecaster(origin).add_rung(0, only, 0, np.full((1, 2), 0.5))


def test_horizons() -> None:
    assert horizons((), 4) == ()
    assert horizons((20,), 4) == (20,)
    assert horizons((20, 30), 4) == (20, 30)
    far = horizons(tuple(range(1, 32)), 4)
    assert (far[0], far[-1], len(far)) == (1, 31, 4)
    gaps = np.diff(far)
    assert (np.diff(gaps) > 0).all()
