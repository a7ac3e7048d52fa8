"""Successive halving: which trials go on, by the objective or by the front.

Trials are compared only where they have seen exactly as many examples: partial training flatters similarity. A trial
counts with the operating points of all its rungs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from raysweep.metrics.objective import Pair
from raysweep.metrics.pareto import layers
from raysweep.search.stopping.base import Standing


class SuccessiveHalving:
    """Asynchronous successive halving by promotion (ASHA, Li et al. 2020), on the objective.

    Milestones are ``first * factor ** i`` examples seen. A trial goes on from one while it is among the best
    1 / ``factor`` of those that have reached it, and is held back otherwise; as more trials reach the milestone it may
    belong to the best after all, and is then resumed from its checkpoint. So no trial goes on only because there is nothing
    to compare it with, and none is lost to an early judgement.
    """

    def __init__(self, first: int, factor: int) -> None:
        self.first, self.factor = first, factor
        self._reached: dict[int, dict[int, Standing]] = defaultdict(dict)  # by milestone, then by trial
        self._promoted: dict[int, set[int]] = defaultdict(set)  # by milestone: the trials that went on from it
        self._best: dict[int, list[int]] = {}  # by milestone, until another trial reaches it
        self._last_milestone: dict[int, int] = {}  # of each trial
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
        return (
            f"after {examples_seen:,} examples it is not among the best 1 in {self.factor} of {len(reached)} trials "
            f"({self._measure(standing)})"
        )

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
        """The trials that reached a milestone, best first; of equal ones the earlier."""
        return sorted(reached, key=lambda trial: (-reached[trial].objective, trial))

    def _measure(self, standing: Standing) -> str:
        return f"objective {100 * standing.objective:.2f}"


class ParetoHalving(SuccessiveHalving):
    """Successive halving on the front: the best are those of the first non-dominated layers, as sets of points.

    A trial's layer is that of its best-placed point; within a layer the trial with the larger area under its own front
    comes first. Those without a feasible point, whose area is below 0, come after all others.
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
    """Of each front the non-dominated layer of its best-placed point, among the points of all; worse than any of none."""
    points = [point for front in fronts for point in front]
    owners = np.repeat(np.arange(len(fronts)), [len(front) for front in fronts])
    best = np.full(len(fronts), len(points))
    np.minimum.at(best, owners, layers(points))
    found: list[int] = best.tolist()
    return found
