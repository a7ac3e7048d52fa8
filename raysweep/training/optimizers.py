"""Optimizers by name, with the parameter groups of the stock trainer."""

from collections.abc import Iterable

import torch

from raysweep.config.trial import TrialConfig


def build(config: TrialConfig, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """The trial's optimizer over the parameters that train; matrices decay, biases and norms do not."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    rate = config.peak_learning_rate
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=rate, fused=True)
    if config.optimizer == "adamax":
        return torch.optim.Adamax(groups, lr=rate)
    return torch.optim.SGD(groups, lr=rate, momentum=config.momentum or 0.0, fused=True)
