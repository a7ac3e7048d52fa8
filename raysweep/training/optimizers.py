"""Optimizers by name, with the parameter groups of transformers' trainer and optional layer-wise rate decay."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from raysweep.config.trial import TrialConfig


def build(
    config: TrialConfig, parameters: Mapping[str, torch.nn.Parameter], heights: Mapping[str, int] = MappingProxyType({})
) -> torch.optim.Optimizer:
    """Return the trial's optimizer over the trainable parameters, which are given by name.

    Weight decay applies to matrices, not to biases and norms. ``heights`` are the numbers of blocks above each
    parameter, 0 if missing; per block the learning rate is multiplied by ``layer_decay``, as in ELECTRA (Clark et al.
    2020, arXiv:2003.10555).
    """
    by_height: dict[int, list[torch.nn.Parameter]] = {}
    for name, parameter in parameters.items():
        if parameter.requires_grad:
            by_height.setdefault(heights.get(name, 0), []).append(parameter)
    groups: list[dict[str, Any]] = []
    for height, own in by_height.items():
        factor = config.layer_decay**height
        groups += [{**group, "rate_factor": factor} for group in _matrices_and_vectors(config, own)]
    rate = config.peak_learning_rate
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=rate, betas=_betas(config), fused=True)
    if config.optimizer == "adamax":
        return torch.optim.Adamax(groups, lr=rate, betas=_betas(config))
    if config.optimizer == "adadelta":
        return torch.optim.Adadelta(groups, lr=rate)
    return torch.optim.SGD(
        groups,
        lr=rate,
        momentum=config.momentum or 0.0,
        fused=True,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of each group to ``rate`` times the factor of the group's block, 1 for the top block."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate_factor"]


def _matrices_and_vectors(config: TrialConfig, parameters: Sequence[torch.nn.Parameter]) -> list[dict[str, Any]]:
    matrices = [parameter for parameter in parameters if parameter.ndim >= 2]
    vectors = [parameter for parameter in parameters if parameter.ndim < 2]
    return [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]


def _betas(config: TrialConfig) -> tuple[float, float]:
    """Return the decay rates of Adam's two means: of gradients, and of their magnitudes.

    Adamax without momentum uses neither, as in Vasilyev et al. 2024, Table 20: each step follows the gradient's sign.
    """
    first, second = 0.9, 0.999  # torch's defaults
    if config.momentum is not None:
        first = config.momentum
    if config.optimizer == "adamax" and config.momentum == 0:
        second = 0.0
    return first, second
