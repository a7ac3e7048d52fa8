"""Per-query polarity, similarity and accuracy of retrieval, as defined on the concepts page on scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from raysweep.errors import InputError
from raysweep.metrics.arrays import Float32Array

RankWeights = Literal["uniform", "linear"]


_VOTES_AT_ONCE = 2**22  # elements of the (queries, k, k) table of votes
_PAIRS_AT_ONCE = 2**13  # (query, sentence) pairs whose cosines are computed at once
_CELLS_AT_ONCE = 2**23  # elements of the (queries, pool) table of retrieved pairs

QUERIES_PER_BLOCK = 1024  # limits a block of cosines to 1024 * pool * 4 bytes


@dataclass(frozen=True)
class Scores:
    """Per-query scores of one retrieval: ``polarity`` and ``similarity``, each of shape (queries,).

    ``accuracy`` (queries,) is 1 if the retrieved sentences vote for the query's label, else 0; None if nothing is
    retrieved, as for the oracle. ``retrieved`` (readable queries, k) holds pool positions, best first, for the queries
    that may be shown to readers; None if unknown.
    """

    polarity: npt.NDArray[np.float64]
    similarity: npt.NDArray[np.float64]
    accuracy: npt.NDArray[np.float64] | None = None
    retrieved: npt.NDArray[np.int32] | None = None


def rank_weights(kind: RankWeights, k: int) -> npt.NDArray[np.float64]:
    """Return the weights (k,) of ranks 1..k, summing to 1: linear ``2(k+1-i) / (k(k+1))`` or uniform ``1/k``."""
    if kind == "uniform":
        return np.full(k, 1 / k)
    if kind == "linear":
        return 2 * np.arange(k, 0, -1) / (k * (k + 1))
    raise InputError(f"rank weights {kind!r}; allowed: uniform, linear")


def check_k(k: int, num_pool: int, name: str = "k") -> None:
    """Raise InputError unless 1 <= k <= pool size; the message calls k by ``name``."""
    if not 1 <= k <= num_pool:
        raise InputError(
            f"{name} is {k}, but the retrieval pool holds {num_pool} sentences; k must lie in 1..{num_pool}"
        )


def sample_pool(num_train: int, num_queries: int, *, size: int | None = None, seed: int = 42) -> npt.NDArray[np.int64]:
    """Return the positions of the pool's rows within train, shape (min(num_train, size),), in sampled order.

    The default size is ``5 * num_queries``. The result equals that of ``train.sample(size, random_state=seed)`` in
    pandas, which the published scores use: sampling without replacement from the legacy RandomState.
    """
    size = min(num_train, 5 * num_queries if size is None else size)
    return np.random.RandomState(seed).choice(num_train, size, replace=False).astype(np.int64)


def retrieve(queries: Float32Array, pool: Float32Array, k: int) -> npt.NDArray[np.int64]:
    """Return the k pool rows with the largest inner product per query, shape (queries, k), best first.

    ``queries`` and ``pool`` hold unit rows, so the inner product is the cosine. Ties are broken by pool position.
    """
    check_k(k, len(pool))
    found = np.empty((len(queries), k), np.int64)
    for start in range(0, len(queries), QUERIES_PER_BLOCK):
        block = slice(start, start + QUERIES_PER_BLOCK)
        found[block] = top_k(queries[block] @ pool.T, k)
    return found


def top_k(values: npt.NDArray[np.floating], k: int) -> npt.NDArray[np.int64]:
    """Return the column indices of the k largest values per row, shape (rows, k), largest first, ties by column."""
    num_columns = values.shape[1]
    if k >= num_columns:
        return _falling(values)
    kth_place = num_columns - k
    kth_greatest = np.partition(values, kth_place, axis=1)[:, kth_place, None]
    return _greatest(values, kth_greatest, k)


def top_k_of_sums(
    first: Float32Array, second: Float32Array, weights: Sequence[float], k: int
) -> list[npt.NDArray[np.int64]]:
    """Return ``top_k(first + weight * second, k)`` for each weight, identical to the last index.

    ``first`` and ``second`` are fp32 arrays (rows, columns). Weights close to each other cost little, because the
    result for one weight gives a lower bound for the next.
    """
    by_weight: dict[float, npt.NDArray[np.int64]] = {}
    sums = np.empty_like(first)
    found = None
    for weight in sorted(weights):
        np.multiply(second, np.float32(weight), out=sums)
        sums += first
        if found is None or k >= sums.shape[1]:
            found = top_k(sums, k)
        else:
            of_found = np.take_along_axis(sums, found, axis=1)
            found = _greatest(sums, of_found.min(axis=1, keepdims=True), k)
        by_weight[weight] = found
    return [by_weight[weight] for weight in weights]


def _greatest(values: npt.NDArray[np.floating], least: npt.NDArray[np.floating], k: int) -> npt.NDArray[np.int64]:
    """Return :func:`top_k`, given that at least k values of each row are at least its ``least`` (rows, 1)."""
    is_candidate = values >= least
    counts = is_candidate.sum(axis=1)
    rows, columns = np.divmod(np.flatnonzero(is_candidate), values.shape[1])
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)  # position within the row
    shape = (len(values), counts.max(initial=k))
    candidates = np.zeros(shape, np.int64)
    candidates[rows, places] = columns
    # Columns still ascend within each row, so the stable sort breaks ties by column; padding (-inf) sorts last.
    greatest = np.full(shape, -np.inf, values.dtype)
    greatest[rows, places] = values[rows, columns]
    order = _falling(greatest)[:, :k]
    return np.take_along_axis(candidates, order, axis=1)


def _falling(values: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
    """Return the column indices of each row by falling value, ties by column."""
    return np.argsort(-values, axis=1, kind="stable")


def score(
    retrieved: npt.NDArray[np.int64],
    cosines: npt.NDArray[np.float64],
    query_labels: npt.NDArray[np.integer],
    pool_labels: npt.NDArray[np.integer],
    weights: npt.NDArray[np.float64],
) -> Scores:
    """Return P, S and accuracy of each query.

    P is the weighted share of retrieved sentences with the query's label, in [0, 1]. S is the weighted mean of their
    cosines with the query. The accuracy is 1 if :func:`vote` returns the query's label, else 0.

    Args:
        retrieved: Pool positions (queries, k), best first.
        cosines: Cosines (queries, k) of the retrieved sentences with the query under the reference encoder.
        query_labels: Labels (queries,).
        pool_labels: Labels (pool,).
        weights: Rank weights (k,).
    """
    labels = pool_labels[retrieved]
    same_label = labels == query_labels[:, None]
    is_right = vote(labels, weights) == query_labels
    return Scores(same_label @ weights, cosines @ weights, is_right.astype(np.float64))


def vote(labels: npt.NDArray[np.integer], weights: npt.NDArray[np.float64]) -> npt.NDArray[np.integer]:
    """Return the label (queries,) with the largest total weight in each row of ``labels`` (queries, k).

    Columns are ranks, best first, and ``weights`` (k,) are their weights. Ties go to the label that is retrieved first.
    Weights are compared as multiples of the smallest weight, which are integers, so ties are exact.
    """
    votes = np.rint(weights / weights.min())
    k = len(weights)
    won = np.empty(len(labels), labels.dtype)
    rows_at_once = max(1, _VOTES_AT_ONCE // k**2)
    for start in range(0, len(labels), rows_at_once):
        block = labels[start : start + rows_at_once]
        agrees = block[:, :, None] == block[:, None, :]
        votes_of_rank = agrees @ votes  # for the label at each rank
        winner = votes_of_rank.argmax(axis=1)  # argmax returns the first of equal votes, that of the nearest sentence
        won[start : start + rows_at_once] = block[np.arange(len(block)), winner]
    return won


def cosines_of_several(
    retrieved: Sequence[npt.NDArray[np.integer]], reference_queries: Float32Array, reference_pool: Float32Array
) -> list[npt.NDArray[np.float64]]:
    """Return :func:`cosines_of_retrieved` for each retrieval (queries, k), computing shared pairs once."""
    stacked = np.stack(retrieved)
    cosines = np.empty(stacked.shape, np.float64)
    rows_at_once = max(1, _CELLS_AT_ONCE // len(reference_pool))
    for start in range(0, stacked.shape[1], rows_at_once):
        block = slice(start, start + rows_at_once)
        cosines[:, block] = _cosines_of_block(stacked[:, block], reference_queries[block], reference_pool)
    return list(cosines)


def _cosines_of_block(
    stacked: npt.NDArray[np.integer], queries: Float32Array, pool: Float32Array
) -> npt.NDArray[np.float64]:
    """Return the cosines (retrievals, queries, k) of the sentences that several retrievals found for these queries."""
    num_pool = len(pool)
    rows = np.arange(len(queries))[:, None]
    pairs = rows * num_pool + stacked
    is_retrieved = np.zeros(len(queries) * num_pool, np.bool_)
    is_retrieved[pairs] = True
    distinct = np.flatnonzero(is_retrieved)
    of_distinct = np.empty(len(distinct), np.float64)
    for start in range(0, len(distinct), _PAIRS_AT_ONCE):
        some = slice(start, start + _PAIRS_AT_ONCE)
        query, neighbor = np.divmod(distinct[some], num_pool)
        queries_of_pairs = queries[query].astype(np.float64)
        of_distinct[some] = np.einsum("nd,nd->n", queries_of_pairs, pool[neighbor].astype(np.float64))
    place = np.empty(len(is_retrieved), np.int32)
    place[distinct] = np.arange(len(distinct))
    cosines: npt.NDArray[np.float64] = of_distinct[place[pairs]]
    return cosines


def cosines_of_retrieved(
    retrieved: npt.NDArray[np.integer], reference_queries: Float32Array, reference_pool: Float32Array
) -> npt.NDArray[np.float64]:
    """Return the cosines (queries, k) of each query with the pool rows retrieved for it."""
    cosines = np.empty(retrieved.shape, np.float64)
    for start in range(0, len(retrieved), QUERIES_PER_BLOCK):
        block = slice(start, start + QUERIES_PER_BLOCK)
        queries = reference_queries[block].astype(np.float64)
        neighbors = reference_pool[retrieved[block]].astype(np.float64)
        cosines[block] = np.einsum("qd,qkd->qk", queries, neighbors)
    return cosines
