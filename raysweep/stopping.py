"""Which trials go on: successive halving on one objective or on the front, and the median rule. Plain objects, no Ray.

Trials are compared only where they have seen exactly as many examples: partial training flatters similarity. A trial
counts with the operating points of all its rungs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from raysweep.goal import Pair
from raysweep.pareto import layers


@dataclass(frozen=True)
class Standing:
    """What a trial has shown so far: its non-dominated points, its best objective, and the area under its front.

    ``front`` has the feasible points alone where there are any.
    ``points`` are those of the last rung alone, in an order that is the same at each rung.
    """

    front: tuple[Pair, ...]
    objective: float
    area: float
    points: tuple[Pair, ...] = ()


class Stopper(Protocol):
    """Judges trials as they reach a budget. Trials are known by number; every call is on the driver, in ledger order."""

    def judge(
        self, trial: int, examples_seen: int, standing: Standing, ahead: Sequence[int], may_begin: bool
    ) -> str | None:
        """The reason why the trial is not to go on for now, or None.

        ``ahead`` are the examples that it will have seen at its further rungs, ``may_begin`` says whether a new trial
        could begin in its place. At its last rung, with nothing ahead, it is judged only as a measure for others.
        """

    def revive(self, may_begin: bool) -> int | None:
        """A trial that was held and may go on by now, or None. Changes nothing: it goes on when it is settled."""

    def settle(self, trial: int, goes_on: bool) -> None:
        """What became of a trial that was judged or held; a ledger may hold something else than would be decided now."""

    def end(self, trial: int) -> None:
        """The trial will not go on, whatever it is worth; what it has shown stays a measure for others."""


class KeepAll:
    """No early stopping."""

    def judge(
        self, trial: int, examples_seen: int, standing: Standing, ahead: Sequence[int], may_begin: bool
    ) -> str | None:
        return None

    def revive(self, may_begin: bool) -> int | None:
        return None

    def settle(self, trial: int, goes_on: bool) -> None:
        pass

    def end(self, trial: int) -> None:
        pass


class Median(KeepAll):
    """The median stopping rule (Golovin et al., Google Vizier, 2017) at equal budgets, for good.

    From ``first`` examples on, a trial whose best objective so far is below the median of what at least ``least`` others
    had shown at this budget is stopped.
    """

    def __init__(self, first: int, least: int = 4) -> None:
        self.first, self.least = first, least
        self._reached: dict[int, list[float]] = defaultdict(list)

    def judge(
        self, trial: int, examples_seen: int, standing: Standing, ahead: Sequence[int], may_begin: bool
    ) -> str | None:
        if examples_seen < self.first:
            return None
        others = self._reached[examples_seen]
        bar = float(np.median(others)) if len(others) >= self.least else -np.inf
        others.append(standing.objective)
        if standing.objective >= bar:
            return None
        return (
            f"objective {100 * standing.objective:.2f} after {examples_seen:,} examples is below {100 * bar:.2f}, "
            f"the median of {len(others) - 1} other trials"
        )


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

    def judge(
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

    def revive(self, may_begin: bool) -> int | None:
        for milestone in sorted(self._reached, reverse=True):
            gone_on = self._gone_on[milestone]
            for trial in self._bests[milestone]:
                if trial not in gone_on and trial not in self._ended:
                    return trial
        return None

    def settle(self, trial: int, goes_on: bool) -> None:
        if (milestone := self._stands.get(trial)) is not None:
            (self._gone_on[milestone].add if goes_on else self._gone_on[milestone].discard)(trial)

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
