"""A forward pass over several buckets of sentences at once: layers see their cells as one sequence, attention each bucket.

Buckets are padded to their longest sentence, so that few cells are wasted, and each is small. One after the other they cost
many small operations; packed, only attention, which must not look from one sentence into another, is computed by bucket.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from raysweep.encoders import encoder
from raysweep.encoders.tokens import Tokens

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

ATTENTION = "raysweep_packed"  # the name under which transformers knows the attention by bucket


# Architectures whose layers look at single cells, attention aside: those that count positions from 0, and those that count
# them from behind the id of the padding token.
COUNTED_FROM_0 = {"bert"}
COUNTED_FROM_PADDING = {"roberta", "xlm-roberta"}

MODULES_BEHIND = {"Pooling", "Normalize", "Dense"}  # which read a bucket's hidden states and its mask, and nothing else


@dataclass(frozen=True)
class _Bucket:
    """Sentences padded to the same length."""

    input_ids: Tensor  # (sentences, longest)
    attention_mask: Tensor  # the same

    @property
    def shape(self) -> tuple[int, int]:
        sentences, longest = self.input_ids.shape
        return sentences, longest

    @property
    def num_cells(self) -> int:
        return self.input_ids.numel()

    @cached_property
    def mask(self) -> Tensor | None:
        """Which cells each cell looks at, (sentences, 1, longest, longest); None if no sentence is padded."""
        is_token = self.attention_mask.bool()
        if is_token.all():
            return None
        sentences, longest = self.shape
        return is_token[:, None, None].expand(sentences, 1, longest, longest)


def is_packable(model: "SentenceTransformer") -> bool:
    """Whether packed passes give what the model's own do, and save time: on a CPU, for architectures that are known."""
    inner = getattr(model[0], "auto_model", None)
    config = getattr(inner, "config", None)
    return (
        model.device.type == "cpu"
        and getattr(config, "model_type", None) in COUNTED_FROM_0 | COUNTED_FROM_PADDING
        and getattr(config, "_attn_implementation", None) == "sdpa"
        and getattr(config, "position_embedding_type", "absolute") == "absolute"
        and not getattr(config, "is_decoder", False)
        and not _recomputes(inner)
        and getattr(model[0], "module_output_name", None) == "token_embeddings"
        and all(type(module).__name__ in MODULES_BEHIND for module in list(model)[1:])
    )


def _recomputes(transformer: Any) -> bool:
    """Whether layers run again in the backward pass, by gradient checkpointing: after the packed pass has ended."""
    return any(getattr(module, "gradient_checkpointing", False) for module in transformer.modules())


def forward(
    model: "SentenceTransformer",
    tokens: Tokens,
    buckets: Iterable[npt.NDArray[np.integer]],
    context: AbstractContextManager[None],
) -> Tensor:
    """Embeddings of two or more buckets' sentences, given by ids, in their order, (sentences, width).

    They have gradients if these are enabled. The model is one that :func:`is_packable`. The pass runs in ``context``.
    """
    padded = [_Bucket(**encoder.features(model, tokens, ids)) for ids in buckets]
    sizes = [bucket.num_cells for bucket in padded]
    with context:
        cells = _hidden(model, padded).split(sizes)
    return torch.cat([_pooled(model, bucket, hidden) for bucket, hidden in zip(padded, cells, strict=True)])


def _hidden(model: "SentenceTransformer", buckets: Sequence[_Bucket]) -> Tensor:
    """Hidden states of all cells, bucket after bucket, (cells, width)."""
    transformer: Any = model[0]
    config = transformer.auto_model.config
    input_ids = torch.cat([bucket.input_ids.flatten() for bucket in buckets])
    positions = torch.cat([_positions(config, bucket).flatten() for bucket in buckets])
    usual = config._attn_implementation
    _register()
    config._attn_implementation = ATTENTION
    try:
        features = transformer({"input_ids": input_ids[None], "position_ids": positions[None], "buckets": buckets})
    finally:
        config._attn_implementation = usual
    hidden: Tensor = features["token_embeddings"][0]
    return hidden


def _positions(config: Any, bucket: _Bucket) -> Tensor:
    """Of each cell in its sentence, as the architecture counts them: (sentences, longest)."""
    if config.model_type in COUNTED_FROM_0:
        _, longest = bucket.shape
        return torch.arange(longest).expand(bucket.shape)
    is_token = bucket.input_ids != config.pad_token_id
    counted: Tensor = is_token.cumsum(dim=1) * is_token
    return counted + int(config.pad_token_id)


def _pooled(model: "SentenceTransformer", bucket: _Bucket, hidden: Tensor) -> Tensor:
    """Embeddings of a bucket (sentences, width), of its cells' hidden states, by the modules behind the transformer."""
    features: dict[str, Any] = {
        "token_embeddings": hidden.view(*bucket.shape, -1),
        "attention_mask": bucket.attention_mask,
    }
    for module in list(model)[1:]:
        features = module(features)
    embeddings: Tensor = features["sentence_embedding"]
    return embeddings


@cache
def _register() -> None:
    """Tell transformers of the attention by bucket, once a process."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, _attend)


def _attend(  # noqa: PLR0913 - as transformers' AttentionInterface calls it
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    buckets: Sequence[_Bucket],
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention within each sentence: of query, key and value, (1, heads, cells, width of a head) each.

    Returns (1, cells, heads, width of a head), and None for the weights. No mask is given, since buckets have theirs.
    """
    sizes = [bucket.num_cells for bucket in buckets]
    projections = [cells[0].transpose(0, 1).split(sizes) for cells in (query, key, value)]
    attended = []
    for bucket, *of_bucket in zip(buckets, *projections, strict=True):
        q, k, v = (cells.unflatten(0, bucket.shape).transpose(1, 2) for cells in of_bucket)
        found = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=bucket.mask, dropout_p=dropout, scale=scaling
        )
        attended.append(found.transpose(1, 2).flatten(0, 1))
    return torch.cat(attended)[None], None
