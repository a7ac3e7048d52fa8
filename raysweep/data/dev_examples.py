"""Examples for validating trials, formed from dev sentences and their neighbors."""

import numpy as np
import numpy.typing as npt

from raysweep.config.loss_spec import ExampleKind
from raysweep.data import examples
from raysweep.metrics.retrieval import top_k

MAX_ANCHORS = examples.CHUNK
NUM_NEIGHBORS = 4  # maximum per anchor and side (own class, other classes)
MAX_EXAMPLES = 4096


def find_neighbors(
    vectors: npt.NDArray[np.float32], labels: npt.NDArray[np.integer]
) -> npt.NDArray[np.int32]:
    """Return the nearest neighbors of the first ``MAX_ANCHORS`` sentences, in the same and in other classes.

    ``vectors`` (n, width) are unit embeddings. The result is (anchors, 2, k), padded with -1.
    """
    anchors = np.arange(min(len(vectors), MAX_ANCHORS))
    cosines = vectors[anchors] @ vectors.T
    cosines[anchors, anchors] = -np.inf
    same_class = labels[anchors, None] == labels
    k = min(NUM_NEIGHBORS, len(vectors))
    sides = []
    for is_candidate in (same_class, ~same_class):
        candidate_cosines = np.where(is_candidate, cosines, -np.inf)
        nearest = top_k(candidate_cosines, k)
        nearest_cosines = np.take_along_axis(candidate_cosines, nearest, 1)
        exists = np.isfinite(nearest_cosines)
        sides.append(np.where(exists, nearest, -1))
    return np.stack(sides, axis=1).astype(np.int32)


def draw(
    kind: ExampleKind, neighbors: npt.NDArray[np.int32], cosines: tuple[float, float] = (1.0, 0.0)
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32] | None]:
    """Return at most ``MAX_EXAMPLES`` examples (n, columns) of anchors and their neighbors, and targets (n,) or None.

    ``cosines`` are the targets of scored pairs, for the same class and for different classes.
    """
    counts = examples.num_candidates(kind, neighbors)
    quotas = examples.allocate(counts, MAX_EXAMPLES, seed=0)
    chunk = examples.Chunk(0, np.arange(len(neighbors)), neighbors, quotas)
    return examples.draw(kind, chunk, 0, cosines)
