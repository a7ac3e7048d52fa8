"""Ranking measures: PND, MRR, MAP, P@1, nDCG@10, mAP@10, and agreement.

A *group* is a set of positive and negative candidates that are ranked together: a query's documents, or the pairs of a
pair file that are compared with each other. Candidates are sorted by decreasing closeness. Among equally close
candidates, the negatives come first, so ties count as errors. Groups without positives or without negatives are not
measured.

PND (positive-negative disorder; Vasilyev et al., arXiv 2407.00923, section 2.3) is the share of (positive, negative)
pairs in which the positive is not closer than the negative. Without ties, it equals 1 minus the area under the ROC
curve.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.arrays import Float64Array

CUTOFF = 10
"""The rank cutoff of nDCG@10 and mAP@10."""

Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Ranking:
    """The ranked candidates of all measured groups, sorted by group, then by rank.

    Args:
        groups: Numbers of the measured groups, ascending, (measured,).
        num_positives: Number of positives in each measured group, (measured,).
        num_negatives: Number of negatives in each measured group, (measured,).
        group: Index into ``groups`` of each candidate's group, (candidates,).
        is_positive: Whether each candidate is a positive, (candidates,).
        rank: Rank of each candidate within its group, starting at 1, (candidates,).
        positives_so_far: Number of positives up to and including each candidate's rank, (candidates,).
    """

    groups: Integers
    num_positives: Integers
    num_negatives: Integers
    group: Integers
    is_positive: Flags
    rank: Integers
    positives_so_far: Integers

    @classmethod
    def of(
        cls, closeness: Float64Array, is_positive: Flags, group: Integers, num_groups: int
    ) -> "Ranking":
        """Rank candidates (candidates,) within their groups, in O(n log n).

        Args:
            closeness: Similarity or negative distance of each candidate.
            is_positive: Whether each candidate is a positive.
            group: Group number of each candidate, starting at 0, in any order.
            num_groups: Number of groups, including those without candidates.
        """
        num_candidates = np.bincount(group, minlength=num_groups)
        num_positives = np.bincount(group[is_positive], minlength=num_groups)
        num_negatives = num_candidates - num_positives
        is_measured = (num_positives > 0) & (num_negatives > 0)
        groups = np.flatnonzero(is_measured)
        order = np.lexsort((is_positive, -closeness, group))
        order = order[is_measured[group[order]]]
        positions = np.cumsum(is_measured) - 1  # index of each group among the measured groups
        sorted_groups = positions[group[order]]
        sorted_positive = is_positive[order]
        sizes = num_candidates[groups]
        positives = num_positives[groups]
        candidates_before = np.cumsum(sizes) - sizes  # in earlier groups
        positives_before = np.cumsum(positives) - positives
        return cls(
            groups=groups,
            num_positives=positives,
            num_negatives=num_negatives[groups],
            group=sorted_groups,
            is_positive=sorted_positive,
            rank=np.arange(1, len(order) + 1) - candidates_before[sorted_groups],
            positives_so_far=np.cumsum(sorted_positive) - positives_before[sorted_groups],
        )

    def sum_over_positives(
        self, values: Float64Array | Integers, cutoff: int | None = None
    ) -> Float64Array:
        """Return the sum of ``values`` (candidates,) over each group's positives within the cutoff, (measured,)."""
        is_counted = self.is_positive
        if cutoff is not None:
            is_counted = is_counted & (self.rank <= cutoff)
        sums = np.bincount(self.group[is_counted], values[is_counted], len(self.groups))
        return sums.astype(np.float64)


@dataclass(frozen=True)
class ErrorCounts:
    """The number of (positive, negative) pairs per group, and how many are in the wrong order, each (groups,)."""

    errors: Integers
    pairs: Integers

    @property
    def by_group(self) -> Float64Array:
        """Return the PND of each group, (groups,)."""
        shares: Float64Array = self.errors / self.pairs
        return shares

    @property
    def mean_over_groups(self) -> float:
        """Return the mean PND over groups, or NaN if there are no groups."""
        return float(self.by_group.mean()) if len(self.pairs) else float("nan")

    @property
    def over_pairs(self) -> float:
        """Return the share of errors among the pairs of all groups, or NaN if there are no pairs."""
        num_pairs = self.num_pairs
        return self.num_errors / num_pairs if num_pairs else float("nan")

    @property
    def num_errors(self) -> int:
        return int(self.errors.sum())

    @property
    def num_pairs(self) -> int:
        return int(self.pairs.sum())


def count_errors(ranking: Ranking) -> ErrorCounts:
    """Count the (positive, negative) pairs of each group, and those in the wrong order."""
    negatives_above = ranking.rank - ranking.positives_so_far
    errors = np.zeros(len(ranking.groups), np.int64)
    is_positive = ranking.is_positive
    np.add.at(errors, ranking.group[is_positive], negatives_above[is_positive])
    pairs = ranking.num_positives * ranking.num_negatives
    return ErrorCounts(errors, pairs)


def reciprocal_rank(ranking: Ranking) -> Float64Array:
    """Return 1 / rank of the first positive in each group, (groups,)."""
    is_first = ranking.is_positive & (ranking.positives_so_far == 1)
    reciprocals: Float64Array = 1 / ranking.rank[is_first]
    return reciprocals


def average_precision(ranking: Ranking, cutoff: int | None = None) -> Float64Array:
    """Return the mean precision at the ranks of each group's positives, (groups,).

    With a cutoff, positives beyond it are ignored, and the sum is divided by min(positives, cutoff), as in
    sentence-transformers' ``InformationRetrievalEvaluator``.
    """
    precisions = ranking.positives_so_far / ranking.rank
    sums = ranking.sum_over_positives(precisions, cutoff)
    num_positives = ranking.num_positives
    num_found_at_best = num_positives if cutoff is None else np.minimum(num_positives, cutoff)
    means: Float64Array = sums / num_found_at_best
    return means


def precision_at_1(ranking: Ranking) -> Float64Array:
    """Return 1 for each group whose first candidate is a positive, else 0, (groups,)."""
    is_first = ranking.rank == 1
    is_right: Float64Array = ranking.is_positive[is_first].astype(np.float64)
    return is_right


def ndcg(ranking: Ranking, cutoff: int = CUTOFF) -> Float64Array:
    """Return the normalized discounted cumulative gain of each group, (groups,); positives have gain 1."""
    gains = ranking.sum_over_positives(_discounts(ranking.rank), cutoff)
    ranks = np.arange(1, cutoff + 1)
    ideal_gains = np.cumsum(_discounts(ranks))
    num_found_at_best = np.minimum(ranking.num_positives, cutoff)
    shares: Float64Array = gains / ideal_gains[num_found_at_best - 1]
    return shares


def _discounts(ranks: Integers) -> Float64Array:
    discounts: Float64Array = 1 / np.log2(ranks + 1)
    return discounts


def agreement(
    closeness: Float64Array, other: Float64Array, group: Integers, num_groups: int
) -> Float64Array:
    """Return Spearman's rank correlation between two closeness arrays (candidates,) within each group, (num_groups,).

    Tied values get their mean rank. The correlation is 1 if both arrays are constant within the group or the group
    has fewer than two candidates, and 0 if only one is constant.
    """
    sizes = np.bincount(group, minlength=num_groups)
    means = (sizes + 1) / 2
    centered = [_mean_ranks(values, group) - means[group] for values in (closeness, other)]

    def sum_products(first: Float64Array, second: Float64Array) -> Float64Array:
        sums: Float64Array = np.bincount(group, first * second, num_groups).astype(np.float64)
        return sums

    first, second = centered
    squares_of_first = sum_products(first, first)
    squares_of_second = sum_products(second, second)
    lengths = np.sqrt(squares_of_first * squares_of_second)
    correlations: Float64Array = sum_products(first, second) / np.where(lengths == 0, 1, lengths)
    is_constant = (squares_of_first == 0) & (squares_of_second == 0)
    correlations[is_constant] = 1.0
    return np.clip(correlations, -1, 1)


def _mean_ranks(values: Float64Array, group: Integers) -> Float64Array:
    """Rank values in ascending order within each group, starting at 1; tied values get their mean rank."""
    order = np.lexsort((values, group))
    sorted_values, sorted_groups = values[order], group[order]
    is_new_group = np.diff(sorted_groups, prepend=-1) != 0
    is_new = is_new_group.copy()
    is_new[1:] |= sorted_values[1:] != sorted_values[:-1]
    firsts = np.flatnonzero(is_new)
    counts = np.diff(firsts, append=len(values))
    first_of_group = np.flatnonzero(is_new_group)
    starts = first_of_group[np.cumsum(is_new_group)[firsts] - 1]
    ranks_of_ties = firsts - starts + (counts + 1) / 2
    ranks = np.empty(len(values))
    ranks[order] = np.repeat(ranks_of_ties, counts)
    return ranks


Measure = Callable[[Ranking], Float64Array]

RANKING_MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "MRR": reciprocal_rank,
        "MAP": average_precision,
        "P@1": precision_at_1,
        f"nDCG@{CUTOFF}": ndcg,
        f"mAP@{CUTOFF}": lambda ranking: average_precision(ranking, CUTOFF),
    }
)
"""Measures that return one value in [0, 1] per group; larger is better."""
