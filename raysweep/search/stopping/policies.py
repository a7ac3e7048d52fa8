"""The early stopping policies ``none``, ``median``, ``asha`` and ``pareto``, and a factory for all policies.

Trials are compared only at exactly equal budgets, because partial training inflates similarity.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from raysweep.config.sweep import EarlyStoppingConfig
from raysweep.metrics.objective import Objective
from raysweep.metrics.pareto import layers
from raysweep.metrics.scores import Pair
from raysweep.search.stopping.base import EarlyStopper, Standing
from raysweep.search.stopping.growth import Growth

MIN_OTHERS = 4  # minimum number of other trials at a budget for the median rule


def make_early_stopper(
    rule: EarlyStoppingConfig, objective: Objective, reference: Pair | None
) -> EarlyStopper:
    """Create the configured policy.

    ``reference`` is P and S of an untrained trial, or None if unknown.
    """
    if rule.policy == "growth":
        return Growth(objective.feasible_reference_point, reference, objective.reference_point)
    if rule.policy == "none":
        return KeepAll()
    if rule.policy == "median":
        return Median(rule.first_examples)
    kinds = {"asha": SuccessiveHalving, "pareto": ParetoHalving}
    return kinds[rule.policy](rule.first_examples, rule.reduction_factor)


class KeepAll:
    """A policy that never pauses a trial."""

    def on_rung(
        self,
        trial: int,
        examples_seen: int,
        standing: Standing,
        ahead: Sequence[int],
        can_start: bool,
    ) -> str | None:
        return None

    def next_to_resume(self, can_start: bool) -> int | None:
        return None

    def set_running(self, trial: int, running: bool) -> None:
        pass

    def end(self, trial: int) -> None:
        pass


class Median(KeepAll):
    """The median stopping rule (Golovin et al., Google Vizier, 2017). Stopped trials never resume.

    Starting at ``first`` examples, a trial is stopped if its best objective so far is below the median of
    at least MIN_OTHERS other trials at the same budget.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self._objectives: dict[int, list[float]] = defaultdict(list)  # keyed by examples seen

    def on_rung(
        self,
        trial: int,
        examples_seen: int,
        standing: Standing,
        ahead: Sequence[int],
        can_start: bool,
    ) -> str | None:
        if examples_seen < self.first:
            return None
        others = self._objectives[examples_seen]
        num_others = len(others)
        median = float(np.median(others)) if num_others >= MIN_OTHERS else -np.inf
        others.append(standing.objective)
        if standing.objective >= median:
            return None
        return (
            f"objective {100 * standing.objective:.2f} after {examples_seen:,} examples is below {100 * median:.2f}, "
            f"the median of {num_others} other trials"
        )


class SuccessiveHalving:
    """Asynchronous successive halving (ASHA, Li et al., 2020), which ranks trials by objective.

    Milestones are at ``first * factor ** i`` examples. At a milestone, a trial pauses unless it is among
    the best 1 / ``factor`` of the trials that reached it. A paused trial resumes if it becomes one of the
    best as more trials reach the milestone.
    """

    def __init__(self, first: int, factor: int) -> None:
        self.first, self.factor = first, factor
        # keyed by milestone, then by trial
        self._reached: dict[int, dict[int, Standing]] = defaultdict(dict)
        # trials that continued from a milestone, keyed by milestone
        self._promoted: dict[int, set[int]] = defaultdict(set)
        self._best: dict[int, list[int]] = {}  # best trials, keyed by milestone
        self._last_milestone: dict[int, int] = {}  # keyed by trial
        self._ended: set[int] = set()

    def is_milestone(self, examples_seen: int) -> bool:
        quotient, remainder = divmod(examples_seen, self.first)
        if remainder or not quotient:
            return False
        while quotient % self.factor == 0:
            quotient //= self.factor
        return quotient == 1

    def on_rung(
        self,
        trial: int,
        examples_seen: int,
        standing: Standing,
        ahead: Sequence[int],
        can_start: bool,
    ) -> str | None:
        if not self.is_milestone(examples_seen):
            return None
        reached = self._reached[examples_seen]
        reached[trial] = standing
        num_reached = len(reached)
        num_best = num_reached // self.factor
        ranking = self.ranking(reached)
        best = ranking[:num_best]
        self._best[examples_seen] = best
        self._last_milestone[trial] = examples_seen
        if trial in best:
            self._promoted[examples_seen].add(trial)
            return None
        measure = self._measure(standing)
        return f"not in the top 1/{self.factor} at this budget (trials so far: {num_reached}, {measure})"

    def next_to_resume(self, can_start: bool) -> int | None:
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
    """Successive halving that ranks trials by non-dominated layer.

    A trial's layer is that of its best point. Within a layer, trials are sorted by the area of their own
    front, largest first. Trials without a feasible point come last.
    """

    def ranking(self, reached: Mapping[int, Standing]) -> list[int]:
        points: list[Pair] = []
        owners: list[int] = []
        for trial, standing in reached.items():
            points += standing.front
            owners += [trial] * len(standing.front)
        # worse than any layer, for trials without points
        best_layers = dict.fromkeys(reached, len(points))
        point_layers = layers(points).tolist()
        for trial, layer in zip(owners, point_layers, strict=True):
            best_layers[trial] = min(best_layers[trial], layer)

        def rank(trial: int) -> tuple[bool, int, float, int]:
            area = reached[trial].area
            is_infeasible = area < 0
            return is_infeasible, best_layers[trial], -area, trial

        return sorted(reached, key=rank)

    def _measure(self, standing: Standing) -> str:
        return f"area {1e4 * standing.area:.1f}"
