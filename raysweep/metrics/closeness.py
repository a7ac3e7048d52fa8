"""Closeness of embeddings: their cosine, or their negative Euclidean distance without normalization."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.arrays import Float32Array, Float64Array

Geometry = Literal["cosine", "distance"]
GEOMETRIES: tuple[Geometry, ...] = get_args(Geometry)

PAIRS_PER_BLOCK = 2**13

# lower bound on a cosine's denominator, the product of the lengths, which is 0 for a zero vector
_SMALLEST = np.finfo(np.float64).tiny


def closeness(
    geometry: Geometry,
    queries: Float32Array,
    documents: Float32Array,
    pairs: tuple[NDArray[np.integer], NDArray[np.integer]],
) -> Float64Array:
    """Return the closeness of rows of ``queries`` to rows of ``documents``, float64 (pairs,); larger means closer.

    Repeated pairs get exactly the same value, so they tie. If either vector is zero, the cosine is 0.

    Args:
        geometry: ``cosine``, or ``distance`` for the negative Euclidean distance without normalization.
        queries: Embeddings (queries, width).
        documents: Embeddings (documents, width).
        pairs: Row numbers in ``queries`` and row numbers in ``documents``, each (pairs,).
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
