"""A trial's optimizer, learning rates and weight average."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from raysweep.config.trial import TrialConfig


def build_optimizer(
    config: TrialConfig,
    parameters: Mapping[str, torch.nn.Parameter],
    heights: Mapping[str, int] = MappingProxyType({}),
) -> torch.optim.Optimizer:
    """Return the trial's optimizer for the trainable ``parameters``, keyed by name.

    As in transformers' trainer, weight decay applies to matrices, not to biases and norms. ``heights`` maps parameter
    names to the heights from :meth:`Structure.heights`; the default is 0. The learning rate is multiplied by
    ``layer_decay ** height``, as in ELECTRA (Clark et al. 2020, arXiv:2003.10555).
    """
    by_height: dict[int, list[torch.nn.Parameter]] = {}
    for name, parameter in parameters.items():
        if parameter.requires_grad:
            height = heights.get(name, 0)
            by_height.setdefault(height, []).append(parameter)
    groups: list[dict[str, Any]] = []
    for height, parameters_at_height in by_height.items():
        factor = config.layer_decay**height
        matrices = [parameter for parameter in parameters_at_height if parameter.ndim >= 2]
        groups.append(
            {"params": matrices, "weight_decay": config.weight_decay, "rate_factor": factor}
        )
        vectors = [parameter for parameter in parameters_at_height if parameter.ndim < 2]
        groups.append({"params": vectors, "weight_decay": 0.0, "rate_factor": factor})
    rate = config.peak_learning_rate
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=rate, betas=_betas(config), fused=True)
    if config.optimizer == "adamax":
        return torch.optim.Adamax(groups, lr=rate, betas=_betas(config))
    if config.optimizer == "adadelta":
        return torch.optim.Adadelta(groups, lr=rate)
    return torch.optim.SGD(groups, lr=rate, momentum=config.momentum or 0.0, fused=True)


def _betas(config: TrialConfig) -> tuple[float, float]:
    """Return Adam's betas.

    For Adamax with momentum 0, both are 0, so that each step uses only the gradient's sign (Vasilyev et al. 2024,
    Table 20).
    """
    first, second = 0.9, 0.999  # torch's defaults
    if config.momentum is not None:
        first = config.momentum
    if config.optimizer == "adamax" and config.momentum == 0:
        second = 0.0
    return first, second


# Learning-rate factors after warm-up, as functions of progress from 0 (end of warm-up) to 1 (end of the schedule).
_FACTORS: Mapping[str, Callable[[float], float]] = MappingProxyType(
    {
        "constant": lambda progress: 1.0,
        "linear": lambda progress: 1.0 - progress,
        "quadratic": lambda progress: 1.0 - progress**2,
        "polynomial": lambda progress: (1.0 - progress) ** 2,
        "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
    }
)


def rate_multiplier(
    schedule: str,
    step: int,
    num_steps: int,
    warmup_steps: int,
    *,
    rung: int = 0,
    decay: float | None = None,
) -> float:
    """Return the learning-rate factor, in [0, 1], for optimizer step ``step`` of ``num_steps``, counting from 0.

    The factor rises linearly from 0 over ``warmup_steps``, then follows the schedule; if ``warmup_steps`` exceeds
    ``num_steps``, it never reaches 1. The values equal those of transformers' schedulers with the same names;
    ``constant`` is ``constant_with_warmup``, and ``polynomial`` has power 2 and ends at 0. ``quadratic`` is
    ``1 - progress ** 2`` (Vasilyev et al. 2024, Table 19).

    ``exponential`` is ``decay ** rung``, with rungs counted from 0, like torch's ``ExponentialLR`` stepped at the end
    of each epoch. Table 19 suggests that the exponent is the optimizer step, but the rate would then vanish after a few
    hundred steps, which contradicts the epoch counts in Table 17.
    """
    if step < warmup_steps:
        return step / warmup_steps
    if schedule == "exponential":
        assert decay is not None
        return float(decay**rung)
    progress = (step - warmup_steps) / max(1, num_steps - warmup_steps)
    return _FACTORS[schedule](min(1.0, progress))


class LearningRates:
    """The learning rate of a trial at each optimizer step."""

    def __init__(self, config: TrialConfig, num_rungs: int) -> None:
        self._config = config
        examples_per_step = config.batch_size * config.accumulation_steps
        steps_per_rung = -(-config.examples_per_rung // examples_per_step)
        self._steps_per_rung = steps_per_rung
        self._num_steps = steps_per_rung
        if not config.restart_each_rung:
            self._num_steps *= num_rungs
        if config.warmup_steps is None:
            self._warmup_steps = round(config.warmup_fraction * self._num_steps)
        else:
            self._warmup_steps = config.warmup_steps

    def rate(self, rung: int, step_in_rung: int) -> float:
        """Return the learning rate of a step; rungs and steps within a rung are counted from 0."""
        config = self._config
        step = step_in_rung
        if not config.restart_each_rung:
            step += rung * self._steps_per_rung
        factor = rate_multiplier(
            config.schedule,
            step,
            self._num_steps,
            self._warmup_steps,
            rung=rung,
            decay=config.decay,
        )
        return config.peak_learning_rate * factor

    def apply(self, optimizer: torch.optim.Optimizer, rung: int, step_in_rung: int) -> None:
        """Set the learning rate of each parameter group, scaled by the group's layer-decay factor."""
        rate = self.rate(rung, step_in_rung)
        for group in optimizer.param_groups:
            group["lr"] = rate * group["rate_factor"]


class WeightAverage:
    """Exponential moving average of parameters over optimizer steps, excluding their initial values.

    After n = ``num_steps`` steps, it is the weighted mean of the parameters w_1, ..., w_n after each step, where w_i has
    the weight ``decay ** (n - i)``. ``tensors`` holds the averages by name. While ``is_shown`` is true, the parameters
    hold the averages, and ``tensors`` holds the weights being trained.
    """

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], decay: float) -> None:
        self._parameters = parameters
        self._decay = decay
        self.tensors: dict[str, Tensor] = {
            name: parameter.detach().clone() for name, parameter in parameters.items()
        }
        self.num_steps = 0
        self.is_shown = False

    def update(self) -> None:
        """Add the current weights to the average."""
        assert not self.is_shown
        self.num_steps += 1
        sum_of_weights = (1 - self._decay**self.num_steps) / (1 - self._decay)
        averages = list(self.tensors.values())
        current = [self._parameters[name].detach() for name in self.tensors]
        torch._foreach_lerp_(averages, current, 1 / sum_of_weights)

    def swap(self) -> None:
        """Exchange the averages and the weights being trained, without copying."""
        for name, parameter in self._parameters.items():
            parameter.data, self.tensors[name] = self.tensors[name], parameter.data
        self.is_shown = not self.is_shown
