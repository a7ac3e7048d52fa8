"""Batches cut into buckets of sentences of like length."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

# What a padded batch holds that is only embedded. A CPU's caches hold the activations of 1,024 cells in fp32; where products
# of bf16 have units of their own, these want more rows at once, and so does a GPU.
TOKENS_PER_BATCH = 4096
TOKENS_PER_FP32_BATCH_ON_CPU = 1024


# A training batch is cut into buckets of like length. Small buckets pad less, and large ones leave the processor's caches;
# on a GPU every further bucket costs launches. In tokens: the most that a bucket holds, and what one more bucket costs.
TOKENS_PER_BUCKET = {"cpu": 512, "cuda": 16384}
BUCKET_COST = {"cpu": 60, "cuda": 4096}

# Buckets of a pack go through an encoder's layers at once, and only attention is computed for each: one more costs less.
# Larger packs gain little, and their activations soon leave the caches.
CELLS_PER_PACK = 2048
PACKED_BUCKET_COST = 30


MAX_WEIGHED = 2048  # sentences; beyond, a batch is simply filled bucket by bucket

_NOT_ALLOWED = np.iinfo(np.int64).max


def tokens_per_batch(device: str, arithmetic: str) -> int:
    """The most tokens that a batch holds which is embedded on this kind of device, in fp32 or bf16."""
    return TOKENS_PER_FP32_BATCH_ON_CPU if (device, arithmetic) == ("cpu", "fp32") else TOKENS_PER_BATCH


def buckets(lengths: npt.NDArray[np.integer], max_tokens: int) -> Iterator[npt.NDArray[np.int64]]:
    """Positions grouped by length, longest first, so that a padded bucket holds at most ``max_tokens`` cells."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        size = max(1, max_tokens // longest)
        yield order[start : start + size]
        start += size


def tokens_per_bucket(device: str) -> int:
    """The most tokens that a bucket holds on this kind of device."""
    return TOKENS_PER_BUCKET.get(device, TOKENS_PER_BUCKET["cpu"])


def training_buckets(
    lengths: npt.NDArray[np.integer], device: str, *, packed: bool = False
) -> list[npt.NDArray[np.int64]]:
    """Positions of a training batch's sentences, cut into buckets for this kind of device, longest first.

    They are to be ``packed``, or go through the encoder one by one.
    """
    max_tokens = tokens_per_bucket(device)
    if len(lengths) > MAX_WEIGHED:
        return list(buckets(lengths, max_tokens))
    bucket_cost = PACKED_BUCKET_COST if packed else BUCKET_COST.get(device, BUCKET_COST["cpu"])
    return least_padded(lengths, max_tokens, bucket_cost)


def packs(
    in_buckets: Iterable[npt.NDArray[np.integer]], lengths: npt.NDArray[np.integer]
) -> list[list[npt.NDArray[np.integer]]]:
    """Buckets of positions, longest first, in packs of at most CELLS_PER_PACK padded cells, unless of a single bucket."""
    found: list[list[npt.NDArray[np.integer]]] = []
    num_cells = 0
    for bucket in in_buckets:
        size = len(bucket) * int(lengths[bucket].max())
        if not found or num_cells + size > CELLS_PER_PACK:
            found.append([])
            num_cells = 0
        found[-1].append(bucket)
        num_cells += size
    return found


def least_padded(lengths: npt.NDArray[np.integer], max_tokens: int, bucket_cost: int) -> list[npt.NDArray[np.int64]]:
    """Positions grouped by length, longest first, at the least cost of all ways to group them so.

    A bucket costs its padded cells, at most ``max_tokens`` unless it holds one sentence, and ``bucket_cost`` cells
    for being one more. O(n^2), for the few hundred sentences of a training batch.
    """
    if not len(lengths):
        return []
    order = np.argsort(-lengths, kind="stable")
    longest_first = lengths[order].astype(np.int64)
    last_start = _last_starts(longest_first, max_tokens, bucket_cost)
    starts: list[int] = []
    end = len(order)
    while end > 0:
        end = int(last_start[end])
        starts.append(end)
    cuts = starts[-2::-1]  # the first bucket begins at 0, where nothing is cut
    return np.split(order, cuts)


def _last_starts(longest_first: npt.NDArray[np.int64], max_tokens: int, bucket_cost: int) -> npt.NDArray[np.int64]:
    """Where the last bucket begins when the longest n sentences are grouped at the least cost: (sentences + 1,), by n."""
    count = len(longest_first)
    # By the number of sentences from the longest on: what grouping them costs, and where their last bucket begins.
    least_cost = np.zeros(count + 1, np.int64)
    last_start = np.zeros(count + 1, np.int64)
    for end in range(1, count + 1):
        sizes = end - np.arange(end)  # of the last bucket, by where it begins
        cells = sizes * longest_first[:end]
        allowed = cells <= max_tokens
        allowed[-1] = True
        costs = np.where(allowed, least_cost[:end] + cells, _NOT_ALLOWED)
        start = costs.argmin()
        last_start[end] = start
        least_cost[end] = costs[start] + bucket_cost
    return last_start
