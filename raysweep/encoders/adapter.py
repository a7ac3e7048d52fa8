"""Functions to attach, remove, scale and merge LoRA adapters with peft."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from raysweep.config.adapter import Lora
from raysweep.encoders.structure import Structure

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

NAME = "default"  # peft's default adapter name


def attach(model: "SentenceTransformer", structure: Structure, lora: Lora) -> None:
    """Attach a new adapter and freeze all other weights.

    The A matrices are initialized with torch's global generator. The B matrices are 0, so the embeddings do not change.
    """
    from peft import LoraConfig

    transformer: Any = model[0].auto_model
    linear = [
        name for name, module in transformer.named_modules() if isinstance(module, torch.nn.Linear)
    ]
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(structure.adapted_layers(linear, lora.targets)),
    )
    is_training = model.training
    model.requires_grad_(False)
    transformer.add_adapter(config, NAME)
    for layer in _layers(model).values():
        for matrices in (layer.lora_A, layer.lora_B):
            matrices.float()  # peft uses the dtype of the frozen weights
    model.train(is_training)  # peft's layers start in training mode


def remove(model: "SentenceTransformer") -> None:
    """Remove the adapter, if any, and restore the original linear layers."""
    layers = _layers(model)
    if not layers:
        return
    transformer: Any = model[0].auto_model
    for name, layer in layers.items():
        transformer.set_submodule(name, layer.base_layer)
    del transformer.peft_config
    transformer._hf_peft_config_loaded = False


def merge(model: "SentenceTransformer", share: float = 1.0) -> None:
    """Add the adapter's update, multiplied by ``share``, to the encoder's weights and remove the adapter."""
    with scaled(model, share):
        for layer in _layers(model).values():
            layer.merge()
    remove(model)


def updates(model: "SentenceTransformer") -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yield the name, the value and the adapter's update of each adapted weight."""
    for name, layer in _layers(model).items():
        yield (
            f"{name}.weight",
            layer.base_layer.weight.detach(),
            layer.get_delta_weight(NAME).detach(),
        )


def keep(model: "SentenceTransformer", share: float, base: str | None) -> None:
    """Multiply the adapter's update by ``share`` before the model is saved.

    If ``base`` is given, it is recorded as the base model's name in the adapter's configuration.
    """
    for layer in _layers(model).values():
        layer.scaling[NAME] *= share
    transformer: Any = model[0].auto_model
    config = transformer.peft_config[NAME]
    config.lora_alpha *= share
    if base is not None:
        config.base_model_name_or_path = base


@contextmanager
def scaled(model: "SentenceTransformer", share: float) -> Iterator[None]:
    """Multiply the adapter's update by ``share`` within the context.

    The model is then equivalent to an encoder with the weights (1 - share) * base + share * tuned.
    """
    layers = _layers(model).values()
    scalings = [layer.scaling[NAME] for layer in layers]
    try:
        for layer, scaling in zip(layers, scalings, strict=True):
            layer.scaling[NAME] = share * scaling
        yield
    finally:
        for layer, scaling in zip(layers, scalings, strict=True):
            layer.scaling[NAME] = scaling


def _layers(model: "SentenceTransformer") -> dict[str, Any]:
    """Return the adapter's layers by name, or an empty dict if there is no adapter."""
    transformer: Any = getattr(model[0], "auto_model", None)
    if not getattr(transformer, "_hf_peft_config_loaded", False):
        return {}
    from peft.tuners.lora import LoraLayer

    return {
        name: module
        for name, module in transformer.named_modules()
        if isinstance(module, LoraLayer)
    }
