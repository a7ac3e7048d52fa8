"""Successive halving by the objective or by the front.

Trials are only compared at exactly equal budgets, because partial training flatters similarity. A trial is judged by
the operating points of all its rungs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from raysweep.metrics.objective import Pair
from raysweep.metrics.pareto import layers
from raysweep.search.stopping.base import Standing


class SuccessiveHalving:
    """Asynchronous successive halving by promotion (ASHA, Li et al. 2020), on the objective.

    Milestones are ``first * factor ** i`` examples seen. A trial continues from a milestone if it is among the best 1 /
    ``factor`` of the trials that reached it, and pauses otherwise. It may become one of the best as more trials reach
    the milestone, and then resumes from its checkpoint. So no trial continues just because there is nothing to compare
    it with, and none is lost to an early judgment.
    """

    def __init__(self, first: int, factor: int) -> None:
        self.first, self.factor = first, factor
        self._reached: dict[int, dict[int, Standing]] = defaultdict(dict)  # by milestone, then by trial
        self._promoted: dict[int, set[int]] = defaultdict(set)  # by milestone: the trials that continued from it
        self._best: dict[int, list[int]] = {}  # by milestone, until another trial reaches it
        self._last_milestone: dict[int, int] = {}  # by trial
        self._ended: set[int] = set()

    def is_milestone(self, examples_seen: int) -> bool:
        quotient, rest = divmod(examples_seen, self.first)
        if rest or not quotient:
            return False
        while quotient % self.factor == 0:
            quotient //= self.factor
        return quotient == 1

    def on_rung(
        self, trial: int, examples_seen: int, standing: Standing, ahead: Sequence[int], may_begin: bool
    ) -> str | None:
        if not self.is_milestone(examples_seen):
            return None
        reached = self._reached[examples_seen]
        reached[trial] = standing
        num_best = len(reached) // self.factor
        best = self._best[examples_seen] = self.ranking(reached)[:num_best]
        self._last_milestone[trial] = examples_seen
        if trial in best:
            self._promoted[examples_seen].add(trial)
            return None
        return f"not among the best 1 in {self.factor} of {len(reached)} trials ({self._measure(standing)})"

    def next_to_resume(self, may_begin: bool) -> int | None:
        for milestone in sorted(self._reached, reverse=True):
            for trial in self._best[milestone]:
                if trial not in self._promoted[milestone] and trial not in self._ended:
                    return trial
        return None

    def set_running(self, trial: int, running: bool) -> None:
        milestone = self._last_milestone.get(trial)
        if milestone is None:
            return
        if running:
            self._promoted[milestone].add(trial)
        else:
            self._promoted[milestone].discard(trial)

    def end(self, trial: int) -> None:
        self._ended.add(trial)

    def ranking(self, reached: Mapping[int, Standing]) -> list[int]:
        """Return the trials that reached a milestone, best first; ties go to the earlier trial."""
        return sorted(reached, key=lambda trial: (-reached[trial].objective, trial))

    def _measure(self, standing: Standing) -> str:
        return f"objective {100 * standing.objective:.2f}"


class ParetoHalving(SuccessiveHalving):
    """Successive halving on the front, where the best trials are those in the first non-dominated layers.

    A trial's layer is that of its best point. Within a layer, trials are ordered by falling area under their own front.
    Trials without a feasible point, whose area is negative, come last.
    """

    def ranking(self, reached: Mapping[int, Standing]) -> list[int]:
        fronts = [standing.front for standing in reached.values()]
        layer_of = dict(zip(reached, _best_layers(fronts), strict=True))

        def rank(trial: int) -> tuple[bool, int, float, int]:
            area = reached[trial].area
            return area < 0, layer_of[trial], -area, trial

        return sorted(reached, key=rank)

    def _measure(self, standing: Standing) -> str:
        return f"area {1e4 * standing.area:.1f}"


def _best_layers(fronts: Sequence[Sequence[Pair]]) -> list[int]:
    """Return the layer of each front's best point among all points; an empty front gets a layer worse than any."""
    points = [point for front in fronts for point in front]
    owners = np.repeat(np.arange(len(fronts)), [len(front) for front in fronts])
    best = np.full(len(fronts), len(points))
    np.minimum.at(best, owners, layers(points))
    found: list[int] = best.tolist()
    return found
