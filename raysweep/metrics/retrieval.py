"""Nearest-neighbor retrieval and its per-query scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from raysweep.errors import InputError
from raysweep.metrics.arrays import Float32Array, Float64Array
from raysweep.metrics.measures import Retrieved
from raysweep.metrics.scores import SCORES

RankWeights = Literal["uniform", "linear"]

PAIRS_PER_BLOCK = 2**13  # (query, sentence) pairs whose cosines are computed at once
CELLS_PER_BLOCK = 2**23  # elements of a (queries, pool) block

QUERIES_PER_BLOCK = 1024  # limits a block of cosines to 1024 * pool * 4 bytes


@dataclass(frozen=True)
class Scores:
    """Per-query scores of one retrieval.

    Args:
        named: Scores (queries,), keyed by name.
        retrieved: Retrieved pool positions (stored queries, k), best first, for the queries whose results are stored;
            None if unknown.
    """

    named: Mapping[str, Float64Array]
    retrieved: npt.NDArray[np.int32] | None = None

    def __getitem__(self, name: str) -> Float64Array:
        return self.named[name]

    def mean(self, name: str) -> float:
        """Return the mean of a score over queries."""
        return float(self.named[name].mean())


def rank_weights(kind: RankWeights, k: int) -> npt.NDArray[np.float64]:
    """Return rank weights (k,) that sum to 1: ``2(k+1-i) / (k(k+1))`` for rank i if linear, ``1/k`` if uniform."""
    if kind == "uniform":
        return np.full(k, 1 / k)
    if kind == "linear":
        return 2 * np.arange(k, 0, -1) / (k * (k + 1))
    raise InputError(f"rank_weights is {kind!r}; allowed: uniform, linear")


def check_k(k: int, num_pool: int, name: str = "k") -> None:
    """Raise InputError unless 1 <= k <= pool size; the message refers to k as ``name``."""
    if not 1 <= k <= num_pool:
        raise InputError(
            f"{name} is {k}; allowed: 1 to {num_pool}, the number of sentences in the retrieval pool"
        )


def sample_pool(
    num_train: int, num_queries: int, *, size: int | None = None, seed: int = 42
) -> npt.NDArray[np.int64]:
    """Sample the pool's positions within train, shape (min(num_train, size),), without replacement.

    The default size is ``5 * num_queries``. For comparability with published scores, the result equals that of pandas'
    ``train.sample(size, random_state=seed)``, which uses the legacy RandomState.
    """
    size = min(num_train, 5 * num_queries if size is None else size)
    return np.random.RandomState(seed).choice(num_train, size, replace=False).astype(np.int64)


def retrieve(queries: Float32Array, pool: Float32Array, k: int) -> npt.NDArray[np.int64]:
    """Return the k pool rows with the largest inner products for each query, shape (queries, k), best first.

    All rows must be unit vectors, so the inner product is the cosine. Ties are broken by pool position.
    """
    check_k(k, len(pool))
    retrieved = np.empty((len(queries), k), np.int64)
    for start in range(0, len(queries), QUERIES_PER_BLOCK):
        block = slice(start, start + QUERIES_PER_BLOCK)
        cosines = queries[block] @ pool.T
        retrieved[block] = top_k(cosines, k)
    return retrieved


def top_k(values: npt.NDArray[np.floating], k: int) -> npt.NDArray[np.int64]:
    """Return the columns of the k largest values per row, shape (rows, k), largest first; ties are broken by column."""
    num_columns = values.shape[1]
    if k >= num_columns:
        return _sort_falling(values)
    kth_index = num_columns - k
    partitioned = np.partition(values, kth_index, axis=1)
    kth_largest = partitioned[:, kth_index, None]
    return _select_largest(values, kth_largest, k)


def top_k_of_sums(
    first: Float32Array, second: Float32Array, weights: Sequence[float], k: int
) -> list[npt.NDArray[np.int64]]:
    """Return ``top_k(first + weight * second, k)`` for each weight.

    ``first`` and ``second`` have shape (rows, columns). Each result gives a lower bound for the next weight, which
    saves time if weights are close together.
    """
    top_by_weight: dict[float, npt.NDArray[np.int64]] = {}
    sums = np.empty_like(first)
    top = None
    for weight in sorted(weights):
        np.multiply(second, np.float32(weight), out=sums)
        sums += first
        if top is None or k >= sums.shape[1]:
            top = top_k(sums, k)
        else:
            previous_top = np.take_along_axis(sums, top, axis=1)
            bound = previous_top.min(axis=1, keepdims=True)
            top = _select_largest(sums, bound, k)
        top_by_weight[weight] = top
    return [top_by_weight[weight] for weight in weights]


def _select_largest(
    values: npt.NDArray[np.floating], bound: npt.NDArray[np.floating], k: int
) -> npt.NDArray[np.int64]:
    """Return :func:`top_k`, given that each row has at least k values at or above its ``bound`` (rows, 1)."""
    is_candidate = values >= bound
    cells = np.flatnonzero(is_candidate)
    rows, columns = np.divmod(cells, values.shape[1])
    counts = is_candidate.sum(axis=1)
    num_before = np.cumsum(counts) - counts  # candidates in earlier rows
    positions = np.arange(len(cells))
    positions -= np.repeat(num_before, counts)  # position of each candidate within its row
    shape = (len(values), counts.max(initial=k))
    candidate_columns = np.zeros(shape, np.int64)
    candidate_columns[rows, positions] = columns
    # Columns ascend within each row, so the stable sort breaks ties by column; padding (-inf) sorts last.
    candidates = np.full(shape, -np.inf, values.dtype)
    candidates[rows, positions] = values[rows, columns]
    order = _sort_falling(candidates)
    top = order[:, :k]
    return np.take_along_axis(candidate_columns, top, axis=1)


def _sort_falling(values: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
    """Return each row's column indices by descending value; ties are broken by column."""
    return np.argsort(-values, axis=1, kind="stable")


def score(
    retrieved: npt.NDArray[np.int64],
    cosines: npt.NDArray[np.float64],
    query_labels: npt.NDArray[np.integer],
    pool_labels: npt.NDArray[np.integer],
    weights: npt.NDArray[np.float64],
) -> Scores:
    """Return each query's scores for all measures in :data:`.SCORES`.

    Args:
        retrieved: Pool positions (queries, k), best first.
        cosines: Cosines (queries, k) between each query and its retrieved sentences under the reference encoder.
        query_labels: Labels (queries,).
        pool_labels: Labels (pool,).
        weights: Rank weights (k,).
    """
    retrieval = Retrieved(pool_labels[retrieved], cosines, query_labels, pool_labels, weights)
    return Scores({name: spec.measure(retrieval) for name, spec in SCORES.items() if spec.measure})


def cosines_of_several(
    retrieved: Sequence[npt.NDArray[np.integer]],
    reference_queries: Float32Array,
    reference_pool: Float32Array,
) -> list[npt.NDArray[np.float64]]:
    """Return :func:`cosines_of_retrieved` for each retrieval (queries, k), computing shared pairs only once."""
    stacked = np.stack(retrieved)
    cosines = np.empty(stacked.shape, np.float64)
    num_queries = stacked.shape[1]
    num_rows = max(1, CELLS_PER_BLOCK // len(reference_pool))
    for start in range(0, num_queries, num_rows):
        rows = slice(start, start + num_rows)
        block = stacked[:, rows]
        cosines[:, rows] = _cosines_of_block(block, reference_queries[rows], reference_pool)
    return list(cosines)


def _cosines_of_block(
    stacked: npt.NDArray[np.integer], queries: Float32Array, pool: Float32Array
) -> npt.NDArray[np.float64]:
    """Return the cosines (retrievals, queries, k) between queries and the pool rows retrieved for them."""
    num_pool = len(pool)
    num_pairs = len(queries) * num_pool
    rows = np.arange(len(queries))
    pairs = rows[:, None] * num_pool + stacked
    is_retrieved = np.zeros(num_pairs, np.bool_)
    is_retrieved[pairs] = True
    distinct_pairs = np.flatnonzero(is_retrieved)
    num_distinct = len(distinct_pairs)
    distinct_cosines = np.empty(num_distinct, np.float64)
    for start in range(0, num_distinct, PAIRS_PER_BLOCK):
        block = slice(start, start + PAIRS_PER_BLOCK)
        query_rows, pool_rows = np.divmod(distinct_pairs[block], num_pool)
        query_vectors = queries[query_rows].astype(np.float64)
        pool_vectors = pool[pool_rows].astype(np.float64)
        distinct_cosines[block] = np.einsum("nd,nd->n", query_vectors, pool_vectors)
    index_of_pair = np.empty(num_pairs, np.int32)
    index_of_pair[distinct_pairs] = np.arange(num_distinct)
    indices = index_of_pair[pairs]
    cosines: npt.NDArray[np.float64] = distinct_cosines[indices]
    return cosines


def cosines_of_retrieved(
    retrieved: npt.NDArray[np.integer],
    reference_queries: Float32Array,
    reference_pool: Float32Array,
) -> npt.NDArray[np.float64]:
    """Return the cosines (queries, k) between each query and the pool rows retrieved for it."""
    cosines = np.empty(retrieved.shape, np.float64)
    for start in range(0, len(retrieved), QUERIES_PER_BLOCK):
        block = slice(start, start + QUERIES_PER_BLOCK)
        queries = reference_queries[block].astype(np.float64)
        neighbors = reference_pool[retrieved[block]].astype(np.float64)
        cosines[block] = np.einsum("qd,qkd->qk", queries, neighbors)
    return cosines
