"""Token ids of sentences, without padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


TEXTS_PER_CALL = 1024


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


def tokenise(model: "SentenceTransformer", texts: Sequence[str], prompt: str = "") -> Tokens:
    """Token ids as sentence-transformers itself makes them, truncated to the model's limit, padding removed."""
    sequences: list[npt.NDArray[np.int32]] = []
    for start in range(0, len(texts), TEXTS_PER_CALL):
        features = model.preprocess([prompt + text for text in texts[start : start + TEXTS_PER_CALL]])
        ids, mask = features["input_ids"].numpy(), features["attention_mask"].numpy().astype(bool)
        sequences += [row[kept].astype(np.int32) for row, kept in zip(ids, mask, strict=True)]
    return Tokens.of(sequences)
