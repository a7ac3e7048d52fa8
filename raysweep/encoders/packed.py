"""Packed forward passes, which process several buckets of sentences at once.

Small buckets need little padding, but processing each one separately takes many small operations. In a packed pass, the
layers process the cells (tokens, including padding) of all buckets as one sequence. Only attention is computed per
bucket, because it must not cross sentences.
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
from raysweep.encoders.families import family_of
from raysweep.encoders.tokens import Tokens

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

ATTENTION = "raysweep_packed"  # name of the attention function in transformers
# modules that may follow the transformer
MODULES_BEHIND = {
    "Pooling",
    "Normalize",
    "Dense",
}


@dataclass(frozen=True)
class _Bucket:
    """Sentences padded to the same length."""

    input_ids: Tensor  # (sentences, longest)
    attention_mask: Tensor  # (sentences, longest)
    prompt_length: int = 0  # tokens at the start of each sentence that pooling excludes

    @property
    def shape(self) -> tuple[int, int]:
        sentences, longest = self.input_ids.shape
        return sentences, longest

    @property
    def num_cells(self) -> int:
        return self.input_ids.numel()

    @cached_property
    def mask(self) -> Tensor | None:
        """Return the attention mask, (sentences, 1, longest, longest), or None if no sentence is padded."""
        is_token = self.attention_mask.bool()
        if is_token.all():
            return None
        sentences, longest = self.shape
        return is_token[:, None, None].expand(sentences, 1, longest, longest)


def is_packable(model: "SentenceTransformer") -> bool:
    """Return whether packed passes are supported for the model and save time, which they do only on CPUs."""
    transformer: Any = getattr(model[0], "auto_model", None)
    if transformer is None:
        return False
    config = getattr(transformer, "config", None)
    # Gradient checkpointing reruns layers in the backward pass, after the packed pass has ended.
    recomputes = any(
        getattr(module, "gradient_checkpointing", False) for module in transformer.modules()
    )
    return (
        model.device.type == "cpu"
        and _counts_from(config) is not None
        and getattr(config, "_attn_implementation", None) == "sdpa"
        and getattr(config, "position_embedding_type", "absolute") == "absolute"
        and not getattr(config, "is_decoder", False)
        and not recomputes
        and getattr(model[0], "module_output_name", None) == "token_embeddings"
        and all(type(module).__name__ in MODULES_BEHIND for module in list(model)[1:])
    )


def forward(
    model: "SentenceTransformer",
    tokens: Tokens,
    buckets: Iterable[npt.NDArray[np.integer]],
    context: AbstractContextManager[None],
) -> Tensor:
    """Return the embeddings (sentences, width) of two or more buckets of ids, computed in one packed pass.

    The model must be packable (:func:`is_packable`). The pass runs in ``context``.
    """
    padded = [_Bucket(**encoder.features(model, tokens, ids)) for ids in buckets]
    sizes = [bucket.num_cells for bucket in padded]
    with context:
        cells = _hidden(model, padded).split(sizes)
    embeddings = []
    for bucket, hidden in zip(padded, cells, strict=True):
        features: dict[str, Any] = {
            "token_embeddings": hidden.view(*bucket.shape, -1),
            "attention_mask": bucket.attention_mask,
        }
        if bucket.prompt_length:
            features["prompt_length"] = bucket.prompt_length
        for module in list(model)[1:]:  # the modules after the transformer
            features = module(features)
        embeddings.append(features["sentence_embedding"])
    return torch.cat(embeddings)


def _hidden(model: "SentenceTransformer", buckets: Sequence[_Bucket]) -> Tensor:
    """Return the hidden states of all cells, bucket by bucket, (cells, width)."""
    transformer: Any = model[0]
    config = transformer.auto_model.config
    input_ids = torch.cat([bucket.input_ids.flatten() for bucket in buckets])
    positions = torch.cat([_positions(config, bucket).flatten() for bucket in buckets])
    usual = config._attn_implementation
    _register()
    config._attn_implementation = ATTENTION
    try:
        features = transformer(
            {"input_ids": input_ids[None], "position_ids": positions[None], "buckets": buckets}
        )
    finally:
        config._attn_implementation = usual
    hidden: Tensor = features["token_embeddings"][0]
    return hidden


def _counts_from(config: Any) -> str | None:
    """Return the family's ``positions``, or None if the architecture does not support packed passes."""
    family = family_of(getattr(config, "model_type", None))
    return None if family is None else family.positions


def _positions(config: Any, bucket: _Bucket) -> Tensor:
    """Return the position id of each cell, (sentences, longest)."""
    if _counts_from(config) == "0":
        _, longest = bucket.shape
        return torch.arange(longest).expand(bucket.shape)
    is_token = bucket.input_ids != config.pad_token_id
    counted: Tensor = is_token.cumsum(dim=1) * is_token
    return counted + int(config.pad_token_id)


@cache
def _register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, _attend)


def _attend(  # noqa: PLR0913 - the signature of transformers' AttentionInterface
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
    """Return the attention outputs, (1, cells, heads, head width), and None for the attention weights.

    ``query``, ``key`` and ``value`` are (1, heads, cells, head width). ``attention_mask`` is None because
    buckets have their own masks.
    """
    sizes = [bucket.num_cells for bucket in buckets]
    projections = [cells[0].transpose(0, 1).split(sizes) for cells in (query, key, value)]
    attended = []
    for bucket, *bucket_cells in zip(buckets, *projections, strict=True):
        q, k, v = (cells.unflatten(0, bucket.shape).transpose(1, 2) for cells in bucket_cells)
        heads = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=bucket.mask, dropout_p=dropout, scale=scaling
        )
        attended.append(heads.transpose(1, 2).flatten(0, 1))
    return torch.cat(attended)[None], None
