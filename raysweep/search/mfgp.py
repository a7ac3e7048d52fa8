"""Which configuration to try next, by a Gaussian process over configurations and training budgets: the sampler ``mfgp``.

Multi-fidelity: a trial teaches by its first rung and its latest, also while it is held, as in freeze-thaw Bayesian
optimisation (Swersky, Snoek and Adams, 2014), and a configuration is proposed for what it promises at the largest budget
seen so far. After r doublings of the smallest budget a trial is worth f(x) (1 + s r) + c r, with its own deviation and
noise. f's kernel has the parameters' squared-exponential kernels added up, and multiplied: few trials teach what each
parameter does by itself, more what they do together (Duvenaud, Nickisch and Rasmussen, 2011).
"""

import heapq
import math

import numpy as np

from raysweep.config.space import Space
from raysweep.metrics.arrays import Float64Array
from raysweep.search.encoding import Params, RandomSuggester, axes
from raysweep.search.gaussian_process import ADDITIVE_VARIANCE, MIN_WEIGHT, KernelParams, TrainingSet, _Fit

Code = tuple[float, ...]


STARTUP = 8  # trials that are random, but for trying choices evenly, before the model is asked


TRIALS = 64  # that the model learns from: the best half, the latest quarter, and of all others at random


POOL = 256  # random configurations that compete to be proposed


RENEWED = 64  # of them, before each proposal


TRIES = 24  # settings of the kernel that are tried before each proposal, a quarter of them new


ROWS = 32  # values, beyond which fewer are tried, since each takes longer and the best so far are surer


KEPT = 4  # settings, the likeliest so far


BETA = 0.5  # standard deviations that a proposal may be promising by


class Surrogate:
    """Proposes configurations of one space. Trials are known by their number; the same calls give the same proposals."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._random = np.random.default_rng(seed)
        self._axes = list(axes(space.parameters, ""))
        self._unlike = np.array([axis.unlike for axis in self._axes], dtype=bool)
        self._codes: dict[int, Code] = {}
        self._waiting: dict[int, None] = {}  # trials of which nothing is known yet
        self._values: dict[int, dict[int, float]] = {}  # by examples seen; empty if the trial failed before it had any
        self._tried: set[Code] = set()
        self._settings: list[KernelParams] = []
        self._pool: list[tuple[Params, Code]] = []

    def begin(self, number: int, params: Params) -> None:
        """A trial that runs, or ran elsewhere."""
        code = self._codes[number] = self._code(params)
        self._tried.add(code)
        self._waiting[number] = None

    def report(self, number: int, examples_seen: int, value: float) -> None:
        """What a trial is worth at a rung, the more the better; replaces what was said of it before."""
        self._waiting.pop(number, None)
        self._values.setdefault(number, {})[examples_seen] = value

    def fail(self, number: int) -> None:
        """The trial failed; if it had no rung, it counts as a poor one, whatever it failed for."""
        self._waiting.pop(number, None)
        self._values.setdefault(number, {})

    def propose(self) -> Params | None:
        """What to try next; None where nothing new is found in the space."""
        self._renew()
        if not self._pool:
            return None
        if sum(map(bool, self._values.values())) < STARTUP:
            return self._pool.pop(self._rarest())[0]
        ahead = [*(self._codes[number] for number in self._waiting), *(code for _, code in self._pool)]
        mean, deviation = self._predict(self._learnt(), np.array(ahead), len(self._waiting))
        params, _ = self._pool.pop(int(np.argmax(mean + BETA * deviation)))
        return params

    def _code(self, params: Params) -> Code:
        return tuple(axis.code(params) for axis in self._axes)

    def _rarest(self) -> int:
        """The first of the pool whose choices have been tried least often, so that a few trials see each of them."""
        begun = np.array(list(self._codes.values())).reshape(len(self._codes), len(self._axes))[:, self._unlike]
        pool = np.array([code for _, code in self._pool])[:, self._unlike]
        return int(np.argmin((pool[:, None] == begun[None]).sum(axis=(1, 2))))

    def _renew(self) -> None:
        """Let some configurations of the pool give way to new ones, and all that were tried."""
        self._pool = [(params, code) for params, code in self._pool[-(POOL - RENEWED) :] if code not in self._tried]
        there = {code for _, code in self._pool}
        for _ in range(POOL - len(self._pool)):
            drawn = RandomSuggester(self._random)
            self._space.draw(drawn)
            code = self._code(drawn.params)
            if code not in there and code not in self._tried:
                there.add(code)
                self._pool.append((drawn.params, code))

    def _learnt(self) -> TrainingSet:
        """From at most TRIALS of them."""
        worth = {number: values[max(values)] if values else -math.inf for number, values in self._values.items()}
        chosen = set(heapq.nlargest(TRIALS // 2, worth, key=worth.__getitem__))
        others = [number for number in worth if number not in chosen]
        latest, older = others[-TRIALS // 4 :], others[: -TRIALS // 4]
        chosen.update(latest, self._random.permutation(older)[: TRIALS - len(chosen) - len(latest)].tolist())
        known = {number: self._values[number] for number in sorted(chosen)}
        budgets_seen = [budget for values in self._values.values() for budget in values]
        smallest, largest = min(budgets_seen), max(budgets_seen)
        poor = float(np.quantile([values[min(values)] for values in known.values() if values], 0.25))
        index, budgets, seen = [], [], []
        for i, values in enumerate(known.values()):
            for budget in sorted({min(values), max(values)}) if values else [smallest]:
                index.append(i)
                budgets.append(budget)
                seen.append(values.get(budget, poor))
        found = np.array(seen)
        found = np.sign(found) * np.sqrt(np.abs(found))  # an area grows with the square of what makes it
        found = (found - found.mean()) / (found.std() + 1e-9)
        codes = np.array([self._codes[number] for number in known])
        doublings = np.log2(np.array(budgets) / smallest)
        return TrainingSet(codes, np.array(index), doublings, found, math.log2(largest / smallest))

    def _fit_all(self, learnt: TrainingSet) -> list[_Fit]:
        """The likeliest settings of the kernel that are found, which are kept for the next proposal."""
        index, doublings, values = learnt.index, learnt.doublings, learnt.values
        same, alone = np.equal.outer(index, index), np.eye(len(index))
        among = self._distances(learnt.codes, learnt.codes)

        def fit(settings: KernelParams) -> _Fit:
            risen = settings.slope * doublings
            signal = self._kernel(among, settings)[index[:, None], index] * np.outer(1 + risen, 1 + risen)
            noise = 0.5 * settings.noise * (same + alone) + 1e-6 * float(np.trace(signal)) / len(index) * alone
            covariance = np.asarray(signal + np.outer(risen, risen) + noise, dtype=np.float64)
            weights = np.asarray(np.linalg.solve(covariance, values), dtype=np.float64)
            half_log_determinant = float(np.log(np.diag(np.linalg.cholesky(covariance))).sum())
            return _Fit(settings, -0.5 * float(values @ weights) - half_log_determinant, covariance, weights)

        # The likeliest so far, kept and new, and from each of them some steps of a walk, which goes on with the next
        # proposal. Short of a sample of the posterior, but near it where there are many trials, and at hand at once.
        tries = TRIES * ROWS // max(ROWS, len(index))
        drawn = [
            KernelParams.draw(self._random, len(self._axes)) for _ in range(tries // 4 if self._settings else tries)
        ]
        fits = sorted(map(fit, [*self._settings, *drawn]), key=lambda one: -one.likelihood)[:KEPT]
        for step in range(tries - tries // 4):
            now = fits[step % len(fits)]
            then = fit(now.settings.moved(self._random))
            better = then.likelihood + then.settings.prior - now.likelihood - now.settings.prior
            if self._random.random() < math.exp(min(0.0, better)):
                fits[step % len(fits)] = then
        self._settings = [one.settings for one in fits]
        return fits

    def _predict(self, learnt: TrainingSet, ahead: Float64Array, num_waiting: int) -> tuple[Float64Array, Float64Array]:
        """Mean and standard deviation at the largest budget of what is ahead, but for the first, that are waited for."""
        towards, waited = self._distances(learnt.codes, ahead), self._distances(ahead[:num_waiting], ahead)
        fits = self._fit_all(learnt)
        likeliest = max(one.likelihood for one in fits)
        total, mean, square = 0.0, np.zeros(len(ahead) - num_waiting), np.zeros(len(ahead) - num_waiting)
        for one in fits:
            weight = math.exp(one.likelihood - likeliest)
            if weight < MIN_WEIGHT:
                continue
            settings = one.settings
            risen, last = settings.slope * learnt.doublings[:, None], settings.slope * learnt.top
            cross = self._kernel(towards, settings)[learnt.index] * (1 + risen) * (1 + last) + risen * last
            solved = np.linalg.inv(one.covariance) @ cross  # sooner done than solving for as many columns
            variance = (1 + ADDITIVE_VARIANCE) * (1 + last) ** 2 + last**2 - (cross * solved).sum(axis=0)
            if num_waiting:  # as if what is waited for had turned out as predicted
                joint = self._kernel(waited, settings) * (1 + last) ** 2 + last**2 - cross[:, :num_waiting].T @ solved
                known = joint[:, :num_waiting] + settings.noise * np.eye(num_waiting)
                rest = joint[:, num_waiting:]
                variance = variance[num_waiting:] - (rest * np.linalg.solve(known, rest)).sum(axis=0)
            expected = (cross.T @ one.weights)[num_waiting:]
            total += weight
            mean += weight * expected
            square += weight * (np.maximum(variance, 1e-9) + expected**2)
        mean /= total
        return mean, np.sqrt(np.maximum(square / total - mean**2, 1e-9))

    def _distances(self, some: Float64Array, others: Float64Array) -> Float64Array:
        """Squared, (axes, some, others); 1 between unlike choices."""
        between: Float64Array = some.T[:, :, None] - others.T[:, None, :]
        np.multiply(between, between, out=between)
        between[self._unlike] = between[self._unlike] > 0
        return between

    @staticmethod
    def _kernel(distances: Float64Array, settings: KernelParams) -> Float64Array:
        kernel: Float64Array = np.exp(np.tensordot(-0.5 * settings.precisions, distances, 1))
        for precision, share, distance in zip(settings.precisions, settings.shares, distances, strict=True):
            kernel += share * np.exp(-0.5 * precision * distance)
        return kernel
