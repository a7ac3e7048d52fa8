"""Which trials go on: successive halving on one objective or on the front, and the median rule. Plain objects, no Ray.

Trials are compared only where they have seen exactly as many examples: partial training flatters similarity. A trial
counts with the operating points of all its rungs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from raysweep.metrics.pareto import layers
from raysweep.search.stopping.base import Standing


class SuccessiveHalving:
    """Asynchronous successive halving by promotion (ASHA, Li et al. 2020), on the objective.

    Milestones are ``first * factor ** i`` examples seen. A trial goes on from one while it is among the best
    1 / ``factor`` of those that have reached it, and is held back otherwise; as more trials reach the milestone it may
    belong to the best after all, and is then revived from its checkpoint. So nobody goes on for want of comparison, and
    nobody is lost to an early judgement.
    """

    def __init__(self, first: int, factor: int) -> None:
        self.first, self.factor = first, factor
        self._reached: dict[int, dict[int, Standing]] = defaultdict(dict)
        self._gone_on: dict[int, set[int]] = defaultdict(set)
        self._stands: dict[int, int] = {}  # the last milestone of each trial
        self._ended: set[int] = set()
        self._bests: dict[int, list[int]] = {}  # by milestone, until another trial reaches it

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
        self._stands[trial] = examples_seen
        self._bests[examples_seen] = self._order(reached)[: len(reached) // self.factor]
        if trial in self._bests[examples_seen]:
            self._gone_on[examples_seen].add(trial)
            return None
        return (
            f"after {examples_seen:,} examples it is not among the best 1 in {self.factor} of {len(reached)} trials "
            f"({self._measure(standing)})"
        )

    def next_to_resume(self, may_begin: bool) -> int | None:
        for milestone in sorted(self._reached, reverse=True):
            gone_on = self._gone_on[milestone]
            for trial in self._bests[milestone]:
                if trial not in gone_on and trial not in self._ended:
                    return trial
        return None

    def set_running(self, trial: int, running: bool) -> None:
        if (milestone := self._stands.get(trial)) is not None:
            (self._gone_on[milestone].add if running else self._gone_on[milestone].discard)(trial)

    def end(self, trial: int) -> None:
        self._ended.add(trial)

    def _order(self, reached: Mapping[int, Standing]) -> list[int]:
        """The trials, best first; of equal ones the earlier."""
        return sorted(reached, key=lambda trial: (-reached[trial].objective, trial))

    def _measure(self, standing: Standing) -> str:
        return f"objective {100 * standing.objective:.2f}"


class ParetoHalving(SuccessiveHalving):
    """Successive halving on the front: the best are those of the first non-dominated layers, as sets of points.

    A trial's layer is that of its best-placed point; within a layer the trial with the larger area under its own front
    comes first. Those without a feasible point, whose area is below 0, come after all others.
    """

    def _order(self, reached: Mapping[int, Standing]) -> list[int]:
        trials = list(reached)
        points = [point for trial in trials for point in reached[trial].front]
        owners = np.repeat(np.arange(len(trials)), [len(reached[trial].front) for trial in trials])
        layer = np.full(len(trials), len(points))
        np.minimum.at(layer, owners, layers(points))
        ranks = {t: (reached[t].area < 0, int(layer[i]), -reached[t].area, t) for i, t in enumerate(trials)}
        return sorted(trials, key=ranks.__getitem__)

    def _measure(self, standing: Standing) -> str:
        return f"area {1e4 * standing.area:.1f}"
