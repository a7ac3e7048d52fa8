"""Closeness of embeddings: cosine or negative Euclidean distance."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.arrays import Float32Array, Float64Array

Geometry = Literal["cosine", "distance"]
GEOMETRIES: tuple[Geometry, ...] = get_args(Geometry)

PAIRS_PER_BLOCK = 2**13

# avoids division by zero for zero vectors
_SMALLEST = np.finfo(np.float64).tiny


def closeness(
    geometry: Geometry,
    queries: Float32Array,
    documents: Float32Array,
    pairs: tuple[NDArray[np.integer], NDArray[np.integer]],
) -> Float64Array:
    """Return the closeness of each (query, document) pair, shape (pairs,); larger means closer.

    Repeated pairs get exactly the same value. The cosine of a zero vector is 0.

    Args:
        geometry: ``cosine``, or ``distance`` for the negative Euclidean distance without normalization.
        queries: Embeddings (queries, width).
        documents: Embeddings (documents, width).
        pairs: Row indices into ``queries`` and ``documents``, each (pairs,).
    """
    query_rows, document_rows = pairs
    num_documents = len(documents)
    numbers = query_rows.astype(np.int64) * num_documents + document_rows
    distinct, which = np.unique(numbers, return_inverse=True)
    num_distinct = len(distinct)
    values = np.empty(num_distinct)
    for start in range(0, num_distinct, PAIRS_PER_BLOCK):
        block = slice(start, start + PAIRS_PER_BLOCK)
        rows, columns = np.divmod(distinct[block], num_documents)
        left = queries[rows].astype(np.float64)
        right = documents[columns].astype(np.float64)
        if geometry == "cosine":
            products = np.einsum("ij,ij->i", left, right)
            lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
            values[block] = products / np.maximum(lengths, _SMALLEST)
        else:
            values[block] = -np.linalg.norm(left - right, axis=1)
    return values[which]
