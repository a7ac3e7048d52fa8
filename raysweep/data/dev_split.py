"""Carving a dev split from the training rows: stratified, seeded, and without texts that also stay in train."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def carve(
    labels: npt.NDArray[np.int32], groups: npt.NDArray[np.int32], *, fraction: float, max_rows: int, seed: int
) -> npt.NDArray[np.bool_]:
    """Which rows become dev: about ``min(max_rows, round(fraction * rows))``, shared among labels by largest remainder.

    ``labels`` and ``groups`` are (rows,), labels counting from 0. A group of duplicates moves as a whole, and only if its
    rows agree on the label. Every label with two rows or more has one in dev, and every label keeps one in train; where
    this or the groups' sizes forbid a label's exact share, the labels with more rows make up the difference.
    """
    rows_by_label = np.bincount(labels)
    quotas = _shares(rows_by_label, min(max_rows, round(fraction * len(labels))))
    group_sizes = np.bincount(groups)
    groups_by_label = _agreeing_groups(labels, groups, num_labels=len(rows_by_label))
    rng = np.random.default_rng(seed)
    is_dev = np.zeros(len(group_sizes), bool)
    owed = 0  # rows that the labels so far have too few of in dev; below 0, too many
    for label in np.argsort(rows_by_label, kind="stable").tolist():  # the rarest first
        quota = int(quotas[label])
        most = int(rows_by_label[label]) - 1
        wanted = min(max(quota + owed, 1), most)
        shuffled = rng.permutation(groups_by_label[label])
        sizes = group_sizes[shuffled].tolist()
        chosen = shuffled[_fill(sizes, wanted, most)]
        is_dev[chosen] = True
        owed += quota - int(group_sizes[chosen].sum())
    return is_dev[groups]


def _agreeing_groups(
    labels: npt.NDArray[np.int32], groups: npt.NDArray[np.int32], num_labels: int
) -> list[npt.NDArray[np.intp]]:
    """For each label, the groups all of whose rows have it, ascending."""
    lowest, highest = extremes(groups, labels)
    agreeing = np.flatnonzero(lowest == highest)
    by_label = agreeing[np.argsort(lowest[agreeing], kind="stable")]
    starts = np.searchsorted(lowest[by_label], np.arange(1, num_labels))
    return np.split(by_label, starts)


def extremes(
    groups: npt.NDArray[np.int32], labels: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The lowest and the highest label of each group; they differ where rows of the group disagree."""
    num_groups = int(groups.max()) + 1
    lowest = np.full(num_groups, np.iinfo(np.int32).max, np.int32)
    highest = np.full(num_groups, -1, np.int32)
    np.minimum.at(lowest, groups, labels)
    np.maximum.at(highest, groups, labels)
    return lowest, highest


def _shares(counts: npt.NDArray[np.intp], total: int) -> npt.NDArray[np.intp]:
    """``total`` shared in proportion to ``counts``, by largest remainder; ties go to the first."""
    scaled = counts * total
    shares: npt.NDArray[np.intp] = scaled // counts.sum()
    remainders = scaled % counts.sum()
    largest_first = np.argsort(-remainders, kind="stable")
    num_left = total - shares.sum()
    shares[largest_first[:num_left]] += 1
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
