"""Encoders: loading, tokens without padding, and embedding of batches cut into buckets of like length."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from raysweep.config import EncoderConfig
from raysweep.errors import InputError
from raysweep.model_source import ModelSource, locate

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

TEXTS_PER_CALL = 1024
TOKENS_PER_BATCH = 4096  # about 2 MB of activations per layer at width 384: larger batches gain nothing on a CPU


@dataclass(frozen=True)
class Tokens:
    """Token ids of sentences without padding: sentence i is ``flat[offsets[i]:offsets[i + 1]]``.

    ``flat``: int32 (tokens,); ``offsets``: int64 (sentences + 1,). Either may be a memory map.
    """

    flat: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        return np.asarray(self.offsets[ids + 1] - self.offsets[ids])

    def padded(self, ids: npt.NDArray[np.integer], pad: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Token ids and attention mask of the sentences ``ids``, each int64 (len(ids), longest)."""
        starts, lengths = self.offsets[ids], self.lengths(ids)
        column = np.arange(lengths.max())
        mask = column < lengths[:, None]
        gathered = self.flat[np.where(mask, starts[:, None] + column, 0)]
        return np.where(mask, gathered, pad).astype(np.int64), mask.astype(np.int64)

    @classmethod
    def of(cls, sequences: Sequence[npt.NDArray[np.int32]]) -> "Tokens":
        offsets = np.concatenate([[0], np.cumsum([len(sequence) for sequence in sequences], dtype=np.int64)])
        return cls(np.concatenate(sequences).astype(np.int32, copy=False), offsets.astype(np.int64))


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


def tokenise(model: "SentenceTransformer", texts: Sequence[str], prompt: str = "") -> Tokens:
    """Token ids as sentence-transformers itself makes them, truncated to the model's limit, padding removed."""
    sequences: list[npt.NDArray[np.int32]] = []
    for start in range(0, len(texts), TEXTS_PER_CALL):
        features = model.preprocess([prompt + text for text in texts[start : start + TEXTS_PER_CALL]])
        ids, mask = features["input_ids"].numpy(), features["attention_mask"].numpy().astype(bool)
        sequences += [row[kept].astype(np.int32) for row, kept in zip(ids, mask, strict=True)]
    return Tokens.of(sequences)


def buckets(
    lengths: npt.NDArray[np.integer], tokens_per_batch: int = TOKENS_PER_BATCH
) -> Iterator[npt.NDArray[np.int64]]:
    """Positions grouped by length, longest first, so that a padded bucket holds at most ``tokens_per_batch`` cells."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, tokens_per_batch // max(1, int(lengths[order[start]])))
        yield order[start : start + size]
        start += size


def forward(model: "SentenceTransformer", tokens: Tokens, ids: npt.NDArray[np.integer]) -> "torch.Tensor":
    """Embeddings of one padded batch, (len(ids), width), through the model's own modules, with gradients if enabled."""
    import torch

    padded, mask = tokens.padded(ids, _pad(model))
    features: dict[str, Any] = {"input_ids": torch.from_numpy(padded), "attention_mask": torch.from_numpy(mask)}
    features = {name: value.to(model.device, non_blocking=True) for name, value in features.items()}
    embeddings: torch.Tensor = model(features)["sentence_embedding"]
    return embeddings


def embed(
    model: "SentenceTransformer",
    tokens: Tokens,
    ids: npt.NDArray[np.integer],
    progress: Callable[[int], None] | None = None,
) -> npt.NDArray[np.float32]:
    """Unit-length fp32 embeddings of the sentences ``ids``, shape (len(ids), width), without gradients or dropout."""
    import torch

    model.eval()
    width = model.get_embedding_dimension()
    out = np.empty((len(ids), width or 0), np.float32)
    with torch.inference_mode():
        for bucket in buckets(tokens.lengths(ids)):
            rows = torch.nn.functional.normalize(forward(model, tokens, ids[bucket]).float(), dim=-1)
            out[bucket] = rows.cpu().numpy()
            if progress is not None:
                progress(len(bucket))
    return out


def _pad(model: "SentenceTransformer") -> int:
    pad = getattr(model.tokenizer, "pad_token_id", None)
    return 0 if pad is None else int(pad)


def best_device() -> str:
    """``cuda`` where there is one, otherwise ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
