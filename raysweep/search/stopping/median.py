"""The median stopping rule."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from raysweep.search.stopping.base import KeepAll, Standing


class Median(KeepAll):
    """The median stopping rule (Golovin et al., Google Vizier, 2017) at equal budgets; it stops trials for good.

    From ``first`` examples on, a trial is stopped if its best objective so far is below the median of the other trials
    at this budget, provided there are at least ``least`` of them.
    """

    def __init__(self, first: int, least: int = 4) -> None:
        self.first, self.least = first, least
        self._objectives: dict[int, list[float]] = defaultdict(list)  # by examples seen

    def on_rung(
        self, trial: int, examples_seen: int, standing: Standing, ahead: Sequence[int], may_begin: bool
    ) -> str | None:
        if examples_seen < self.first:
            return None
        others = self._objectives[examples_seen]
        num_others = len(others)
        median = float(np.median(others)) if num_others >= self.least else -np.inf
        others.append(standing.objective)
        if standing.objective >= median:
            return None
        return (
            f"objective {100 * standing.objective:.2f} after {examples_seen:,} examples is below {100 * median:.2f}, "
            f"the median of {num_others} other trials"
        )
