"""Functions that split batches into buckets of similar-length sentences."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

# Maximum number of tokens in an inference batch, including padding. In fp32 on a CPU, the activations of larger batches
# do not fit into the caches.
TOKENS_PER_BATCH = {"cpu": 4096, "cuda": 16384}
TOKENS_PER_FP32_BATCH_ON_CPU = 1024


# Maximum size and fixed cost of a training bucket, in tokens. Small buckets need less padding and fit into a CPU's
# caches, but each bucket has a fixed cost, such as kernel launches on a GPU.
TOKENS_PER_BUCKET = {"cpu": 512, "cuda": 16384}
BUCKET_COST = 60

# On a GPU, the fixed cost of a bucket is LAUNCH_COST / width**2 tokens, because the launch time is constant and the
# computation per token is quadratic in the width.
LAUNCH_COST = 4.4e9

# The buckets of a pack share a forward pass, except for attention, so an additional bucket costs less. Larger packs gain
# little, and their activations exceed the caches.
CELLS_PER_PACK = 2048
PACKED_BUCKET_COST = 30
MAX_WEIGHED = 2048  # larger batches are split greedily instead of with minimize_cost

_NOT_ALLOWED = np.iinfo(np.int64).max


def tokens_per_batch(device: str, arithmetic: str) -> int:
    """Return the maximum number of tokens in an inference batch, including padding."""
    if (device, arithmetic) == ("cpu", "fp32"):
        return TOKENS_PER_FP32_BATCH_ON_CPU
    return TOKENS_PER_BATCH.get(device, TOKENS_PER_BATCH["cpu"])


def buckets(lengths: npt.NDArray[np.integer], max_tokens: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield buckets of sentence positions, longest sentences first.

    A bucket has at most ``max_tokens`` tokens, including padding, unless it contains a single sentence.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        size = max(1, max_tokens // longest)
        yield order[start : start + size]
        start += size


def tokens_per_bucket(device: str) -> int:
    """Return the maximum number of tokens in a training bucket, including padding."""
    return TOKENS_PER_BUCKET.get(device, TOKENS_PER_BUCKET["cpu"])


def training_buckets(
    lengths: npt.NDArray[np.integer], device: str, width: int, *, packed: bool = False
) -> list[npt.NDArray[np.int64]]:
    """Split a training batch into buckets of sentence positions, longest sentences first.

    ``width`` is the encoder's hidden size. If ``packed`` is True, buckets share forward passes.
    """
    max_tokens = tokens_per_bucket(device)
    if len(lengths) > MAX_WEIGHED:
        return list(buckets(lengths, max_tokens))
    bucket_cost = PACKED_BUCKET_COST if packed else BUCKET_COST
    if device == "cuda":
        bucket_cost = round(LAUNCH_COST / width**2)
    return minimize_cost(lengths, max_tokens, bucket_cost)


def packs(
    in_buckets: Iterable[npt.NDArray[np.integer]], lengths: npt.NDArray[np.integer]
) -> list[list[npt.NDArray[np.integer]]]:
    """Group buckets into packs of at most CELLS_PER_PACK tokens, including padding.

    A larger bucket gets its own pack.
    """
    all_packs: list[list[npt.NDArray[np.integer]]] = []
    num_cells = 0
    for bucket in in_buckets:
        size = len(bucket) * int(lengths[bucket].max())
        if not all_packs or num_cells + size > CELLS_PER_PACK:
            all_packs.append([])
            num_cells = 0
        all_packs[-1].append(bucket)
        num_cells += size
    return all_packs


def minimize_cost(
    lengths: npt.NDArray[np.integer], max_tokens: int, bucket_cost: int
) -> list[npt.NDArray[np.int64]]:
    """Return the buckets of sentence positions with the minimum total cost, longest sentences first.

    A bucket's cost is its number of tokens, including padding, plus ``bucket_cost``. Buckets have at most
    ``max_tokens`` tokens unless they contain a single sentence. The search takes O(n^2) time.
    """
    if not len(lengths):
        return []
    order = np.argsort(-lengths, kind="stable")
    longest_first = lengths[order].astype(np.int64)
    cells = len(order) * int(longest_first[0])
    padding = cells - int(longest_first.sum())
    if cells <= max_tokens and padding <= bucket_cost:
        return [order]
    last_start = _last_starts(longest_first, max_tokens, bucket_cost)
    starts: list[int] = []
    end = len(order)
    while end > 0:
        end = int(last_start[end])
        starts.append(end)
    cuts = starts[-2::-1]  # the first bucket starts at 0, which is not a cut
    return np.split(order, cuts)


def _last_starts(
    longest_first: npt.NDArray[np.int64], max_tokens: int, bucket_cost: int
) -> npt.NDArray[np.int64]:
    """Return the start of the last bucket in the best split of the n longest sentences, indexed by n."""
    count = len(longest_first)
    min_cost = np.zeros(count + 1, np.int64)
    last_start = np.zeros(count + 1, np.int64)
    for end in range(1, count + 1):
        sizes = end - np.arange(end)  # possible sizes of the last bucket, indexed by its start
        cells = sizes * longest_first[:end]
        allowed = cells <= max_tokens
        allowed[-1] = True
        costs = np.where(allowed, min_cost[:end] + cells, _NOT_ALLOWED)
        start = costs.argmin()
        last_start[end] = start
        min_cost[end] = costs[start] + bucket_cost
    return last_start
