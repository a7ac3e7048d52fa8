"""Token ids of sentences, without padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raysweep.data.shards import OpenShards, Rows

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


TEXTS_PER_CALL = 1024
MAX_TOKENS_IN_MEMORY = 2**23  # 32 MiB: about 400,000 sentences of 20 tokens


@dataclass(frozen=True)
class Tokens:
    """Token ids of sentences without padding: sentence i is ``flat[offsets[i]:offsets[i + 1]]``.

    ``flat`` is int32 (tokens,) and may be memory-mapped. ``offsets`` is int64 (sentences + 1,). Pooling excludes the
    first ``prompt_length`` tokens of every sentence.
    """

    flat: Rows
    offsets: npt.NDArray[np.int64]
    prompt_length: int = 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def open(cls, folder: Path, prompt_length: int = 0) -> "Tokens":
        """Open an artifact's tokens, which are memory-mapped if there are more than MAX_TOKENS_IN_MEMORY.

        ``prompt_length`` is the result of :func:`excluded_prompt_length` for the artifact's encoder and prompt.
        """
        flat, offsets = OpenShards(folder).lists("tokens")
        if len(flat) <= MAX_TOKENS_IN_MEMORY:
            return cls(np.asarray(flat), offsets, prompt_length)
        return cls(flat, offsets, prompt_length)

    @property
    def as_lists(self) -> pa.ListArray:
        """Return one list of token ids per sentence."""
        return pa.ListArray.from_arrays(
            pa.array(self.offsets.astype(np.int32)), pa.array(np.asarray(self.flat))
        )

    @classmethod
    def of(cls, sequences: Sequence[npt.NDArray[np.int32]], prompt_length: int = 0) -> "Tokens":
        """Concatenate one array of token ids per sentence."""
        lengths = [len(sequence) for sequence in sequences]
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        flat = np.concatenate(sequences).astype(np.int32, copy=False)
        return cls(flat, offsets.astype(np.int64), prompt_length)

    def lengths(self, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Return the number of tokens in each of these sentences, (len(ids),)."""
        return np.asarray(self.offsets[ids + 1] - self.offsets[ids])

    def padded(
        self, ids: npt.NDArray[np.integer], pad: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the padded token ids and the attention mask, both int64 (sentences, longest)."""
        starts = self.offsets[ids]
        lengths = self.lengths(ids)
        column = np.arange(lengths.max())
        mask = column < lengths[:, None]
        gathered = self.flat[np.where(mask, starts[:, None] + column, 0)]
        return np.where(mask, gathered, pad).astype(np.int64), mask.astype(np.int64)

    def of_ids(self, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        """Return the concatenated token ids of these sentences."""
        lengths = self.lengths(ids)
        ends = np.cumsum(lengths)
        total = ends[-1] if len(ends) else 0
        within_sentence = np.arange(total) - np.repeat(ends - lengths, lengths)
        starts = np.repeat(self.offsets[ids], lengths)
        return np.asarray(self.flat[starts + within_sentence])


def tokenize(model: "SentenceTransformer", texts: Sequence[str], prompt: str = "") -> Tokens:
    """Tokenize texts and truncate them to the model's limit.

    The prompt is prepended to every text. If the model has a chat template, the prompt is the system message instead.
    """
    sequences: list[npt.NDArray[np.int32]] = []
    for start in range(0, len(texts), TEXTS_PER_CALL):
        end = start + TEXTS_PER_CALL
        features = model.preprocess(list(texts[start:end]), prompt=prompt or None)
        ids = features["input_ids"].numpy()
        mask = features["attention_mask"].numpy()
        is_token = mask.astype(bool)
        for row, is_token_of_row in zip(ids, is_token, strict=True):
            sequences.append(row[is_token_of_row].astype(np.int32))
    return Tokens.of(sequences, excluded_prompt_length(model, prompt))


def excluded_prompt_length(model: "SentenceTransformer", prompt: str) -> int:
    """Return the number of prompt tokens that pooling excludes, including special tokens before the prompt.

    This is 0 for most models. INSTRUCTOR models exclude the prompt. Prompts in a chat template are never excluded.
    """
    includes_prompt = all(getattr(module, "include_prompt", True) for module in model.modules())
    if includes_prompt or not prompt:
        return 0
    features = model.preprocess(["a"], prompt=prompt)
    return int(features.get("prompt_length", 0))
