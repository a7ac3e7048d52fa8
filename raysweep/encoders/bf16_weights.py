"""Storage of frozen encoder weights in bf16, which halves their memory usage.

Each matrix is cast to the precision of the computation when it is used, so the embeddings are those of an fp32 encoder
with rounded weights.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class _Product(torch.autograd.Function):
    """Matrix product that saves the bf16 weight for the backward pass instead of its fp32 copy."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.dtype = inputs.dtype
        dtype = inputs.dtype
        if torch.is_autocast_enabled(inputs.device.type):
            dtype = torch.get_autocast_dtype(inputs.device.type)
        return nn.functional.linear(inputs.to(dtype), weight.to(dtype))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        return (gradient @ weight.to(gradient.dtype)).to(ctx.dtype), None


class Bf16Linear(nn.Linear):
    """A linear layer with a frozen bf16 weight and an fp32 bias."""

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = _Product.apply(input, self.weight)  # type: ignore[no-untyped-call]
        return output if self.bias is None else output + self.bias.to(output.dtype)


class Bf16Embedding(nn.Embedding):
    """A frozen bf16 embedding table that returns rows in fp32."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input).float()


_NARROW: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: Bf16Linear,
    nn.Embedding: Bf16Embedding,
}
_WIDE = {narrow: wide for wide, narrow in _NARROW.items()}


def narrow(model: "SentenceTransformer", trained: Collection[str] = ()) -> None:
    """Convert the weights of a transformer's linear layers and word embeddings to bf16.

    Weights whose names are in ``trained`` are converted to fp32 instead. Subclasses of ``nn.Linear`` and
    ``nn.Embedding`` are skipped because their forward pass may read the weight directly.
    """
    transformer: Any = getattr(model[0], "auto_model", None)
    if transformer is None:
        return
    parameters = {id(parameter) for name, parameter in model.named_parameters() if name in trained}
    table = transformer.get_input_embeddings()
    kept_in_fp32 = transformer._keep_in_fp32_modules or ()
    for name, layer in transformer.named_modules():
        if type(layer) in (nn.Embedding, Bf16Embedding) and layer.weight is not table.weight:
            continue
        if name.rpartition(".")[2] in kept_in_fp32:
            continue
        if id(getattr(layer, "weight", None)) in parameters:
            _widen(layer)
        elif type(layer) in _NARROW:
            layer.__class__ = _NARROW[type(layer)]
            layer.weight.data = layer.weight.data.bfloat16()


def widen(model: "SentenceTransformer") -> None:
    """Convert all bf16 weights to fp32."""
    for layer in model.modules():
        _widen(layer)


def is_narrow(model: "SentenceTransformer") -> bool:
    """Return whether any weights are stored in bf16."""
    return any(type(layer) in _WIDE for layer in model.modules())


def _widen(layer: Any) -> None:
    if type(layer) in _WIDE:
        layer.__class__ = _WIDE[type(layer)]
        layer.weight.data = layer.weight.data.float()
