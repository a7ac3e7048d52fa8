"""Averages of a trial's weights over its optimizer steps, which are often better on unseen sentences than the last ones."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor


class WeightAverage:
    """The moving average of parameters over optimizer steps, the initial weights left out.

    After n steps it is the mean of the weights w_1 ... w_n that the steps led to, each counted ``decay ** (n - i)`` times:
    with a decay of 0.99 mostly the last hundred. ``tensors`` are the averages by parameter name, ``num_steps`` is n. While
    the average ``is_shown``, the parameters have its values and ``tensors`` those that train.
    """

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], decay: float) -> None:
        self._parameters = parameters
        self._decay = decay
        self.tensors: dict[str, Tensor] = {name: each.detach().clone() for name, each in parameters.items()}
        self.num_steps = 0
        self.is_shown = False

    def update(self) -> None:
        """Take in the weights that a step led to."""
        assert not self.is_shown
        self.num_steps += 1
        sum_of_weights = (1 - self._decay**self.num_steps) / (1 - self._decay)
        averages = list(self.tensors.values())
        current = [self._parameters[name].detach() for name in self.tensors]
        torch._foreach_lerp_(averages, current, 1 / sum_of_weights)

    def swap(self) -> None:
        """Show the average in the parameters, or the weights that train again. Nothing is copied."""
        for name, parameter in self._parameters.items():
            parameter.data, self.tensors[name] = self.tensors[name], parameter.data
        self.is_shown = not self.is_shown

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the average is shown."""
        self.swap()
        try:
            yield
        finally:
            self.swap()
