"""Rules that compute target cosines for scored pairs from their cosines under K frozen experts.

The rules are from Lu et al. 2024, "Improving embedding with contrastive fine-tuning on small datasets with
expert-augmented scores" (arXiv:2408.11868).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.floating]


@dataclass(frozen=True)
class SoftTargets:
    """A rule with separate functions for pairs of the same class and pairs of different classes.

    Both functions take the pairs' scores (n, K), sorted in ascending order along K, and return targets (n,).
    """

    same_class: Callable[[Scores], Scores]
    other_class: Callable[[Scores], Scores]
    description: str


def _highest(ascending: Scores) -> Scores:
    return ascending[:, -1]


def _second_highest(ascending: Scores) -> Scores:
    return ascending[:, -min(2, ascending.shape[1])]


def _lowest(ascending: Scores) -> Scores:
    return ascending[:, 0]


def _second_lowest(ascending: Scores) -> Scores:
    return ascending[:, min(1, ascending.shape[1] - 1)]


def _mean(ascending: Scores) -> Scores:
    means: Scores = ascending.mean(axis=1, dtype=np.float64)
    return means


SOFT_TARGETS: Mapping[str, SoftTargets] = MappingProxyType(
    {
        "soft1": SoftTargets(
            _highest, _lowest, "the highest score, or the lowest for pairs of different classes"
        ),
        "soft2": SoftTargets(_mean, _mean, "the mean score"),
        # The paper's formula takes the maximum of the two highest scores, which is the highest.
        "soft3": SoftTargets(
            _highest,
            _second_lowest,
            "the highest score, or the second lowest for pairs of different classes",
        ),
        "soft3_inner": SoftTargets(
            _second_highest,
            _second_lowest,
            "the second highest score, or the second lowest for pairs of different classes",
        ),
    }
)


def soft_targets(
    rule: str, same_class: NDArray[np.bool_], scores: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the target cosines (n,) of pairs.

    Args:
        rule: A name in :data:`SOFT_TARGETS`.
        same_class: Mask (n,) of the pairs whose sentences have the same class.
        scores: The experts' cosines for the pairs, (n, K).
    """
    targets = SOFT_TARGETS[rule]
    ascending = np.sort(scores, axis=1)
    chosen = np.where(same_class, targets.same_class(ascending), targets.other_class(ascending))
    return chosen.astype(np.float32)


def count_active(same_class: NDArray[np.bool_], scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Count the pairs for which each expert's score is the ``soft1`` target; return the counts (K,).

    If experts tie, the pair counts for each of them.
    """
    targets = soft_targets("soft1", same_class, scores)
    is_active = scores == targets[:, None]
    counts: NDArray[np.int64] = is_active.sum(axis=0)
    return counts
