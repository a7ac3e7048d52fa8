"""Asynchronous successive halving (ASHA, Li et al. 2020) over exact budgets, as a plain object without Ray."""

from collections import defaultdict

import numpy as np


class SuccessiveHalving:
    """Stops a trial at a milestone when it is not among the best 1 / ``reduction_factor`` seen there so far.

    Milestones are ``first * reduction_factor ** i`` examples seen, and a trial is judged only where it stands exactly on
    one, so that training budgets compared are equal: partial training flatters similarity.
    """

    def __init__(self, first: int, reduction_factor: int) -> None:
        self.first = first
        self.reduction_factor = reduction_factor
        self._reached: dict[int, list[float]] = defaultdict(list)

    def is_milestone(self, examples_seen: int) -> bool:
        quotient, rest = divmod(examples_seen, self.first)
        if rest or not quotient:
            return False
        while quotient % self.reduction_factor == 0:
            quotient //= self.reduction_factor
        return quotient == 1

    def judge(self, examples_seen: int, objective: float) -> str | None:
        """The reason to stop a trial whose best objective so far is ``objective`` (greater is better), or None to go on."""
        if not self.is_milestone(examples_seen):
            return None
        earlier = self._reached[examples_seen]
        bar = np.quantile(earlier, 1 - 1 / self.reduction_factor) if earlier else -np.inf
        earlier.append(objective)
        if objective >= bar:
            return None
        return (
            f"objective {100 * objective:.2f} after {examples_seen:,} examples is below {100 * bar:.2f}, "
            f"the bar of the best 1 in {self.reduction_factor} of {len(earlier) - 1} earlier trials"
        )
