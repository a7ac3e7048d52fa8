"""Moving averages of a trial's weights, which often generalize better than the last weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor


class WeightAverage:
    """Exponential moving average of parameters over optimizer steps, without the initial weights.

    After n steps it is the weighted mean of the weights w_1 ... w_n after each step, with weight ``decay ** (n - i)``
    for w_i: a decay of 0.99 averages roughly the last hundred steps. ``tensors`` are the averages by parameter name,
    ``num_steps`` is n. While the average ``is_shown``, the parameters hold the averages and ``tensors`` the weights in
    training.
    """

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], decay: float) -> None:
        self._parameters = parameters
        self._decay = decay
        self.tensors: dict[str, Tensor] = {name: each.detach().clone() for name, each in parameters.items()}
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
        """Exchange the averages and the weights in training without copying."""
        for name, parameter in self._parameters.items():
            parameter.data, self.tensors[name] = self.tensors[name], parameter.data
        self.is_shown = not self.is_shown

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Swap the averages into the parameters within the context."""
        self.swap()
        try:
            yield
        finally:
            self.swap()
