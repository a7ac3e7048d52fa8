"""Parameters of LoRA adapters."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

TARGETS = ("attention", "feed_forward", "all_linear")
"""Groups of linear layers in each encoder block that an adapter can target."""

DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {"lora_rank": 8, "lora_targets": "all_linear", "lora_dropout": 0.0}
)
"""Default parameters of an adapter; ``lora_alpha`` defaults to twice the rank."""

PARAMETERS = ("lora_rank", "lora_alpha", "lora_targets", "lora_dropout")


@dataclass(frozen=True)
class Lora:
    """A LoRA adapter (Hu et al. 2021, arXiv:2106.09685).

    A linear layer's output x W' becomes x W' + (alpha / rank) x A' B', where ' denotes the transpose. The matrices A
    (rank, inputs) and B (outputs, rank) are trained. B is initialized to 0. ``targets`` is one of TARGETS. ``dropout``
    is applied to the input of A.
    """

    rank: int
    alpha: float
    targets: str
    dropout: float = 0.0


def adapter_defaults(adapter: object) -> Mapping[str, Any]:
    """Return the adapter's default parameters, or an empty mapping if there is no adapter."""
    return DEFAULTS if adapter == "lora" else {}
