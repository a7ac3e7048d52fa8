"""Optimizers by name, with the parameter groups of the stock trainer."""

from collections.abc import Iterable

import torch

from raysweep.config.trial import TrialConfig


def build(config: TrialConfig, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """The trial's optimizer over the parameters that train. Weight decay applies to matrices, not to biases and norms."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    matrices = [parameter for parameter in trained if parameter.ndim >= 2]
    vectors = [parameter for parameter in trained if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
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


def _betas(config: TrialConfig) -> tuple[float, float]:
    """Of Adam's kind: how slowly its means of gradients and of their sizes move.

    Adamax without momentum has neither mean, as Vasilyev et al. 2024, Table 20: each step goes by the gradient's sign.
    """
    first, second = 0.9, 0.999  # torch's own
    if config.momentum is not None:
        first = config.momentum
    if config.optimizer == "adamax" and config.momentum == 0:
        second = 0.0
    return first, second
