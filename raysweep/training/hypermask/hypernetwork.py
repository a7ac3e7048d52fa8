"""The hypernetwork, which maps a task's embedding to one number per masked weight."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn


class Hypernetwork(nn.Module):
    """An MLP with ELU and tanh outputs, and an embedding per task, all trainable.

    Args:
        shapes: The shapes of the masked tensors by name.
        num_tasks: The number of tasks.
        embedding_size: The width of a task's embedding.
        hidden_layers: The widths of the hidden layers.
    """

    def __init__(
        self,
        shapes: Mapping[str, torch.Size],
        num_tasks: int,
        embedding_size: int,
        hidden_layers: Sequence[int],
    ) -> None:
        super().__init__()
        self.shapes = dict(shapes)
        self.embeddings = nn.Embedding(num_tasks, embedding_size)
        layers: list[nn.Module] = []
        width = embedding_size
        for hidden_width in hidden_layers:
            layers += [nn.Linear(width, hidden_width), nn.ELU()]
            width = hidden_width
        num_weights = sum(shape.numel() for shape in shapes.values())
        self.layers = nn.Sequential(*layers, nn.Linear(width, num_weights), nn.Tanh())

    def forward(self, tasks: Sequence[int]) -> Tensor:
        """Return the outputs for ``tasks`` before thresholding, (tasks, weights), in (-1, 1)."""
        embeddings = self.embeddings.weight[list(tasks)]
        outputs: Tensor = self.layers(embeddings)
        return outputs

    def split(self, outputs: Tensor) -> dict[str, Tensor]:
        """Split one task's outputs (weights,) into tensors with the names and shapes of the masked tensors."""
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = outputs.split(sizes)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: part.view(shape) for (name, shape), part in named}
