"""The HyperMask model: a target network masked by a hypernetwork, two penalties, and task inference."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from raysweep.training.hypermask.masks import MaskKind, threshold
from raysweep.training.hypermask.targets import Target, TargetOutput

Predict = Callable[[Tensor, int], TargetOutput]


@dataclass(frozen=True)
class MaskSettings:
    """Settings of the masks, the penalties and the hypernetwork.

    Attributes:
        percent: The percentage p of zeros in each masked tensor, from 0 to 100.
        kind: Whether masks keep signs.
        beta: The weight of the penalty on changes in the hypernetwork's outputs for earlier tasks.
        lambda_: The weight of the penalty on changes in the target network's weights.
        masked: Whether the ``lambda_`` penalty is weighted by the current task's mask.
        embedding_size: The width of a task's embedding.
        hidden_layers: The widths of the hypernetwork's hidden layers.
    """

    percent: float = 0.0
    kind: MaskKind = "absolute"
    beta: float = 1e-3
    lambda_: float = 1e-3
    masked: bool = True
    embedding_size: int = 24
    hidden_layers: tuple[int, ...] = (50, 50)


class Hypernetwork(nn.Module):
    """An MLP with ELU activations and tanh outputs, whose input is a trainable embedding of the task.

    ``shapes`` maps the names of the masked tensors to their shapes.
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


class Snapshot(NamedTuple):
    """State before a task: unthresholded outputs for earlier tasks, (earlier tasks, weights), and theta by name."""

    outputs: Tensor
    weights: dict[str, Tensor]


class HyperMask(nn.Module):
    """A target network f with weights theta, and a hypernetwork that generates a mask m_t for each task t.

    The output for task t is f(x; theta * m_t). The ``state_dict`` does not contain the masks, so the percentage of zeros
    can be changed later.
    """

    def __init__(self, target: Target, num_tasks: int, settings: MaskSettings) -> None:
        super().__init__()
        self.target = target
        self.settings = settings
        unmasked = target.output_biases
        shapes = {
            name: weight.shape for name, weight in target.named_parameters() if name not in unmasked
        }
        self.hypernetwork = Hypernetwork(
            shapes, num_tasks, settings.embedding_size, settings.hidden_layers
        )

    def masks(self, task: int, percent: float | None = None) -> dict[str, Tensor]:
        """Return a task's masks, keyed by tensor name; ``percent`` overrides the percentage of zeros in the settings."""
        percent = self.settings.percent if percent is None else percent
        (outputs,) = self.hypernetwork([task])
        kind = self.settings.kind
        return {
            name: threshold(values, percent, kind)
            for name, values in self.hypernetwork.split(outputs).items()
        }

    def forward(
        self, inputs: Tensor, task: int, masks: Mapping[str, Tensor] | None = None
    ) -> TargetOutput:
        """Return a task's output for inputs (batch, inputs). ``masks`` defaults to the task's own masks."""
        masks = self.masks(task) if masks is None else masks
        output: TargetOutput = functional_call(
            self.target, masked_weights(self.target, masks), (inputs, task)
        )
        return output

    def snapshot(self, num_earlier: int) -> Snapshot:
        """Return a copy of the current state, with the outputs for the first ``num_earlier`` tasks."""
        with torch.no_grad():
            outputs = self.hypernetwork(range(num_earlier))
        weights = {name: weight.detach().clone() for name, weight in self.target.named_parameters()}
        return Snapshot(outputs, weights)

    def output_loss(self, before: Snapshot) -> Tensor:
        """Return L_output, the mean over earlier tasks of the squared distance between old and new outputs, a scalar.

        Outputs are taken after the tanh and before thresholding. The published code compares outputs before the tanh
        and divides twice by the number of earlier tasks.
        """
        num_earlier = len(before.outputs)
        if num_earlier == 0:
            return before.outputs.sum()
        outputs: Tensor = self.hypernetwork(range(num_earlier))
        squared_distances = (outputs - before.outputs).square().sum(dim=1)
        return squared_distances.mean()

    def target_loss(self, before: Snapshot, masks: Mapping[str, Tensor]) -> Tensor:
        """Return L_target, the L1 distance between the previous and the current theta, a scalar.

        If ``settings.masked``, each change is multiplied by the magnitude of the weight's mask. Head biases have no mask.
        """
        distances = []
        for name, weight in self.target.named_parameters():
            changes = (weight - before.weights[name]).abs()
            if self.settings.masked and name in masks:
                changes = changes * masks[name].abs()
            distances.append(changes.sum())
        return torch.stack(distances).sum()


def masked_weights(target: Target, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights theta * m by name, which a target network without masks can load."""
    return {
        name: weight * masks[name] if name in masks else weight
        for name, weight in target.named_parameters()
    }


def entropies(predict: Predict, inputs: Tensor, tasks: Sequence[int]) -> Tensor:
    """Return the entropies of the class probabilities under each task's mask, (tasks, batch), in nats.

    ``predict`` is a :class:`HyperMask` or any other network with outputs for each task.
    """
    by_task = []
    with torch.no_grad():
        for task in tasks:
            log_probabilities = predict(inputs, task).logits.log_softmax(dim=-1)
            by_task.append(-(log_probabilities.exp() * log_probabilities).sum(dim=-1))
    return torch.stack(by_task)


def infer_tasks(predict: Predict, inputs: Tensor, tasks: Sequence[int]) -> Tensor:
    """Return the task with the lowest entropy for each input, (batch,); ties go to the first."""
    candidates = torch.tensor(tasks, device=inputs.device)
    return candidates[entropies(predict, inputs, tasks).argmin(dim=0)]
