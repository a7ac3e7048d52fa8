"""Sub-embeddings: adapter outputs for frozen embeddings, with one mask per data set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import linear, normalize, relu

from raysweep.data.sequence import SentenceSequence
from raysweep.data.shards import Rows
from raysweep.metrics.arrays import Float32Array
from raysweep.training.hypermask.model import HyperMask, masked_weights
from raysweep.training.trainable import TrainedWeights

Layer = tuple[Tensor, Tensor]
"""The weight (outputs, inputs) and bias (outputs,) of a linear layer."""

_BODY = "body."
ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class SubEmbeddings:
    """The masked linear layers of an adapter's MLP for each data set.

    The sub-embedding of a unit embedding x is normalize(x + MLP(x)). The MLP uses ReLU between its layers.
    """

    layers: Sequence[Sequence[Layer]]

    @classmethod
    def of(cls, model: HyperMask, num_tasks: int) -> "SubEmbeddings":
        """Apply the masks of the first ``num_tasks`` data sets to a model's adapter."""
        with torch.no_grad():
            by_task = [masked_weights(model.target, model.masks(task)) for task in range(num_tasks)]
        return cls([_layers_of(weights) for weights in by_task])

    @classmethod
    def from_weights(cls, weights: TrainedWeights) -> "SubEmbeddings":
        """Rebuild the layers from stored :attr:`weights`.

        Raises:
            ValueError: If a tensor is not an adapter weight.
        """
        by_task: dict[int, dict[str, Tensor]] = {}
        for name, tensor in weights.tensors.items():
            task, _, own_name = name.partition(".")
            if not task.isdecimal() or not own_name.startswith(_BODY):
                raise ValueError(f"{name} is not an adapter weight")
            by_task.setdefault(int(task), {})[own_name] = tensor
        return cls([_layers_of(by_task[task]) for task in sorted(by_task)])

    @property
    def weights(self) -> TrainedWeights:
        """Return the layers as named tensors for storage."""
        tensors = {}
        for task, layers in enumerate(self.layers):
            for number, (weight, bias) in enumerate(layers):
                tensors[f"{task}.{_BODY}{number}.weight"] = weight.cpu()
                tensors[f"{task}.{_BODY}{number}.bias"] = bias.cpu()
        return TrainedWeights(tensors)

    def embed(self, embeddings: Tensor, task: int) -> Tensor:
        """Return the sub-embeddings (rows, width) of unit embeddings (rows, width) for one data set."""
        *hidden_layers, last = self.layers[task]
        states = embeddings
        for weight, bias in hidden_layers:
            states = relu(linear(states, weight, bias))
        return normalize(embeddings + linear(states, *last), dim=-1)


def _layers_of(weights: Mapping[str, Tensor]) -> list[Layer]:
    numbers = sorted({int(name.split(".")[1]) for name in weights if name.startswith(_BODY)})
    return [
        (weights[f"{_BODY}{number}.weight"], weights[f"{_BODY}{number}.bias"]) for number in numbers
    ]


@dataclass(frozen=True)
class SubEncoder:
    """An encoder that applies the adapter to stored embeddings, using the mask of each sentence's data set."""

    embeddings: Rows
    sentences: SentenceSequence
    sub_embeddings: SubEmbeddings
    device: str

    @property
    def width(self) -> int:
        return int(self.embeddings.shape[1])

    def embed(self, ids: npt.NDArray[np.integer]) -> Float32Array:
        embedded = np.empty((len(ids), self.width), np.float32)
        tasks = self.sentences.data_sets_of(ids)
        for task in np.unique(tasks).tolist():
            positions = np.flatnonzero(tasks == task)
            for start in range(0, len(positions), ROWS_AT_ONCE):
                rows = positions[start : start + ROWS_AT_ONCE]
                stored = np.array(self.embeddings[ids[rows]])
                inputs = torch.from_numpy(stored).to(self.device)
                outputs = self.sub_embeddings.embed(inputs, task)
                embedded[rows] = outputs.cpu().numpy()
        return embedded
