"""Triplets from retrieval data or pair files: an exact number of them, sampled uniformly without replacement."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raysweep.data import examples
from raysweep.data.relations import Integers, Relations

Pairing = Literal["all", "first"]
"""The triplets of a query: all combinations of a positive and a negative, or only the first of each."""


def draw_triplets(relations: Relations, target: int, seed: int, pairing: Pairing = "all") -> NDArray[np.int32]:
    """Return min(target, candidates) distinct triplets of sentence ids (triplets, 3), in the order of their groups.

    A triplet is the ``first`` sentence of a positive (the query), its ``second``, and the ``second`` of a negative of
    the same group. Every candidate has the same probability.

    Args:
        relations: The positives and negatives of each group. Groups that lack either have no triplets.
        target: The number of triplets to draw, below 1e9.
        seed: Seed of the sample; it also depends on the order of the groups.
        pairing: The candidates of each group.
    """
    positive_rows, positive_starts, num_positives = _rows_by_group(relations, relations.is_positive)
    negative_rows, negative_starts, num_negatives = _rows_by_group(relations, ~relations.is_positive)
    counts = num_positives * num_negatives
    if pairing == "first":
        counts = np.minimum(counts, 1)
    quotas = examples.allocate(counts, target, seed)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    groups, numbers = examples.pick_distinct(counts, quotas, rng)
    positives, negatives = np.divmod(numbers, num_negatives[groups])
    first_positives = positive_starts[groups]
    first_negatives = negative_starts[groups]
    positive_pairs = positive_rows[first_positives + positives]
    negative_pairs = negative_rows[first_negatives + negatives]
    queries = relations.first[positive_pairs]
    positive_documents = relations.second[positive_pairs]
    negative_documents = relations.second[negative_pairs]
    triplets = np.stack([queries, positive_documents, negative_documents], axis=1)
    return triplets.astype(np.int32)


def _rows_by_group(relations: Relations, mask: NDArray[np.bool_]) -> tuple[Integers, Integers, Integers]:
    """Return the rows in the mask, sorted by group; and, for each group, the position of its first row and its size."""
    rows = np.flatnonzero(mask)
    groups = relations.group[rows]
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups, minlength=relations.num_groups)
    return rows[order], np.cumsum(sizes) - sizes, sizes
