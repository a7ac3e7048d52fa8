"""Encoders: loading, tokens without padding, and embedding of batches cut into buckets of like length."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from raysweep import precision
from raysweep.config import EncoderConfig
from raysweep.errors import InputError
from raysweep.model_source import ModelSource, locate

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

    from raysweep.prefix import Prefix

TEXTS_PER_CALL = 1024
TOKENS_PER_BATCH = 4096  # about 2 MB of activations per layer at width 384: larger batches gain nothing on a CPU

# A training batch is cut into buckets of like length; smaller ones pad less, larger ones leave the processor's caches,
# while on a GPU every further bucket costs launches. In tokens: the most that a bucket holds, and what one more costs.
TOKENS_PER_BUCKET = {"cpu": 512, "cuda": 16384}
BUCKET_COST = {"cpu": 60, "cuda": 4096}
MOST_TO_WEIGH = 2048  # sentences: beyond, a batch is simply filled bucket by bucket


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

    def of_ids(self, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        """The token ids of the sentences ``ids``, one after the other."""
        lengths = self.lengths(ids)
        ends = np.cumsum(lengths)
        inside = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        return np.asarray(self.flat[np.repeat(self.offsets[ids], lengths) + inside])

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


def training_buckets(lengths: npt.NDArray[np.integer], device: str) -> list[npt.NDArray[np.int64]]:
    """Positions of a training batch's sentences, cut into buckets for this kind of device, longest first."""
    kind = device if device in TOKENS_PER_BUCKET else "cpu"
    if len(lengths) > MOST_TO_WEIGH:
        return list(buckets(lengths, TOKENS_PER_BUCKET[kind]))
    return least_padded(lengths, TOKENS_PER_BUCKET[kind], BUCKET_COST[kind])


def least_padded(
    lengths: npt.NDArray[np.integer], tokens_per_bucket: int, bucket_cost: int
) -> list[npt.NDArray[np.int64]]:
    """Positions grouped by length, longest first, at the least cost of all ways to group them so.

    A bucket costs its padded cells, at most ``tokens_per_bucket`` unless it holds one sentence, and ``bucket_cost`` cells
    for being one more. O(n^2), for the few hundred sentences of a training batch.
    """
    order = np.argsort(-lengths, kind="stable")
    longest = lengths[order].astype(np.int64)
    count = len(order)
    best = np.zeros(count + 1, np.int64)
    begin = np.zeros(count + 1, np.int64)
    for end in range(1, count + 1):
        cells = (end - np.arange(end)) * longest[:end]
        costs = np.where(cells <= tokens_per_bucket, best[:end] + cells, np.iinfo(np.int64).max - bucket_cost)
        costs[-1] = best[end - 1] + cells[-1]
        begin[end] = costs.argmin()
        best[end] = costs[begin[end]] + bucket_cost
    cuts = [count]
    while cuts[-1] > 0:
        cuts.append(int(begin[cuts[-1]]))
    return np.split(order, cuts[-2:0:-1]) if count else []


def forward(
    model: "SentenceTransformer", tokens: Tokens, ids: npt.NDArray[np.integer], prefix: "Prefix | None" = None
) -> "torch.Tensor":
    """Embeddings of one padded batch, (len(ids), width), through the model's own modules, with gradients if enabled.

    With a ``prefix`` its part of the encoder is not run where its results are kept already.
    """
    import torch

    padded, mask = tokens.padded(ids, pad_id(model))
    features: dict[str, Any] = {"input_ids": torch.from_numpy(padded), "attention_mask": torch.from_numpy(mask)}
    if model.device.type == "cuda":  # from pinned memory, so that the copy does not wait for the device
        features = {name: value.pin_memory().to(model.device, non_blocking=True) for name, value in features.items()}
    with prefix.replayed(ids) if prefix is not None else contextlib.nullcontext():
        embeddings: torch.Tensor = model(features)["sentence_embedding"]
    return embeddings


def embed(
    model: "SentenceTransformer",
    tokens: Tokens,
    ids: npt.NDArray[np.integer],
    progress: Callable[[int], None] | None = None,
    prefix: "Prefix | None" = None,
    arithmetic: str = "fp32",
    unit: bool = True,
) -> npt.NDArray[np.float32]:
    """Embeddings of the sentences ``ids``, fp32 of shape (len(ids), width), without gradients or dropout.

    Of length 1 unless ``unit`` is false. ``arithmetic`` is fp32 or bf16.
    """
    import torch

    model.eval()
    width = model.get_embedding_dimension()
    out = np.empty((len(ids), width or 0), np.float32)
    with torch.inference_mode(), precision.autocast(arithmetic, model.device.type):
        for bucket in buckets(tokens.lengths(ids)):
            rows = forward(model, tokens, ids[bucket], prefix).float()
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


def best_device() -> str:
    """``cuda`` where there is one, otherwise ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
