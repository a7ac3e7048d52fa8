"""BoTorch's qLogNEHVI: noisy expected hypervolume improvement of P and S, one Gaussian process each."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Standardize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import SumMarginalLogLikelihood

from benchmarks.search_peers.flat import Flat, Given, flat, indexed
from benchmarks.search_peers.shown import Asked, Points, Shown, params_of
from raysweep.config.space import Choices, Range
from raysweep.replay.recordings import RecordedSweep

NUM_RANDOM = 10  # trials before the model is fitted, as of raysweep's and Optuna's samplers
NUM_RESTARTS = 4
NUM_RAW_SAMPLES = 128
NUM_DRAWS = 128  # of the posterior


class QLogNehvi:
    """qLogNEHVI over trials that run to their ends and count with their best point.

    Choices are encoded as one number per option, each in [0, 1]. The acquisition is maximized over the encoded space, and
    its best point is decoded to a configuration: the maximum of a choice's numbers selects its option. Parameters that do
    not exist under a choice are encoded as 0.
    """

    def __init__(self, recording: RecordedSweep, seed: int) -> None:
        self._recording, self._shown = recording, Shown(recording)
        self._encoding = Encoding(flat(recording.space))
        self._random = np.random.default_rng(seed)
        self._begun: list[list[float]] = []  # of each trial, encoded
        self._ended: dict[int, tuple[float, float]] = {}

    def ask(self) -> Asked:
        number = len(self._begun)
        if number == len(self._recording.trials):
            return None
        is_warm = len(self._ended) >= NUM_RANDOM
        place = (
            self._best_place() if is_warm else self._random.random(self._encoding.width).tolist()
        )
        params = self._encoding.decode(place)
        self._begun.append(place)
        return number, self._recording.space.draw(Given(params))

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        self._begun[trial] = self._encode(values)

    def on_rung(self, trial: int, budget: int, points: Points, ahead: Sequence[int]) -> bool:
        self._shown.add(trial, points)
        return False

    def on_rest(self, trial: int, completed: bool) -> None:
        self._ended[trial] = self._shown.best_point(trial)

    def _encode(self, values: Mapping[str, Any]) -> list[float]:
        return self._encoding.encode(params_of(self._recording, values))

    def _best_place(self) -> list[float]:
        """Return the point with the maximum acquisition."""
        seen = torch.tensor([self._begun[trial] for trial in self._ended], dtype=torch.double)
        scores = torch.tensor(list(self._ended.values()), dtype=torch.double)
        running = [place for trial, place in enumerate(self._begun) if trial not in self._ended]
        with warnings.catch_warnings(action="ignore"):
            models = [
                SingleTaskGP(seen, column[:, None], outcome_transform=Standardize(1))
                for column in scores.T
            ]
            model = ModelListGP(*models)
            fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
            acquisition = qLogNoisyExpectedHypervolumeImprovement(
                model=model,
                ref_point=list(self._recording.reference_point),
                X_baseline=seen,
                X_pending=torch.tensor(running, dtype=torch.double) if running else None,
                sampler=SobolQMCNormalSampler(
                    torch.Size([NUM_DRAWS]), seed=int(self._random.integers(2**31))
                ),
                prune_baseline=True,
            )
            bounds = torch.tensor([[0.0], [1.0]], dtype=torch.double).expand(
                2, self._encoding.width
            )
            best, _ = optimize_acqf(
                acquisition,
                bounds=bounds,
                q=1,
                num_restarts=NUM_RESTARTS,
                raw_samples=NUM_RAW_SAMPLES,
                options={
                    "seed": int(self._random.integers(2**31)),
                    "maxiter": 50,
                    "batch_limit": NUM_RESTARTS,
                },
            )
        place: list[float] = best[0].tolist()
        return place


class Encoding:
    """Configurations as points of a cube: a range is one coordinate, a choice one for each option."""

    def __init__(self, parameters: list[Flat]) -> None:
        self._parameters = parameters
        self._begins: list[int] = []
        self.width = 0
        for entry in parameters:
            self._begins.append(self.width)
            self.width += len(entry.options) or 1

    def encode(self, params: Mapping[str, Any]) -> list[float]:
        place = [0.0] * self.width
        known = indexed(self._parameters, params)
        for entry, begin in zip(self._parameters, self._begins, strict=True):
            if entry.name not in known:
                continue
            if isinstance(entry.parameter, Choices):
                place[begin + known[entry.name]] = 1.0
            else:
                place[begin] = _share(entry.parameter, known[entry.name])
        return place

    def decode(self, place: Sequence[float]) -> dict[str, Any]:
        """Return every parameter, whether it exists or not; choices by their index."""
        params: dict[str, Any] = {}
        for entry, begin in zip(self._parameters, self._begins, strict=True):
            if isinstance(entry.parameter, Choices):
                params[entry.name] = int(np.argmax(place[begin : begin + len(entry.options)]))
            else:
                params[entry.name] = _value(entry.parameter, place[begin])
        return params


def _share(parameter: Range, value: float) -> float:
    low, high, value = _scaled(parameter, parameter.low, parameter.high, value)
    return (value - low) / (high - low)


def _value(parameter: Range, share: float) -> float:
    low, high = _scaled(parameter, parameter.low, parameter.high)
    value = low + share * (high - low)
    value = math.exp(value) if parameter.log else value
    return round(value) if parameter.integer else value


def _scaled(parameter: Range, *values: float) -> list[float]:
    return [math.log(value) for value in values] if parameter.log else list(values)
