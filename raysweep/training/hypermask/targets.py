"""Target networks, whose weights are shared by all tasks and masked for each task."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, NamedTuple

from torch import Tensor, nn

Heads = Literal["shared", "per_task"]


class TargetOutput(NamedTuple):
    """Embeddings (batch, width) and the logits of the task's classes (batch, classes)."""

    embeddings: Tensor
    logits: Tensor


class TaskHeads(nn.Module):
    """Linear heads, either one per task or one shared by all tasks.

    In a shared head, the classes of every task start at the first output.
    """

    def __init__(self, width: int, num_classes: Sequence[int], heads: Heads) -> None:
        super().__init__()
        self.num_classes = tuple(num_classes)
        sizes = [max(num_classes)] if heads == "shared" else num_classes
        self.linears = nn.ModuleList(nn.Linear(width, size) for size in sizes)

    def forward(self, embeddings: Tensor, task: int) -> Tensor:
        """Return the logits (batch, classes) of a task's classes for embeddings (batch, width)."""
        is_shared = len(self.linears) == 1
        linear = self.linears[0 if is_shared else task]
        logits: Tensor = linear(embeddings)
        return logits[:, : self.num_classes[task]]


class Target(nn.Module, ABC):
    """A network with one or more heads. All parameters are masked except the heads' biases, as in the published code."""

    heads: TaskHeads

    @property
    def output_biases(self) -> frozenset[str]:
        """The names of the parameters that are never masked."""
        return frozenset(
            name
            for name, _ in self.named_parameters()
            if name.startswith("heads.") and "bias" in name
        )

    @abstractmethod
    def forward(self, inputs: Tensor, task: int) -> TargetOutput:
        """Return a task's output for inputs (batch, inputs)."""


class Classifier(Target):
    """An MLP with ReLU activations. The output of its last hidden layer is the embedding.

    ``hidden_layers`` holds the widths of the hidden layers, at least one.
    """

    def __init__(
        self,
        num_inputs: int,
        hidden_layers: Sequence[int],
        num_classes: Sequence[int],
        heads: Heads = "shared",
    ) -> None:
        super().__init__()
        self.body = _layers([num_inputs, *hidden_layers])
        self.body.append(nn.ReLU())
        self.heads = TaskHeads(hidden_layers[-1], num_classes, heads)

    def forward(self, inputs: Tensor, task: int) -> TargetOutput:
        """Return the last hidden layer and the logits for inputs (batch, inputs)."""
        embeddings = self.body(inputs)
        return TargetOutput(embeddings, self.heads(embeddings, task))


class Adapter(Target):
    """A residual MLP with ReLU activations on fixed embeddings.

    It maps x to u = unit(x + MLP(x)). The head's input is sqrt(width) u, whose entries are of order 1.
    """

    def __init__(
        self,
        width: int,
        hidden_layers: Sequence[int],
        num_classes: Sequence[int],
        heads: Heads = "shared",
    ) -> None:
        super().__init__()
        self.body = _layers([width, *hidden_layers, width])
        self.heads = TaskHeads(width, num_classes, heads)

    def forward(self, inputs: Tensor, task: int) -> TargetOutput:
        """Return the unit embeddings and the logits for fixed embeddings (batch, width)."""
        embeddings = nn.functional.normalize(inputs + self.body(inputs), dim=-1)
        scaled = embeddings * embeddings.shape[1] ** 0.5
        return TargetOutput(embeddings, self.heads(scaled, task))


def _layers(widths: Sequence[int]) -> nn.Sequential:
    """Return linear layers between consecutive widths, with ReLU between them."""
    layers = nn.Sequential()
    for num_inputs, num_outputs in itertools.pairwise(widths):
        if layers:
            layers.append(nn.ReLU())
        layers.append(nn.Linear(num_inputs, num_outputs))
    return layers
