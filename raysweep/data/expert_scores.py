"""Cosines of sentence pairs under frozen expert encoders, used to compute soft targets."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from raysweep.config.soft_targets import count_active, soft_targets
from raysweep.data.neighbors import exact_cosines
from raysweep.data.shards import Column, OpenShards, Rows


@dataclass(frozen=True)
class ExpertScores:
    """Scores of n pairs: whether both sentences have the same class, bool (n,), and K experts' cosines, float32 (n, K)."""

    same_class: NDArray[np.bool_]
    cosines: NDArray[np.float32]

    @classmethod
    def of(
        cls, pairs: NDArray[np.integer], labels: NDArray[np.integer], embeddings: Sequence[Rows]
    ) -> "ExpertScores":
        """Score pairs of sentence ids (n, 2), given all sentences' labels and each expert's unit embeddings."""
        first, second = pairs.T
        cosines = [exact_cosines(vectors, first, vectors, second) for vectors in embeddings]
        return cls(labels[first] == labels[second], np.stack(cosines, axis=1))

    @classmethod
    def open(cls, folder: Path) -> "ExpertScores":
        """Read scores from an artifact's folder."""
        shards = OpenShards(folder)
        same_class = np.asarray(shards.array("same_class")).astype(bool)
        return cls(same_class, np.asarray(shards.array("scores")))

    @property
    def columns(self) -> dict[str, Column]:
        """Return the scores as columns of a shard."""
        return {"same_class": self.same_class.astype(np.int8), "scores": self.cosines}

    @property
    def num_active(self) -> list[int]:
        """Return each expert's number of active pairs; see :func:`raysweep.config.soft_targets.count_active`."""
        counts: list[int] = count_active(self.same_class, self.cosines).tolist()
        return counts

    def targets(self, rule: str) -> NDArray[np.float32]:
        """Return the target cosines (n,), computed by a rule in :data:`raysweep.config.soft_targets.SOFT_TARGETS`."""
        return soft_targets(rule, self.same_class, self.cosines)
