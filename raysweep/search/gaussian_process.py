"""The Gaussian process of the ``mfgp`` sampler.

The notation follows Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006),
chapters 2 and 5:

    x           configuration, with numbers in [0, 1] or indices of unordered choices
    r           number of doublings from the smallest budget to the trial's budget
    d           distance along an axis: |x - x'|, or 0 or 1 for unordered choices
    w           precision of an axis: 1 over the squared length scale
    t           scaled distance: sqrt(5 w) d
    m           Matern 5/2 kernel of an axis: (1 + t + t^2 / 3) exp(-t)
    a           additive variance of an axis; the sum over axes is ADDITIVE_VARIANCE
    k(x, x')    kernel: prod m + sum a m, both over the axes
    f(x)        value at the smallest budget: f ~ GP(0, k)
    g(x, r)     value after r doublings: f(x) (1 + s r) + h(x) u r + c r, where s is the ``slope``,
                u is the ``drift``, and h ~ GP(0, k) and c ~ N(0, s^2) are independent
    y           observation: g(x, r) + trial deviation + noise; the last two have a variance of
                ``noise_variance`` / 2 each, and the rungs of a trial share its deviation
    K           covariance of the observed y, including noise
    K_*         cross-covariance of the observed y and g at the queries
    alpha       K^-1 y
    mean        K_*' alpha, the posterior mean of g at the queries
    variance    k_** - diag(K_*' K^-1 K_*), the posterior variance, with the prior variance k_**
    log p(y)    -y' alpha / 2 - log |K| / 2, the log marginal likelihood without its constant

y may have several columns, called outputs. They share the kernel parameters, which are fitted to
the mean of the outputs' log marginal likelihoods, because the outputs are strongly correlated.

The sum in k models the effects of single parameters, which can be learned from a few trials. The
product models interactions (Duvenaud, Nickisch and Rasmussen, "Additive Gaussian Processes", 2011).
The drift allows the best configuration to change with the budget.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.arrays import Float64Array

ADDITIVE_VARIANCE = 5.0  # prior variance of the sum over axes; the variance of the product is 1


# Priors. The squared length scales, the noise deviation, the slope and the drift are log-normal.
# The additive variances are proportional to gamma variables with shape ADDITIVE_SHAPE.
LOG_SQUARED_LENGTH_MEAN = math.log(4.0)
LOG_SQUARED_LENGTH_DEVIATION = 1.2
LOG_DEVIATION_MEANS = np.log([0.1, 0.5])  # noise deviation and slope
LOG_DEVIATION_DEVIATION = 0.5
LOG_DRIFT_MEAN = math.log(0.2)
LOG_DRIFT_DEVIATION = 1.0
ADDITIVE_SHAPE = 0.5
NUM_DRAWN = 24  # sets of kernel parameters sampled from the prior for the first fit
NUM_FRESH = 1  # sets sampled for each later fit
NUM_BEST = 2  # most probable sets returned by a fit and reused in the next
MIN_WEIGHT = 0.05  # minimum weight of kernel parameters in predictions, relative to the highest
NUM_STEPS = 16  # gradient steps per fit
# number of rows above which fits take fewer steps, because steps are slower and start closer to the optimum
NUM_ROWS_AT_LENGTH = 32
FIRST_STEP, SMALLEST_STEP, LARGEST_STEP = 0.2, 1e-3, 1.0  # on the log scale


LARGEST_BLOCK = 24  # maximum size of matrices that are inverted directly
TINY = 1e-300  # avoids logarithms of 0 and division by 0
MIN_VARIANCE = 1e-9  # minimum variance of predictions; rounding may produce less


class KernelParams:
    """The parameters of the kernel and the noise.

    ``logs`` (2 * axes + 3,) contains the logarithms of the squared length scales (axes,), the
    unnormalized additive variances (axes,), the noise deviation, the slope and the drift.
    """

    def __init__(self, logs: Float64Array) -> None:
        num_axes = (len(logs) - 3) // 2
        self._logs = logs
        self._log_squared_lengths = logs[:num_axes]
        self._log_shares = logs[num_axes:-3]
        self._log_deviations = logs[-3:-1]
        self._log_drift = float(logs[-1])

        precisions = np.exp(-self._log_squared_lengths)  # w
        self.rates = np.sqrt(5 * precisions)  # scales of distances
        shares = np.exp(self._log_shares)
        sum_of_shares = max(shares.sum(), TINY)
        self.additive_variances = ADDITIVE_VARIANCE * shares / sum_of_shares
        log_noise_deviation, log_slope = self._log_deviations
        self.noise_variance = math.exp(2 * log_noise_deviation)
        self.slope = math.exp(log_slope)
        self.drift = math.exp(self._log_drift)

    @cached_property
    def log_prior(self) -> float:
        """The log prior density without its constant."""
        lengths = (
            self._log_squared_lengths - LOG_SQUARED_LENGTH_MEAN
        ) / LOG_SQUARED_LENGTH_DEVIATION
        deviations = (self._log_deviations - LOG_DEVIATION_MEANS) / LOG_DEVIATION_DEVIATION
        drift = (self._log_drift - LOG_DRIFT_MEAN) / LOG_DRIFT_DEVIATION
        squares = np.sum(lengths**2) + np.sum(deviations**2) + drift**2
        of_shares = np.sum(ADDITIVE_SHAPE * self._log_shares - np.exp(self._log_shares))
        return float(of_shares - 0.5 * squares)

    @cached_property
    def log_prior_gradient(self) -> Float64Array:
        """The gradient of :attr:`log_prior` with respect to ``logs``, (2 * axes + 3,)."""
        lengths = (
            LOG_SQUARED_LENGTH_MEAN - self._log_squared_lengths
        ) / LOG_SQUARED_LENGTH_DEVIATION**2
        shares = ADDITIVE_SHAPE - np.exp(self._log_shares)
        deviations = (LOG_DEVIATION_MEANS - self._log_deviations) / LOG_DEVIATION_DEVIATION**2
        drift = (LOG_DRIFT_MEAN - self._log_drift) / LOG_DRIFT_DEVIATION**2
        return np.concatenate([lengths, shares, deviations, [drift]])

    @classmethod
    def draw(cls, random: np.random.Generator, num_axes: int) -> "KernelParams":
        """Return a sample from the prior."""
        shares = random.gamma(ADDITIVE_SHAPE, 1.0, num_axes)
        log_shares = np.log(np.maximum(shares, TINY))
        log_squared_lengths = random.normal(
            LOG_SQUARED_LENGTH_MEAN, LOG_SQUARED_LENGTH_DEVIATION, num_axes
        )
        log_deviations = random.normal(LOG_DEVIATION_MEANS, LOG_DEVIATION_DEVIATION)
        log_drift = random.normal(LOG_DRIFT_MEAN, LOG_DRIFT_DEVIATION, 1)
        logs = np.concatenate([log_squared_lengths, log_shares, log_deviations, log_drift])
        return cls(logs)

    def moved(self, by: Float64Array) -> "KernelParams":
        """Return the parameters with ``by`` added to their logarithms."""
        return KernelParams(self._logs + by)


def kernel(
    singles: Iterable[Float64Array], shape: tuple[int, ...], params: KernelParams
) -> Float64Array:
    """Return k(x, x') from the axes' kernels m, which have this shape and are overwritten.

    Axes are processed one at a time, so that the arrays fit in the CPU cache.
    """
    product, total = np.ones(shape), np.zeros(shape)
    for single, variance in zip(singles, params.additive_variances, strict=True):
        product *= single
        single *= variance
        total += single
    total += product
    return total


def singles_of(distances: Float64Array, params: KernelParams) -> Iterator[Float64Array]:
    """Yield m for each axis, given distances (axes, n). The same array is reused for all axes."""
    scaled, single = np.empty((2, distances.shape[1]))
    for distance, rate in zip(distances, params.rates, strict=True):
        np.multiply(distance, rate, out=scaled)
        matern(scaled, out=single)
        yield single


def singles_between(
    codes: Float64Array, others: Float64Array, categorical: NDArray[np.bool_], params: KernelParams
) -> Iterator[Float64Array]:
    """Yield m (n, others) for each axis, given codes (n, axes) and (others, axes).

    The same array is reused for all axes.
    """
    scaled, single = np.empty((2, len(codes), len(others)))
    axes = zip(codes.T, others.T, categorical, params.rates, strict=True)
    for along_axis, others_along_axis, is_categorical, rate in axes:
        np.subtract(along_axis[:, None], others_along_axis, out=scaled)
        make_distances(scaled, is_categorical)
        scaled *= rate
        matern(scaled, out=single)
        yield single


def matern(scaled: Float64Array, out: Float64Array) -> None:
    """Write m at the scaled distances t to ``out``; ``scaled`` is overwritten."""
    np.multiply(scaled, 1 / 3, out=out)
    out += 1
    out *= scaled
    out += 1
    # in NumPy 2.2 to 2.4, in-place np.negative is incorrect at a stride of 64 bytes
    np.multiply(scaled, -1.0, out=scaled)
    np.exp(scaled, out=scaled)
    out *= scaled


def relative_gradient_by_length(scaled: Float64Array) -> Float64Array:
    """Return the derivative of m with respect to the log squared length scale, divided by m.

    ``scaled`` contains scaled distances t. The derivative is t^2 (1 + t) / 6 exp(-t).
    """
    linear = 1 + scaled
    quadratic = scaled * scaled / 3
    growth = 0.5 * quadratic * linear
    return growth / (linear + quadratic)


def make_distances(differences: Float64Array, is_categorical: bool) -> None:
    """Convert differences along an axis to distances in place."""
    if is_categorical:
        np.not_equal(differences, 0, out=differences)
    else:
        np.abs(differences, out=differences)


@dataclass(frozen=True)
class TrainingSet:
    """The training data, with a row for each of a trial's one or two rungs.

    A pair is an unordered pair of trials, which may be the same trial. Symmetric quantities are
    computed once per pair.
    """

    codes: Float64Array  # (trials, axes)
    categorical: NDArray[np.bool_]  # (axes,), whether choices are unordered
    trial_index: NDArray[np.int64]  # (rows,), the trial of each row
    doublings: Float64Array  # (rows,), r for each row
    max_doublings: float  # r at the largest budget, the budget of predictions

    @cached_property
    def distances(self) -> Float64Array:
        """The distances between trials, (axes, pairs)."""
        first, second = np.triu_indices(len(self.codes))
        differences = self.codes[first] - self.codes[second]
        distances: Float64Array = np.ascontiguousarray(differences.T)
        for along_axis, is_categorical in zip(distances, self.categorical, strict=True):
            make_distances(along_axis, is_categorical)
        return distances

    @cached_property
    def pair_index(self) -> NDArray[np.int64]:
        """The pair index of any two rows, (rows, rows)."""
        num_trials = len(self.codes)
        first, second = np.triu_indices(num_trials)
        of_trials = np.empty((num_trials, num_trials), dtype=np.int64)
        of_trials[first, second] = of_trials[second, first] = np.arange(len(first))
        return of_trials[np.ix_(self.trial_index, self.trial_index)]

    @cached_property
    def noise_pattern(self) -> Float64Array:
        """The noise covariance (rows, rows) divided by half of the noise variance.

        The covariance of two rows includes the deviation that rungs of a trial share.
        """
        same_trial = np.equal.outer(self.trial_index, self.trial_index)
        return same_trial + np.eye(len(self.trial_index))

    def summed_over_pairs(self, of_rows: Float64Array) -> Float64Array:
        """Sum the entries of a matrix (rows, rows) for each pair."""
        num_pairs = self.distances.shape[1]
        sums = np.bincount(self.pair_index.ravel(), of_rows.ravel(), num_pairs)
        return np.asarray(sums, dtype=np.float64)


def inverse_of_lower(matrix: Float64Array) -> Float64Array:
    """Invert a lower triangular matrix blockwise, which is twice as fast as general inversion."""
    size = len(matrix)
    if size <= LARGEST_BLOCK:
        return np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    half = size // 2
    head = slice(half)
    tail = slice(half, size)
    first = inverse_of_lower(matrix[head, head])
    second = inverse_of_lower(matrix[tail, tail])
    inverse = np.zeros_like(matrix)
    inverse[head, head] = first
    inverse[tail, tail] = second
    inverse[tail, head] = -second @ (matrix[tail, head] @ first)
    return inverse


class Queries:
    """Configurations whose values are predicted.

    ``pending`` (pending trials, axes) contains the codes of running trials without values, and
    ``candidates`` (candidates, axes) those of possible proposals. Predictions assume that pending
    trials reach their predicted values, which lowers the variance near them.
    """

    def __init__(
        self, training: TrainingSet, pending: Float64Array, candidates: Float64Array
    ) -> None:
        self.num_pending = len(pending)
        self._codes = np.concatenate([pending, candidates])
        self._training = training

    def kernel_from_training(self, params: KernelParams) -> Float64Array:
        """Return k between training trials and queries, (trials, pending trials + candidates)."""
        return self._kernel_from(self._training.codes, params)

    def kernel_from_pending(self, params: KernelParams) -> Float64Array:
        """Return k between pending trials and queries, (pending trials, pending trials + candidates)."""
        return self._kernel_from(self._codes[: self.num_pending], params)

    def _kernel_from(self, codes: Float64Array, params: KernelParams) -> Float64Array:
        singles = singles_between(codes, self._codes, self._training.categorical, params)
        return kernel(singles, (len(codes), len(self._codes)), params)


class Posterior:
    """The Gaussian process with given kernel parameters, conditioned on training data.

    ``values`` (rows, outputs) is the standardized y.
    """

    def __init__(self, params: KernelParams, training: TrainingSet, values: Float64Array) -> None:
        self.params = params
        self.values = values
        self._training = training
        self._num_outputs = values.shape[1]
        slope, drift = params.slope, params.drift
        self._growth = slope * training.doublings  # s r, (rows,)
        self._final_growth = slope * training.max_doublings  # s r at the largest budget
        self._drift = drift * training.doublings  # u r, (rows,)
        self._final_drift = drift * training.max_doublings
        # budget-dependent factors of k at the largest budget and for any two rows
        self._final_factor = (1 + self._final_growth) ** 2 + self._final_drift**2
        factors = np.stack([1 + self._growth, self._drift])
        self._growth_covariance: Float64Array = factors.T @ factors  # (rows, rows)

        distances = training.distances
        num_pairs = distances.shape[1]
        singles = singles_of(distances, params)
        kernel_of_pairs = kernel(singles, (num_pairs,), params)
        self._kernel_of_rows = kernel_of_pairs[training.pair_index]  # k, (rows, rows)

        covariance = self._observed_covariance()
        cholesky = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        inverse_root = inverse_of_lower(cholesky)
        # faster than solving linear systems for queries
        self._inverse = inverse_root.T @ inverse_root
        self._alpha = np.asarray(self._inverse @ values, dtype=np.float64)
        # log posterior density of the kernel parameters
        self.log_density = self._log_marginal_likelihood(cholesky) + params.log_prior

    def predict(self, queries: Queries) -> tuple[Float64Array, Float64Array]:
        """Return the posterior mean and variance of g at the largest budget.

        The mean is (pending trials + candidates, outputs). The variance (pending trials + candidates,)
        is the same for all outputs.
        """
        cross_covariance = self._cross_covariance(queries)
        solved = self._inverse @ cross_covariance
        mean = cross_covariance.T @ self._alpha
        explained = np.sum(cross_covariance * solved, axis=0)
        offset_variance = self._final_growth**2  # of c r
        prior_variance = (1 + ADDITIVE_VARIANCE) * self._final_factor + offset_variance
        variance: Float64Array = prior_variance - explained
        num_pending = queries.num_pending
        if not num_pending:
            return mean, variance

        kernel_from_pending = queries.kernel_from_pending(self.params)
        prior_covariance = kernel_from_pending * self._final_factor + offset_variance
        of_pending = cross_covariance[:, :num_pending]
        covariance = prior_covariance - of_pending.T @ solved
        # Subtract the variance that observations of the pending trials would explain.
        noise = self.params.noise_variance * np.eye(num_pending)
        observed = covariance[:, :num_pending] + noise
        cholesky = np.asarray(np.linalg.cholesky(observed), dtype=np.float64)
        whitened = inverse_of_lower(cholesky) @ covariance
        explained_by_pending = np.sum(whitened**2, axis=0)
        return mean, variance - explained_by_pending

    @cached_property
    def gradient(self) -> Float64Array:
        """The gradient of ``log_density`` with respect to the kernel parameters' ``logs``, (2 * axes + 3,).

        The gradient of log p(y) is tr((alpha alpha' - K^-1) dK) / 2 (Rasmussen and Williams, equation 5.9).
        """
        outer = 0.5 * (self._alpha @ self._alpha.T / self._num_outputs - self._inverse)
        gradients = (self._gradient_by_axes(outer), self._gradient_by_others(outer))
        return np.asarray(
            np.concatenate(gradients) + self.params.log_prior_gradient, dtype=np.float64
        )

    def _gradient_by_axes(self, outer: Float64Array) -> Float64Array:
        """Return the gradient of log p(y) for the squared length scales and additive variances, (2 * axes,)."""
        of_pairs = self._training.summed_over_pairs(outer * self._growth_covariance)
        variances = self.params.additive_variances
        scaled = self._training.distances * self.params.rates[:, None]
        relative = relative_gradient_by_length(scaled)
        product = np.ones_like(of_pairs)
        single = np.empty_like(of_pairs)
        of_single = np.empty_like(variances)
        of_single_length = np.empty_like(variances)
        for axis, along_axis in enumerate(scaled):
            matern(along_axis, out=single)
            product *= single
            single *= of_pairs
            of_single[axis] = single.sum()
            of_single_length[axis] = single @ relative[axis]
        of_product_length = relative @ (product * of_pairs)
        by_lengths = of_product_length + variances * of_single_length
        of_shares = variances * of_single
        by_shares = of_shares - variances / ADDITIVE_VARIANCE * of_shares.sum()
        return np.concatenate([by_lengths, by_shares])

    def _gradient_by_others(self, outer: Float64Array) -> Float64Array:
        """Return the gradient of log p(y) for the noise deviation, slope and drift, (3,)."""
        weighted = outer * self._kernel_of_rows
        by_noise = self.params.noise_variance * (outer * self._training.noise_pattern).sum()
        of_shared = weighted @ (1 + self._growth)
        of_own = outer @ self._growth
        by_slope = 2 * self._growth @ (of_shared + of_own)
        by_drift = 2 * self._drift @ weighted @ self._drift
        return np.array([by_noise, by_slope, by_drift])

    def _log_marginal_likelihood(self, cholesky: Float64Array) -> float:
        """Return the mean of log p(y) over the outputs, given the Cholesky factor of K."""
        fits = self.values * self._alpha
        mean_fit = float(fits.sum() / self._num_outputs)  # y' alpha
        log_diagonal = np.log(np.diag(cholesky))
        complexity = float(log_diagonal.sum())  # log |K| / 2
        return -0.5 * mean_fit - complexity

    def _observed_covariance(self) -> Float64Array:
        """Return K (rows, rows) with jitter on the diagonal for numerical stability."""
        covariance: Float64Array = self._kernel_of_rows * self._growth_covariance
        trace = float(np.trace(covariance))
        jitter = 1e-6 * trace / len(covariance)
        noise = 0.5 * self.params.noise_variance * self._training.noise_pattern
        diagonal = np.diag_indices_from(noise)
        noise[diagonal] += jitter
        covariance += np.outer(self._growth, self._growth)
        covariance += noise
        return covariance

    def _cross_covariance(self, queries: Queries) -> Float64Array:
        """Return K_* (rows, pending trials + candidates)."""
        growth = self._growth[:, None]
        trial_covariance = queries.kernel_from_training(self.params)
        covariance: Float64Array = trial_covariance[self._training.trial_index]
        covariance *= (1 + growth) * (1 + self._final_growth) + self._drift[
            :, None
        ] * self._final_drift
        covariance += growth * self._final_growth
        return covariance


def predict(posteriors: Sequence[Posterior], queries: Queries) -> tuple[Float64Array, Float64Array]:
    """Return the mean and standard deviation of a mixture of posteriors, weighted by density.

    Both are (pending trials + candidates, outputs).
    """
    logs = np.array([posterior.log_density for posterior in posteriors])
    densities = np.exp(logs - logs.max())  # relative to the highest
    used = np.flatnonzero(densities >= MIN_WEIGHT).tolist()
    densities = densities[used]
    weights = densities / densities.sum()
    means_of_used = []
    variances_of_used = []
    for index in used:
        mean_of_one, variance_of_one = posteriors[index].predict(queries)
        means_of_used.append(mean_of_one)
        variances_of_used.append(variance_of_one)
    means = np.array(means_of_used)
    variances = np.maximum(variances_of_used, MIN_VARIANCE)
    mean: Float64Array = np.tensordot(weights, means, 1)
    within = weights @ variances
    squared_distances = (means - mean) ** 2
    between = np.tensordot(weights, squared_distances, 1)
    return mean, np.sqrt(within[:, None] + between)


class KernelFitter:
    """Fits kernel parameters to successive training sets, starting each fit from the previous one.

    Predictions average over the most probable kernel parameters, weighted by posterior density, which
    is Bayesian model averaging in Occam's window (Madigan and Raftery, 1994). MCMC sampling would need
    thousands of steps per proposal, and the first states of a short chain predict poorly.
    """

    def __init__(self, num_axes: int) -> None:
        self._num_axes = num_axes
        self._last_params: list[KernelParams] = []  # best first

    def posteriors(
        self,
        training: TrainingSet,
        values: Float64Array,
        random: np.random.Generator,
        *,
        is_due: bool,
    ) -> list[Posterior]:
        """Return the posteriors of a new fit if it ``is_due``, or else that of the last fit's best parameters."""
        if is_due or not self._last_params:
            return self.fit(training, values, random)
        return [Posterior(self._last_params[0], training, values)]

    def fit(
        self, training: TrainingSet, values: Float64Array, random: np.random.Generator
    ) -> list[Posterior]:
        """Return the posteriors with the most probable kernel parameters.

        ``values`` (rows, outputs) is standardized.
        """
        num_drawn = NUM_FRESH if self._last_params else NUM_DRAWN
        drawn = [KernelParams.draw(random, self._num_axes) for _ in range(num_drawn)]
        candidate_params = [*self._last_params, *drawn]
        candidates = [Posterior(params, training, values) for params in candidate_params]
        starts = _most_probable(candidates)
        ascended = _ascend(starts[0], training)
        best = _most_probable([ascended, *starts])
        self._last_params = [posterior.params for posterior in best]
        return best


def _ascend(start: Posterior, training: TrainingSet) -> Posterior:
    """Return the most probable posterior found by gradient ascent.

    The steps follow Rprop (Riedmiller and Braun, 1993). The ascent ends early if the gradient is not
    finite.
    """
    num_rows = max(len(training.trial_index), NUM_ROWS_AT_LENGTH)
    num_steps = max(NUM_STEPS * NUM_ROWS_AT_LENGTH // num_rows, 2)
    best = current = start
    size = np.full(len(start.gradient), FIRST_STEP)
    last_gradient = np.zeros_like(size)
    for _ in range(num_steps):
        gradient = current.gradient
        if not np.isfinite(gradient).all():
            break
        agreement = np.sign(gradient * last_gradient)  # -1 if the sign has changed, 1 if not
        factor = np.choose(agreement.astype(int) + 1, (0.5, 1.0, 1.2))
        size = np.clip(size * factor, SMALLEST_STEP, LARGEST_STEP)
        # a parameter does not move if the sign of its gradient has changed
        last_gradient = np.where(agreement < 0, 0.0, gradient)
        step = size * np.sign(last_gradient)
        moved = current.params.moved(step)
        current = Posterior(moved, training, start.values)
        if current.log_density > best.log_density:
            best = current
    return best


def _most_probable(posteriors: Sequence[Posterior]) -> list[Posterior]:
    """Return the NUM_BEST posteriors with the highest density."""
    return sorted(posteriors, key=lambda posterior: -posterior.log_density)[:NUM_BEST]
