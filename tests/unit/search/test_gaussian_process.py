"""The Gaussian process, compared with the closed form of the joint normal distribution."""

import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import Matern

from raysweep.search import gaussian_process
from raysweep.search.gaussian_process import (
    KernelFitter,
    KernelParams,
    Posterior,
    Queries,
    TrainingSet,
    inverse_of_lower,
    matern,
    predict,
    singles_of,
)


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 1), st.floats(0.05, 20))
def test_kernel_of_an_axis_equals_scikit_learns_matern(distance: float, length: float) -> None:
    params = KernelParams(np.array([math.log(length**2), 0.0, 0.0, 0.0, 0.0]))
    (single,) = singles_of(np.array([[distance]]), params)
    expected = Matern(length_scale=length, nu=2.5)(np.array([[0.0]]), np.array([[distance]]))
    assert single[0] == pytest.approx(expected[0, 0], abs=1e-12)


def covariance(
    one: tuple[np.ndarray, float], other: tuple[np.ndarray, float], params: KernelParams
) -> float:
    """Return the covariance of g = f(x) (1 + s r) + h(x) u r + c r at two configurations and doublings."""
    (x, r), (y, q) = one, other
    scaled = [rate * abs(a - b) for rate, a, b in zip(params.rates, x, y, strict=True)]
    single = [(1 + t + t**2 / 3) * math.exp(-t) for t in scaled]
    kernel = math.prod(single) + sum(
        a * k for a, k in zip(params.additive_variances, single, strict=True)
    )
    s, u = params.slope, params.drift
    return kernel * ((1 + s * r) * (1 + s * q) + u * r * u * q) + s * r * s * q


def observed_covariance(
    at: list[tuple[np.ndarray, float]], index: np.ndarray, params: KernelParams, jitter: float
) -> np.ndarray:
    """Return the covariance of the observations of the trials ``index``, with noise, and ``jitter`` on the diagonal."""
    of_g = np.array([[covariance(one, other, params) for other in at] for one in at])
    is_same_trial = np.equal.outer(index, index)
    return (
        of_g
        + 0.5 * params.noise_variance * (is_same_trial + np.eye(len(at)))
        + jitter * np.eye(len(at))
    )


def jitter_of(doublings: np.ndarray, params: KernelParams) -> float:
    """Return the jitter that keeps the inversion stable: a millionth of the mean of k with its factors."""
    of_one = 1 + params.additive_variances.sum()  # k of a configuration with itself
    return float(
        1e-6
        * np.mean(of_one * ((1 + params.slope * doublings) ** 2 + (params.drift * doublings) ** 2))
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 3))
def test_predictions_equal_the_joint_normal_distribution(seed: int, num_pending: int) -> None:
    random = np.random.default_rng(seed)
    params = KernelParams.draw(random, 2)
    codes, ahead = random.random((4, 2)), random.random((num_pending + 3, 2))
    index, doublings = np.array([0, 0, 1, 2, 3, 3]), np.array([0.0, 2.0, 0.0, 0.0, 0.0, 1.0])
    values = random.normal(size=(6, 2))
    training = TrainingSet(codes, np.zeros(2, dtype=bool), index, doublings, max_doublings=2.5)
    queries = Queries(training, ahead[:num_pending], ahead[num_pending:])
    mean, deviation = predict([Posterior(params, training, values)], queries)

    observed_at = [(codes[i], r) for i, r in zip(index, doublings, strict=True)]
    at = [*observed_at, *((x, 2.5) for x in ahead)]
    of_g = np.array([[covariance(one, other, params) for other in at] for one in at])
    first = 6 + num_pending
    observed = of_g[:first, :first].copy()
    observed[:6, :6] = observed_covariance(observed_at, index, params, jitter_of(doublings, params))
    for i in range(6, first):
        observed[i, i] += params.noise_variance
    assert mean == pytest.approx(of_g[6:, :6] @ np.linalg.inv(observed[:6, :6]) @ values, abs=1e-5)
    cross = of_g[6:, :first]
    variance = np.diag(of_g[6:, 6:] - cross @ np.linalg.inv(observed) @ cross.T)
    assert deviation**2 == pytest.approx(np.stack([variance, variance], axis=1), abs=1e-5)


def log_density(
    at: list[tuple[np.ndarray, float]],
    index: np.ndarray,
    values: np.ndarray,
    params: KernelParams,
    jitter: float,
) -> float:
    """Return the log density of kernel parameters: the outputs' mean likelihood (Rasmussen and Williams, equation 5.8)."""
    observed = observed_covariance(at, index, params, jitter)
    data_fit = np.mean([-0.5 * output @ np.linalg.solve(observed, output) for output in values.T])
    _, log_determinant = np.linalg.slogdet(observed)
    return float(data_fit - 0.5 * log_determinant + params.log_prior)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("num_axes", range(1, 17))
def test_gradient_equals_differences_of_the_density(
    num_axes: int, order: Literal["C", "F"]
) -> None:
    """Compare with central differences of the closed form, for codes in either memory order.

    The jitter on the diagonal is constant, as it is for the gradient.
    """
    random = np.random.default_rng(num_axes)
    params = KernelParams.draw(random, num_axes)
    index, doublings = np.array([0, 0, 1, 2, 3, 3]), np.array([0.0, 2.0, 0.0, 1.5, 0.0, 1.0])
    categorical = np.arange(num_axes) % 2 == 1
    codes = np.where(
        categorical, random.integers(2, size=(4, num_axes)), random.random((4, num_axes))
    )
    training = TrainingSet(
        np.asarray(codes, order=order), categorical, index, doublings, max_doublings=2.5
    )
    values = random.normal(size=(6, 2))
    posterior = Posterior(params, training, values)
    at = [(codes[i], r) for i, r in zip(index, doublings, strict=True)]
    jitter = jitter_of(doublings, params)
    assert posterior.log_density == pytest.approx(
        log_density(at, index, values, params, jitter), rel=1e-6, abs=1e-6
    )
    differences = []
    for place in range(len(posterior.gradient)):
        by = np.zeros(len(posterior.gradient))
        by[place] = 1e-5
        above, below = (
            log_density(at, index, values, params.moved(sign * by), jitter) for sign in (1, -1)
        )
        differences.append((above - below) / 2e-5)
    assert posterior.gradient == pytest.approx(differences, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("num_axes", range(1, 17))
def test_matern_is_exact_at_every_stride(num_axes: int, order: Literal["C", "F"]) -> None:
    distances = np.random.default_rng(0).random((num_axes, 100))
    scaled = np.array(distances, order=order)
    single = np.empty(100)
    for distance, along_axis in zip(distances, scaled, strict=True):
        matern(along_axis, out=single)
        assert single == pytest.approx(
            (1 + distance + distance**2 / 3) * np.exp(-distance), rel=1e-12
        )


def test_gradient_that_is_not_finite_ends_the_ascent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit returns the most probable sample."""
    random = np.random.default_rng(0)
    training = TrainingSet(
        random.random((9, 3)), np.zeros(3, dtype=bool), np.arange(9), np.zeros(9), max_doublings=0.0
    )
    values = random.normal(size=(9, 1))
    sample = KernelParams.draw(np.random.default_rng(1), 3)
    monkeypatch.setattr(gaussian_process, "NUM_DRAWN", 1)
    monkeypatch.setattr(
        gaussian_process, "relative_gradient_by_length", lambda scaled: np.full_like(scaled, np.nan)
    )
    best = KernelFitter(3).fit(training, values, np.random.default_rng(1))[0]
    assert best.log_density == Posterior(sample, training, values).log_density


def test_fit_beats_a_long_random_search() -> None:
    """Within five fits, it exceeds the best of 3,000 samples from the prior."""
    random = np.random.default_rng(0)
    codes = random.random((24, 3))
    values = np.sin(4 * codes[:, 0]) + 0.2 * codes[:, 1]
    values = (values - values.mean())[:, None] / values.std()
    training = TrainingSet(
        codes, np.zeros(3, dtype=bool), np.arange(24), np.zeros(24), max_doublings=0.0
    )
    densities = [
        Posterior(KernelParams.draw(random, 3), training, values).log_density for _ in range(3000)
    ]
    fitter = KernelFitter(3)
    for _ in range(5):
        best, *_ = fitter.fit(training, values, random)
    assert best.log_density > max(densities)


@pytest.mark.parametrize("size", [1, 2, 25, 96])
def test_triangular_matrix_is_inverted_by_blocks(size: int) -> None:
    random = np.random.default_rng(size)
    matrix = np.tril(random.normal(size=(size, size))) / size + np.eye(size)
    assert inverse_of_lower(matrix) @ matrix == pytest.approx(np.eye(size), abs=1e-9)
