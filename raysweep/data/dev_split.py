"""Carving a dev split from the training rows: stratified, seeded, and without texts that also stay in train."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def carve(
    labels: npt.NDArray[np.int32], groups: npt.NDArray[np.int32], *, fraction: float, most: int, seed: int
) -> npt.NDArray[np.bool_]:
    """Which rows become dev: about ``min(most, round(fraction * rows))``, shared among labels by largest remainder.

    ``labels`` and ``groups`` are (rows,), labels counting from 0. A group of duplicates moves as a whole, and only if its
    rows agree on the label. Every label with two rows or more has one in dev, and every label keeps one in train; where
    this or the groups' sizes forbid a label's exact share, the labels with more rows make up the difference.
    """
    counts = np.bincount(labels)
    quotas = _shares(counts, min(most, round(fraction * len(labels))))
    sizes = np.bincount(groups)
    lowest, highest = extremes(groups, labels)
    agreeing = np.flatnonzero(lowest == highest)
    by_label = agreeing[np.argsort(lowest[agreeing], kind="stable")]
    starts = np.searchsorted(lowest[by_label], np.arange(len(counts) + 1))
    rng = np.random.default_rng(seed)
    is_dev = np.zeros(len(sizes), bool)
    owed = 0
    for label in np.argsort(counts, kind="stable").tolist():
        count, quota = int(counts[label]), int(quotas[label])
        candidates = rng.permutation(by_label[starts[label] : starts[label + 1]])
        wanted = min(max(quota + owed, 1), count - 1)
        chosen = candidates[_fill(sizes[candidates].tolist(), wanted, count - 1)]
        is_dev[chosen] = True
        owed += quota - int(sizes[chosen].sum())
    return is_dev[groups]


def extremes(
    groups: npt.NDArray[np.int32], labels: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The lowest and the highest label of each group; they differ where rows of the group disagree."""
    num_groups = int(groups.max()) + 1
    lowest, highest = np.full(num_groups, np.iinfo(np.int32).max, np.int32), np.full(num_groups, -1, np.int32)
    np.minimum.at(lowest, groups, labels)
    np.maximum.at(highest, groups, labels)
    return lowest, highest


def _shares(counts: npt.NDArray[np.intp], total: int) -> npt.NDArray[np.intp]:
    """``total`` shared in proportion to ``counts``, by largest remainder; ties go to the first."""
    scaled = counts * total
    shares: npt.NDArray[np.intp] = scaled // counts.sum()
    shares[np.argsort(-(scaled % counts.sum()), kind="stable")[: total - shares.sum()]] += 1
    return shares


def _fill(sizes: Sequence[int], wanted: int, most: int) -> list[int]:
    """Positions whose sizes add up to ``wanted``, each taken that still fits; if none does, the smallest within ``most``."""
    chosen: list[int] = []
    left = wanted
    for position, size in enumerate(sizes):
        if left <= 0:
            break
        if size <= left:
            chosen.append(position)
            left -= size
    if wanted > 0 and not chosen and sizes and min(sizes) <= most:
        chosen = [sizes.index(min(sizes))]
    return chosen
