"""Training examples sampled from nearest neighbors, uniformly and without replacement.

Work is split into chunks of :data:`CHUNK` consecutive anchors. Each chunk has its own random stream, so the sample does
not depend on the assignment of chunks to workers::

    counts = num_candidates(kind, neighbor_ids)                             on any worker
    quotas = allocate(counts, target, seed)                                 once
    draw(kind, Chunk(number, anchors, neighbor_ids, quotas), seed)          on any worker
"""

import math
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysweep.config.loss_spec import ExampleKind

KINDS: tuple[ExampleKind, ...] = get_args(ExampleKind)
CHUNK = 1024
_OWN, _OTHER = 0, 1  # slots of the neighbor ids: the anchor's class and the other classes


def keep_similar_up_to(
    maximum: float, neighbor_ids: NDArray[np.int32], cosines: NDArray[np.float32]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return neighbors (m, 2, k) and cosines without the other-class neighbors whose cosine exceeds ``maximum``.

    ``maximum`` corresponds to ``max_score`` in sentence-transformers' ``mine_hard_negatives``.
    """
    is_kept = neighbor_ids >= 0
    is_kept[:, _OTHER] &= cosines[:, _OTHER] <= maximum
    kept_first = np.argsort(~is_kept, axis=2, kind="stable")
    ids = np.where(is_kept, neighbor_ids, -1)
    return np.take_along_axis(ids, kept_first, 2), np.take_along_axis(cosines, kept_first, 2)


def keep_ranks(
    first: int, last: int, neighbor_ids: NDArray[np.int32], cosines: NDArray[np.float32]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return neighbors (m, 2, k) and cosines, keeping only ranks ``first`` to ``last`` of the other-class neighbors.

    The nearest neighbor has rank 1. ``first`` and ``last`` correspond to ``range_min`` + 1 and ``range_max`` in
    sentence-transformers' ``mine_hard_negatives``.
    """
    ids, kept_cosines = neighbor_ids.copy(), cosines.copy()
    num_kept = last - first + 1
    for array, missing in ((ids, -1), (kept_cosines, np.nan)):
        kept = array[:, _OTHER, first - 1 : last].copy()
        array[:, _OTHER] = missing
        array[:, _OTHER, :num_kept] = kept
    return ids, kept_cosines


def with_negatives_of(
    others: NDArray[np.int32], neighbor_ids: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Return neighbors (m, 2, k) with the other-class neighbors replaced by those in ``others`` (m, 2, k)."""
    return np.stack([neighbor_ids[:, _OWN], others[:, _OTHER]], axis=1)


def num_negatives(
    neighbor_ids: NDArray[np.int32],
    cosines: NDArray[np.float32] | None = None,
    relative_margin: float | None = None,
) -> NDArray[np.int64]:
    """Return the number of other-class neighbors that qualify as negatives for each own-class neighbor, (m, k).

    Without a margin, all of them qualify. With a margin, a negative's cosine must be at most p - margin |p|, where p is
    the positive's cosine, as with ``relative_margin`` in sentence-transformers' ``mine_hard_negatives``. Neighbors are
    sorted by decreasing cosine, so the last ones qualify. The count for padding is 0.
    """
    counts = _count_neighbors(neighbor_ids)
    has_positive = neighbor_ids[:, _OWN] >= 0
    numbers: NDArray[np.int64] = np.where(has_positive, counts[:, _OTHER, None], 0)
    if relative_margin is not None:
        assert cosines is not None
        limits = cosines[:, _OWN] - relative_margin * np.abs(cosines[:, _OWN])
        for place in range(neighbor_ids.shape[2]):
            with np.errstate(invalid="ignore"):  # the cosines of padding are NaN
                is_too_near = cosines[:, _OTHER, place, None] > limits
            numbers -= is_too_near & has_positive & (neighbor_ids[:, _OTHER, place, None] >= 0)
    return numbers


def num_candidates(
    kind: ExampleKind, neighbor_ids: NDArray[np.int32], negatives: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the number of possible examples per anchor: (m,), or (m, 2) by slot for labeled and scored pairs.

    ``neighbor_ids`` is (m, 2, k): neighbors from the anchor's class and from other classes, padded at the end with -1.
    An anchor's triplets combine each own-class neighbor with all other-class neighbors, or only with those counted in
    ``negatives``, the result of :func:`num_negatives`.
    """
    counts = _count_neighbors(neighbor_ids)
    if kind == "triplet":
        return counts[:, _OWN] * counts[:, _OTHER] if negatives is None else negatives.sum(axis=1)
    if kind == "positive_pair":
        return counts[:, _OWN]
    return counts


def _count_neighbors(neighbor_ids: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the number of neighbors of each anchor in its own class and in the other classes, (m, 2)."""
    counts: NDArray[np.int64] = np.count_nonzero(neighbor_ids >= 0, axis=2)
    return counts


def allocate(counts: ArrayLike, target: int, seed: int) -> NDArray[np.int64]:
    """Return the number of examples to draw from each anchor, in the shape of ``counts``.

    ``counts`` is the number of candidates per anchor, (n,), or per anchor and slot, (n, 2). The quotas sum to min(target,
    sum of counts) and are distributed as in a uniform sample without replacement. With two slots, each slot gets half
    of ``target``, and the own class gets the extra example if ``target`` is odd. If a slot has too few candidates, the
    other slot gets the rest. ``target`` must be below 1e9.
    """
    counts = np.asarray(counts, dtype=np.int64)
    rng = np.random.default_rng(seed)
    if counts.ndim == 1:
        return _sample_quotas(counts, target, rng)
    own_counts, other_counts = counts.T
    num_other_if_balanced = min(int(other_counts.sum()), target // 2)
    num_own = min(int(own_counts.sum()), target - num_other_if_balanced)
    num_other = target - num_own
    own = _sample_quotas(own_counts, num_own, rng)
    other = _sample_quotas(other_counts, num_other, rng)
    return np.stack([own, other], axis=1)


def _sample_quotas(
    counts: NDArray[np.int64], target: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Sample quotas that sum to ``target``, or to all candidates if there are fewer.

    NumPy supports multivariate hypergeometric sampling only for fewer than 1e9 candidates, so a binomial draw first
    selects slightly more candidates than ``target``. The result is still uniform, because a uniform subset of a uniform
    subset is uniform.
    """
    total = int(counts.sum())
    target = min(target, total)
    candidates = np.zeros_like(counts)
    if target == 0:
        return candidates
    margin = 6 * math.sqrt(target)
    num_expected = target + margin
    probability = min(1.0, num_expected / total)
    while candidates.sum() < target:
        candidates = rng.binomial(counts, probability)
    return rng.multivariate_hypergeometric(candidates, target)


@dataclass(frozen=True)
class Chunk:
    """At most :data:`CHUNK` consecutive anchors and their neighbors.

    ``anchors`` (m,) and ``neighbor_ids`` (m, 2, k) are sentence ids. ``quotas``, (m,) or (m, 2), come from
    :func:`allocate`. ``negatives`` (m, k) limits the triplets; see :func:`num_candidates`.
    """

    number: int
    anchors: NDArray[np.integer]
    neighbor_ids: NDArray[np.int32]
    quotas: NDArray[np.int64]
    negatives: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        # With larger chunks, the sample would depend on how the work is distributed.
        assert len(self.anchors) <= CHUNK


def draw(
    kind: ExampleKind, chunk: Chunk, seed: int, cosines: tuple[float, float] = (1.0, 0.0)
) -> tuple[NDArray[np.int32], NDArray[np.float32] | None]:
    """Return the examples of one chunk: sentence ids (q, 3) or (q, 2), anchor first, and targets (q,) or None.

    The target of a labeled pair is 1 for the same class and 0 for different classes; for scored pairs, ``cosines``
    contains the two targets in the same order. No example occurs twice, but a pair and its reverse are different
    examples.
    """
    stream = (KINDS.index(kind), chunk.number)
    seeds = np.random.SeedSequence(seed, spawn_key=stream)
    rng = np.random.default_rng(seeds)
    if kind == "triplet":
        return _draw_triplets(chunk, rng), None
    if kind == "positive_pair":
        return _draw_pairs(chunk, _OWN, chunk.quotas, rng), None
    pairs, targets = [], []
    slot_targets = cosines if kind == "scored_pair" else (1.0, 0.0)
    for slot, target in enumerate(slot_targets):
        slot_pairs = _draw_pairs(chunk, slot, chunk.quotas[:, slot], rng)
        pairs.append(slot_pairs)
        targets.append(np.full(len(slot_pairs), target, dtype=np.float32))
    return np.concatenate(pairs), np.concatenate(targets)


def _draw_triplets(chunk: Chunk, rng: np.random.Generator) -> NDArray[np.int32]:
    """Return triplets (q, 3) of anchors, own-class neighbors and other-class neighbors."""
    negatives_of_pair = (
        num_negatives(chunk.neighbor_ids) if chunk.negatives is None else chunk.negatives
    )
    counts = negatives_of_pair.sum(axis=1)
    rows, numbers = pick_distinct(counts, chunk.quotas, rng)
    # An anchor's triplets are numbered by own-class neighbor, then by other-class neighbor.
    ends_of_rows = np.cumsum(counts)
    ends_of_pairs = np.cumsum(negatives_of_pair)
    numbers = numbers + (ends_of_rows - counts)[rows]
    pairs = np.searchsorted(ends_of_pairs, numbers, side="right")
    positives = pairs % negatives_of_pair.shape[1]
    num_other = _count_neighbors(chunk.neighbor_ids)[rows, _OTHER]
    negatives = num_other - (ends_of_pairs[pairs] - numbers)
    positive_ids = chunk.neighbor_ids[rows, _OWN, positives]
    negative_ids = chunk.neighbor_ids[rows, _OTHER, negatives]
    return _stack_ids(chunk.anchors[rows], positive_ids, negative_ids)


def _draw_pairs(
    chunk: Chunk, slot: int, quotas: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int32]:
    """Return pairs (q, 2) of anchors and their neighbors in one slot."""
    counts = _count_neighbors(chunk.neighbor_ids)[:, slot]
    rows, neighbors = pick_distinct(counts, quotas, rng)
    neighbor_ids = chunk.neighbor_ids[rows, slot, neighbors]
    return _stack_ids(chunk.anchors[rows], neighbor_ids)


def _stack_ids(*columns: NDArray[np.integer]) -> NDArray[np.int32]:
    return np.stack(columns, axis=1).astype(np.int32)


def pick_distinct(
    counts: NDArray[np.int64], quotas: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pick ``quotas[i]`` distinct numbers below ``counts[i]`` for each row i, uniformly. Return rows and numbers.

    Numbers are drawn with replacement until enough of them are distinct. If a quota is more than half of the count, the
    numbers to leave out are drawn instead.
    """
    ends = np.cumsum(counts)  # all rows' numbers form one sequence; row i has [starts[i], ends[i])
    starts = ends - counts
    is_inverted = 2 * quotas > counts
    num_drawn = np.where(is_inverted, counts - quotas, quotas)
    drawn = np.empty(0, dtype=np.int64)  # ascending
    missing = num_drawn
    while missing.any():
        rows = np.repeat(np.arange(len(counts)), missing)
        numbers = rng.integers(0, counts[rows])
        drawn = np.union1d(drawn, starts[rows] + numbers)
        drawn_rows = np.searchsorted(ends, drawn, side="right")
        num_distinct = np.bincount(drawn_rows, minlength=len(counts))
        missing = num_drawn - num_distinct
    is_left_out = np.repeat(is_inverted, num_drawn)  # drawn is ordered by row
    inverted_rows = np.flatnonzero(is_inverted)
    ranges = [np.arange(starts[row], ends[row]) for row in inverted_rows]
    candidates = np.concatenate([drawn[:0], *ranges])
    not_left_out = np.setdiff1d(candidates, drawn[is_left_out], assume_unique=True)
    picks = np.concatenate([drawn[~is_left_out], not_left_out])
    picks.sort()
    rows = np.searchsorted(ends, picks, side="right")
    return rows, picks - starts[rows]
