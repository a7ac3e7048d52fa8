"""Noise: configurations near the front are run again with other seeds, and count by the means over their runs.

A configuration goes by the number of its original, the trial of the search that had it; its replicates have numbers of
their own. A point is averaged by its name and the examples seen, over the runs that reached it and did not fail.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.objective import Pair, front_of
from raysweep.metrics.pareto import non_dominated


@dataclass(frozen=True)
class MeanScores:
    """A point's mean (P, S) over ``runs`` runs and the sample standard deviations; those of a single run are 0."""

    runs: int
    mean: Pair
    spread: Pair


@dataclass
class _Run:
    counts: bool
    points: dict[int, dict[Any, Pair]] = field(default_factory=dict)  # by examples seen, then by name


class Replicates:
    """At most ``trials`` replicates are begun; ``runs`` is the most that one configuration gets, its original included."""

    def __init__(self, trials: int = 0, runs: int = 2) -> None:
        self.trials, self.runs = trials, runs
        self.num_begun = 0
        self._runs: dict[int, dict[int, _Run]] = {}  # by original, then by trial
        self._keys: dict[int, Hashable] = {}
        self._original: dict[int, int] = {}  # of each trial
        self._fronts: dict[int, tuple[Pair, ...]] = {}  # of means, by original, until something changes them

    def original(self, number: int, key: Hashable) -> None:
        """A trial of the search begins; trials of an equal configuration have an equal ``key``."""
        self._runs[number] = {number: _Run(counts=True)}
        self._keys[number], self._original[number] = key, number

    def replicate(self, number: int, original: int) -> int:
        """A replicate begins; which of the configuration's runs it is, the original being run 0."""
        runs = self._runs[original]
        runs[number] = _Run(counts=False)
        self._original[number] = original
        self.num_begun += 1
        return len(runs) - 1

    def rung(self, number: int, examples_seen: int, points: Mapping[Any, Pair]) -> None:
        """A run's points at a rung, by their names. Those of a replicate count once it has ended."""
        self._run(number).points[examples_seen] = dict(points)

    def end(self, number: int, failed: bool) -> None:
        """A run is over; what failed counts no more, whatever it has scored."""
        self._run(number).counts = not failed

    def _run(self, number: int) -> _Run:
        original = self._original[number]
        self._fronts.pop(original, None)
        return self._runs[original][number]

    def has_any(self, original: int) -> bool:
        """Whether a replicate of this configuration counts."""
        return sum(run.counts for run in self._runs[original].values()) > 1

    def next(self, rests: Callable[[int], bool], area: Callable[[Sequence[Pair]], float]) -> int | None:
        """The original that is to be run once more, or None.

        A configuration is worth it that lies on the front of means; when all of those have had their runs, one that would
        lie there were its means better by their standard error. The fewest runs come first, then what adds most area.
        ``rests`` says whether a trial is at rest, ``area`` what a front is worth.
        """
        if self.num_begun >= self.trials:
            return None
        fronts = self._distinct()
        # What misses a constraint is worth a negative area, and a replicate only where nothing else is there.
        feasible = {n: tuple(pair for pair in front if area([pair]) >= 0) for n, front in fronts.items()}
        fronts = {n: front for n, front in feasible.items() if front} or fronts
        if not fronts:
            return None
        points = np.array([pair for front in fronts.values() for pair in front])
        lengths = [len(front) for front in fronts.values()]
        owners = np.repeat(list(fronts), lengths)
        counts = np.repeat([[sum(run.counts for run in self._runs[n].values())] for n in fronts], lengths, axis=0)
        for error in (np.zeros(2), self._deviation()):
            shifted = points + error / np.sqrt(counts)
            near: set[int] = set(owners[_undominated(shifted, points)].tolist())
            lacking = {n: len(self._runs[n]) for n in sorted(near) if rests(n) and len(self._runs[n]) < self.runs}
            worth = {}
            for number in (n for n, count in lacking.items() if count == min(lacking.values())):
                others = points[owners != number]
                both = np.concatenate([others, shifted[owners == number]])
                worth[number] = _area_of(both, area) - _area_of(others, area)
            if worth:
                return max(worth, key=lambda number: (worth[number], -number))
        return None

    def _distinct(self) -> dict[int, tuple[Pair, ...]]:
        """The fronts of means by original. Of equal configurations, that have equal seeds, one stands for all."""
        chosen: dict[Hashable, tuple[tuple[int, int], int]] = {}
        for number, runs in self._runs.items():
            if self._front(number):
                rank = len(runs), max(runs[number].points)
                before = chosen.get(self._keys[number])
                if before is None or rank > before[0]:
                    chosen[self._keys[number]] = rank, number
        return {number: self._front(number) for _, number in chosen.values()}

    def _front(self, original: int) -> tuple[Pair, ...]:
        if original not in self._fronts:
            standings = self.standings(original)
            self._fronts[original] = standings[max(standings)] if standings else ()
        return self._fronts[original]

    def _deviation(self) -> NDArray[np.float64]:
        """The standard deviation of one run, pooled over all points of several."""
        replicated = [number for number, runs in self._runs.items() if len(runs) > 1]
        found = [each for n in replicated for points in self.means(n).values() for each in points.values()]
        spreads = np.array([each.spread for each in found if each.runs > 1]).reshape(-1, 2)
        return np.sqrt((spreads**2).mean(axis=0)) if len(spreads) else np.zeros(2)

    def means(self, original: int, ending: int | None = None) -> dict[int, dict[Any, MeanScores]]:
        """A configuration's points by examples seen, rising, and by name; ``ending`` counts as if it had ended."""
        found: dict[int, dict[Any, list[Pair]]] = {}
        for number, run in self._runs[original].items():
            if run.counts or number == ending:
                for seen, points in run.points.items():
                    for name, pair in points.items():
                        found.setdefault(seen, {}).setdefault(name, []).append(pair)
        return {seen: {name: _average(pairs) for name, pairs in found[seen].items()} for seen in sorted(found)}

    def standings(self, original: int) -> dict[int, tuple[Pair, ...]]:
        """By examples seen, the front of a configuration's means up to there."""
        front: tuple[Pair, ...] = ()
        standings = {}
        for seen, points in self.means(original).items():
            standings[seen] = front = front_of([*front, *(each.mean for each in points.values())])
        return standings


def _average(pairs: list[Pair]) -> MeanScores:
    array = np.array(pairs)
    mean, spread = array.mean(axis=0), array.std(axis=0, ddof=1) if len(array) > 1 else np.zeros(2)
    return MeanScores(len(array), (float(mean[0]), float(mean[1])), (float(spread[0]), float(spread[1])))


def _area_of(points: NDArray[np.float64], area: Callable[[Sequence[Pair]], float]) -> float:
    return area([(p, s) for p, s in points[non_dominated(points)].tolist()]) if len(points) else 0.0


def _undominated(points: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of the points (n, 2) none of the others (m, 2) dominates."""
    front = others[non_dominated(others)]
    as_good: NDArray[np.bool_] = np.all(front >= points[:, None], axis=2)
    better: NDArray[np.bool_] = np.any(front > points[:, None], axis=2)
    dominated: NDArray[np.bool_] = np.any(as_good & better, axis=1)
    return ~dominated
