"""Encoders: loading, tokens without padding, and embedding of batches cut into buckets of like length."""

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import precision
from raysweep.encoders.buckets import buckets
from raysweep.encoders.locate import ModelSource, locate
from raysweep.encoders.tokens import Tokens
from raysweep.errors import InputError

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer


def load(config: EncoderConfig, *, device: str = "cpu", source: ModelSource | None = None) -> "SentenceTransformer":
    """Load an encoder in fp32, in evaluation mode. InputError when it is unknown or is no text encoder."""
    source = source or locate(config)
    from sentence_transformers import SentenceTransformer

    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    try:
        model = SentenceTransformer(
            str(source.folder), device=device, local_files_only=True, model_kwargs={"dtype": "float32"}
        )
    except Exception as error:  # a damaged or foreign folder fails in any layer below, each with errors of its own
        raise InputError(f"model {config.name!r} cannot be loaded: {' '.join(str(error).split())[:300]}") from None
    if model.tokenizer is None:
        raise InputError(f"model {config.name!r} has no tokenizer, so it is no text encoder")
    if config.max_tokens is not None:
        model.max_seq_length = config.max_tokens
    return model.eval()


Replay = Callable[[npt.NDArray[np.integer]], contextlib.AbstractContextManager[None]]
"""Within the context that this gives for some sentences, a part of the encoder need not be run for their padded batch."""


def nothing_replayed(ids: npt.NDArray[np.integer]) -> contextlib.AbstractContextManager[None]:
    """The Replay under which the whole encoder runs."""
    return contextlib.nullcontext()


def forward(
    model: "SentenceTransformer",
    tokens: Tokens,
    ids: npt.NDArray[np.integer],
    replay: contextlib.AbstractContextManager[None] | None = None,
) -> "torch.Tensor":
    """Embeddings of one padded batch, (len(ids), width), through the model's own modules, with gradients if enabled.

    Within ``replay`` a part of the encoder may give results that are kept already.
    """
    import torch

    padded, mask = tokens.padded(ids, pad_id(model))
    features: dict[str, Any] = {"input_ids": torch.from_numpy(padded), "attention_mask": torch.from_numpy(mask)}
    if model.device.type == "cuda":  # from pinned memory, so that the copy does not wait for the device
        features = {name: value.pin_memory().to(model.device, non_blocking=True) for name, value in features.items()}
    with replay or contextlib.nullcontext():
        embeddings: torch.Tensor = model(features)["sentence_embedding"]
    return embeddings


def embed(
    model: "SentenceTransformer",
    tokens: Tokens,
    ids: npt.NDArray[np.integer],
    progress: Callable[[int], None] | None = None,
    replay: Replay = nothing_replayed,
    arithmetic: str = "fp32",
    unit: bool = True,
) -> npt.NDArray[np.float32]:
    """Embeddings of the sentences ``ids``, fp32 of shape (len(ids), width), without gradients or dropout.

    Of length 1 unless ``unit`` is false. ``arithmetic`` is fp32 or bf16. ``replay`` gives for each padded batch the context
    that its forward pass runs in.
    """
    import torch

    model.eval()
    width = model.get_embedding_dimension()
    out = np.empty((len(ids), width or 0), np.float32)
    with torch.inference_mode(), precision.autocast(arithmetic, model.device.type):
        for bucket in buckets(tokens.lengths(ids)):
            rows = forward(model, tokens, ids[bucket], replay(ids[bucket])).float()
            out[bucket] = (torch.nn.functional.normalize(rows, dim=-1) if unit else rows).cpu().numpy()
            if progress is not None:
                progress(len(bucket))
    return out


def word_table(model: "SentenceTransformer") -> "torch.nn.Embedding | None":
    """The encoder's table of word embeddings, where it is a plain one."""
    import torch

    inner = getattr(model[0], "auto_model", None)
    table = inner.get_input_embeddings() if inner is not None else None
    plain = type(table) is torch.nn.Embedding and table.max_norm is None and not table.scale_grad_by_freq
    return table if plain else None


def hidden_width(model: "SentenceTransformer") -> int:
    """The width of hidden states within the encoder; embeddings may be narrower or wider."""
    return int(model[0].auto_model.config.hidden_size)  # type: ignore[union-attr, arg-type]


def pad_id(model: "SentenceTransformer") -> int:
    """The token that fills padded batches."""
    pad = getattr(model.tokenizer, "pad_token_id", None)
    return 0 if pad is None else int(pad)


def use_threads(num_threads: int) -> None:
    """Let this process compute with so many threads."""
    import torch

    torch.set_num_threads(num_threads)


def best_device() -> str:
    """``cuda`` where there is one, otherwise ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
