"""Division of batches into buckets of similar-length sentences."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

# Maximum tokens in an inference batch, including padding. A CPU's caches hold the fp32 activations of 1,024 tokens.
# GPUs, and CPUs with bf16 units, are more efficient with larger batches.
TOKENS_PER_BATCH = {"cpu": 4096, "cuda": 16384}
TOKENS_PER_FP32_BATCH_ON_CPU = 1024


# Training batches are divided into buckets of similar-length sentences. Small buckets need less padding, and large ones
# exceed a CPU's caches, but each bucket has a fixed cost, such as kernel launches on a GPU. The maximum size and the
# fixed cost of a bucket are in tokens.
TOKENS_PER_BUCKET = {"cpu": 512, "cuda": 16384}
BUCKET_COST = 60

# On a GPU, a bucket costs LAUNCH_COST / width**2 tokens: launches take constant time per block, and the computation per
# token grows with the square of the width.
LAUNCH_COST = 4.4e9

# The buckets of a pack go through an encoder's layers in one pass, with separate attention, so an additional bucket
# costs less. Larger packs gain little, and their activations exceed the caches.
CELLS_PER_PACK = 2048
PACKED_BUCKET_COST = 30
MAX_WEIGHED = 2048  # maximum sentences for minimize_cost; larger batches are divided greedily

_NOT_ALLOWED = np.iinfo(np.int64).max


def tokens_per_batch(device: str, arithmetic: str) -> int:
    """Return the maximum number of tokens in an inference batch on this kind of device, in fp32 or bf16."""
    if (device, arithmetic) == ("cpu", "fp32"):
        return TOKENS_PER_FP32_BATCH_ON_CPU
    return TOKENS_PER_BATCH.get(device, TOKENS_PER_BATCH["cpu"])


def buckets(lengths: npt.NDArray[np.integer], max_tokens: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield buckets of positions, longest sentences first, with at most ``max_tokens`` tokens each, including padding."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        size = max(1, max_tokens // longest)
        yield order[start : start + size]
        start += size


def tokens_per_bucket(device: str) -> int:
    """Return the maximum number of tokens in a training bucket on this kind of device."""
    return TOKENS_PER_BUCKET.get(device, TOKENS_PER_BUCKET["cpu"])


def training_buckets(
    lengths: npt.NDArray[np.integer], device: str, width: int, *, packed: bool = False
) -> list[npt.NDArray[np.int64]]:
    """Return the positions of a training batch's sentences in buckets for this kind of device, longest first.

    ``width`` is the width of the encoder's hidden states. If ``packed``, buckets share passes through the encoder;
    otherwise each bucket has its own.
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
    """Group buckets of positions, longest first, into packs of at most CELLS_PER_PACK tokens, including padding.

    Only a pack with a single bucket may be larger.
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
    """Return positions grouped by length, longest first, in the buckets with the minimum total cost.

    A bucket's cost is its number of tokens, including padding, plus ``bucket_cost``. Buckets have at most
    ``max_tokens`` tokens, including padding, unless they hold a single sentence. The search takes O(n^2) time, which
    suits the few hundred sentences of a training batch.
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
    """Return, for each n, the start of the last bucket in the best grouping of the n longest sentences, (sentences + 1,)."""
    count = len(longest_first)
    # Indexed by the number of sentences, longest first: minimum cost of grouping them, and start of their last bucket.
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
