"""Training examples out of neighbours: sampled exactly to a target, uniformly and without replacement.

Work is cut into chunks of :data:`CHUNK` consecutive anchors, each with its own random stream, so the sample depends on
the seed alone and not on which worker draws which chunk::

    counts = num_candidates(kind, neighbour_ids)                             anywhere
    quotas = allocate(counts, target, seed)                                  once
    draw(kind, anchors, neighbour_ids, quotas of these, seed, chunk)         anywhere
"""

import math
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysweep.config.losses import ExampleKind

KINDS: tuple[ExampleKind, ...] = get_args(ExampleKind)


CHUNK = 1024


_OWN, _OTHER = 0, 1  # the slots of neighbour ids: the anchor's own class and the others


def num_candidates(kind: ExampleKind, neighbour_ids: NDArray[np.int32]) -> NDArray[np.int64]:
    """How many examples each anchor could give: (m,), or for labelled and scored pairs (m, 2), of own and other class.

    ``neighbour_ids`` is (m, 2, k): neighbours of the anchor's own class and of the others, padded at the end with -1.
    An anchor's triplets are all pairs of an own and an other neighbour.
    """
    found: NDArray[np.int64] = np.count_nonzero(neighbour_ids >= 0, axis=2)
    if kind == "triplet":
        return found[:, _OWN] * found[:, _OTHER]
    return found[:, _OWN] if kind == "positive_pair" else found


def allocate(counts: ArrayLike, target: int, seed: int) -> NDArray[np.int64]:
    """How many examples to draw from each anchor: the shape of ``counts``, summing to min(target, sum of counts).

    ``counts``: candidates of each anchor, (n,); the quotas are distributed as those of a uniform sample without
    replacement of all candidates. Or (n, 2), of own and other class: each class then has half of the target (the own
    class one more of an odd target), or all its candidates and the other class what is left. ``target`` is below 1e9.
    """
    counts = np.asarray(counts, dtype=np.int64)
    rng = np.random.default_rng(seed)
    if counts.ndim == 1:
        return _uniform(counts, min(target, int(counts.sum())), rng)
    own, other = (int(total) for total in counts.sum(axis=0))
    num_own = min(own, target - min(other, target // 2))
    num_other = min(other, target - num_own)
    return np.stack([_uniform(counts[:, _OWN], num_own, rng), _uniform(counts[:, _OTHER], num_other, rng)], axis=1)


def _uniform(counts: NDArray[np.int64], target: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Quotas of ``target`` candidates of all: one multivariate hypergeometric draw.

    NumPy draws it for less than 1e9 candidates only, and there can be more. So first every candidate is kept with the
    same probability, which leaves a few more than the target (if fewer, again), then the target is drawn of those. A
    uniform subset of a uniform subset is uniform, whatever the size between.
    """
    if target == 0:
        return np.zeros_like(counts)
    probability = min(1.0, (target + 6 * math.sqrt(target)) / int(counts.sum()))
    kept = rng.binomial(counts, probability)
    while kept.sum() < target:
        kept = rng.binomial(counts, probability)
    return rng.multivariate_hypergeometric(kept, target)


def draw(
    kind: ExampleKind,
    anchors: NDArray[np.integer],
    neighbour_ids: NDArray[np.int32],
    quotas: NDArray[np.int64],
    seed: int,
    chunk: int,
    cosines: tuple[float, float] = (1.0, 0.0),
) -> tuple[NDArray[np.int32], NDArray[np.float32] | None]:
    """The examples of one chunk: sentence ids (q, 3) or (q, 2), anchor first, and targets (q,) if the kind has any.

    ``anchors`` (m,), m <= CHUNK, are the ids of the chunk's sentences and ``neighbour_ids`` (m, 2, k) their neighbours;
    ``quotas``, (m,) or (m, 2), are theirs by :func:`allocate`. Targets are 1 and 0 for labelled pairs of the same and
    of different classes, and ``cosines`` in the same order for scored pairs. No example comes twice, but of two
    sentences that are each other's neighbours, a pair and its reverse are two examples.
    """
    assert len(anchors) <= CHUNK, "chunks are of fixed size, else the sample would depend on how the work is spread"
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(KINDS.index(kind), chunk)))
    counts = num_candidates(kind, neighbour_ids)
    if kind == "triplet":
        rows, picks = _pick(counts, quotas, rng)
        num_other = np.count_nonzero(neighbour_ids[:, _OTHER] >= 0, axis=1)[rows]
        positives, negatives = np.divmod(picks, num_other)
        ids = [anchors[rows], neighbour_ids[rows, _OWN, positives], neighbour_ids[rows, _OTHER, negatives]]
        return np.stack(ids, axis=1).astype(np.int32), None
    if kind == "positive_pair":
        rows, picks = _pick(counts, quotas, rng)
        return np.stack([anchors[rows], neighbour_ids[rows, _OWN, picks]], axis=1).astype(np.int32), None
    pairs, targets = [], []
    for slot, target in zip((_OWN, _OTHER), cosines if kind == "scored_pair" else (1.0, 0.0), strict=True):
        rows, picks = _pick(counts[:, slot], quotas[:, slot], rng)
        pairs.append(np.stack([anchors[rows], neighbour_ids[rows, slot, picks]], axis=1).astype(np.int32))
        targets.append(np.full(len(rows), target, dtype=np.float32))
    return np.concatenate(pairs), np.concatenate(targets)


def _pick(
    counts: NDArray[np.int64], quotas: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``quotas[i]`` distinct numbers below ``counts[i]`` for each row i, all subsets alike, as rows and numbers.

    Numbers are drawn with replacement until enough distinct ones came up, at most half of a row's; where the quota is
    more than half, they are the ones to leave out.
    """
    ends = np.cumsum(counts)
    starts = ends - counts
    inverted = 2 * quotas > counts
    wanted = np.where(inverted, counts - quotas, quotas)
    drawn = np.empty(0, dtype=np.int64)
    missing = wanted
    while missing.any():
        rows = np.repeat(np.arange(len(counts)), missing)
        drawn = np.unique(np.concatenate([drawn, starts[rows] + rng.integers(0, counts[rows])]))
        missing = wanted - np.bincount(np.searchsorted(ends, drawn, side="right"), minlength=len(counts))
    left_out = np.repeat(inverted, wanted)  # numbers are in order of rows
    candidates = [np.arange(starts[row], ends[row]) for row in np.flatnonzero(inverted)]
    rest = np.setdiff1d(np.concatenate([drawn[:0], *candidates]), drawn[left_out], assume_unique=True)
    picks = np.concatenate([drawn[~left_out], rest])
    picks.sort()
    rows = np.searchsorted(ends, picks, side="right")
    return rows, picks - starts[rows]
