"""Batches cut into buckets of sentences of like length."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    pass


TOKENS_PER_BATCH = 4096  # about 2 MB of activations per layer at width 384: larger batches gain nothing on a CPU


# A training batch is cut into buckets of like length; smaller ones pad less, larger ones leave the processor's caches,
# while on a GPU every further bucket costs launches. In tokens: the most that a bucket holds, and what one more costs.
TOKENS_PER_BUCKET = {"cpu": 512, "cuda": 16384}


BUCKET_COST = {"cpu": 60, "cuda": 4096}


MOST_TO_WEIGH = 2048  # sentences: beyond, a batch is simply filled bucket by bucket


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
