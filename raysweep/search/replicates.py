"""Replicates: reruns of configurations on or near the front with different seeds.

A configuration is identified by its original: the number of the search trial that ran it first.
Points with the same name and number of examples seen are averaged over all runs that did not fail.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import front_of
from raysweep.metrics.pareto import dominated_by, non_dominated
from raysweep.metrics.scores import Pair

Front = tuple[Pair, ...]  # non-dominated points
Area = Callable[[Sequence[Pair]], float]  # returns the value of a front


@dataclass(frozen=True)
class MeanScores:
    """The mean (P, S) of a point over ``runs`` runs, and their sample standard deviations (0 for a single run)."""

    runs: int
    mean: Pair
    spread: Pair

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> "MeanScores":
        """Compute the mean scores from one pair per run."""
        array = np.array(pairs)
        mean = array.mean(axis=0)
        spread = array.std(axis=0, ddof=1) if len(pairs) > 1 else np.zeros(2)
        return cls(
            len(pairs), (float(mean[0]), float(mean[1])), (float(spread[0]), float(spread[1]))
        )


@dataclass
class _Run:
    counts: bool
    # keyed by examples seen, then by point name
    points: dict[int, dict[Any, Pair]] = field(default_factory=dict)


@dataclass(frozen=True)
class _MeanPoints:
    """The points on the mean fronts of all competing configurations."""

    points: Float64Array  # (points, 2)
    owners: NDArray[np.int64]  # (points,), the original of each point
    num_runs: NDArray[np.int64]  # (points, 1), number of runs averaged

    def shifted(self, deviation: Float64Array) -> Float64Array:
        """Return the points (points, 2) plus one standard error, given the standard deviations (2,) of a run."""
        return self.points + deviation / np.sqrt(self.num_runs)

    def gain(self, original: int, shifted: Float64Array, area: Area) -> float:
        """Return the area that a configuration's shifted points add to the joint front of the other configurations."""
        others = self.points[self.owners != original]
        with_own = np.concatenate([others, shifted[self.owners == original]])
        return _area_of(with_own, area) - _area_of(others, area)


class Replicates:
    """The replicates of a sweep and the mean scores of its configurations.

    ``trials`` is the maximum number of replicates. ``runs`` is the maximum number of runs per configuration, including
    the original.
    """

    def __init__(self, trials: int = 0, runs: int = 2) -> None:
        self.trials, self.runs = trials, runs
        self.num_started = 0
        self._runs: dict[int, dict[int, _Run]] = {}  # keyed by original, then by trial
        self._keys: dict[int, Hashable] = {}  # keyed by original
        self._original: dict[int, int] = {}  # keyed by trial
        self._fronts: dict[int, Front] = {}  # cached fronts of means, keyed by original

    def original(self, number: int, key: Hashable) -> None:
        """Register a new search trial. Trials with equal configurations have equal keys."""
        self._runs[number] = {number: _Run(counts=True)}
        self._keys[number], self._original[number] = key, number

    def replicate(self, number: int, original: int) -> int:
        """Register a new replicate and return its run number. The original is run 0."""
        runs = self._runs[original]
        runs[number] = _Run(counts=False)
        self._original[number] = original
        self.num_started += 1
        return len(runs) - 1

    def rung(self, number: int, examples_seen: int, points: Mapping[Any, Pair]) -> None:
        """Record a run's points at a rung, keyed by name. A replicate's points count only after it has ended."""
        self._run(number).points[examples_seen] = dict(points)

    def end(self, number: int, failed: bool) -> None:
        """Mark a run as ended. The scores of a failed run no longer count."""
        self._run(number).counts = not failed

    def _run(self, number: int) -> _Run:
        original = self._original[number]
        self._fronts.pop(original, None)
        return self._runs[original][number]

    def has_any(self, original: int) -> bool:
        """Return whether any replicate of this configuration counts."""
        return len(self._counting_runs(original)) > 1

    def _counting_runs(self, original: int, ending: int | None = None) -> list[_Run]:
        runs = self._runs[original]
        return [run for number, run in runs.items() if run.counts or number == ending]

    def next(self, is_at_rest: Callable[[int], bool], area: Area) -> int | None:
        """Return the original to replicate next, or None if there is none.

        The candidates are the configurations on the front of mean scores. If all of these have the
        maximum number of runs, the candidates are those that would be on the front if their means
        improved by one standard error. The candidate with the fewest runs is chosen. Ties go to the one
        that adds the most area.

        Args:
            is_at_rest: Function that returns whether a trial is paused, completed or stopped.
            area: Function that returns the value of a front.
        """
        if self.num_started >= self.trials:
            return None
        fronts = _feasible(self._distinct_fronts(), area)
        if not fronts:
            return None
        lengths = [len(front) for front in fronts.values()]
        num_runs_counted = [[len(self._counting_runs(original))] for original in fronts]
        means = _MeanPoints(
            points=np.array([pair for front in fronts.values() for pair in front]),
            owners=np.repeat(list(fronts), lengths),
            num_runs=np.repeat(num_runs_counted, lengths, axis=0),
        )
        for deviation in (np.zeros(2), self._deviation_of_a_run()):
            shifted = means.shifted(deviation)
            is_dominated = dominated_by(shifted, means.points)
            owners: list[int] = np.unique(means.owners[~is_dominated]).tolist()
            num_runs = {
                original: len(self._runs[original]) for original in owners if is_at_rest(original)
            }
            fewest = min(num_runs.values(), default=self.runs)
            if fewest < self.runs:
                candidates = [original for original in num_runs if num_runs[original] == fewest]
                gains = {original: means.gain(original, shifted, area) for original in candidates}
                return max(candidates, key=lambda original: (gains[original], -original))
        return None

    def _distinct_fronts(self) -> dict[int, Front]:
        """Return the front of the means of each distinct configuration, keyed by original.

        Originals with equal configurations have equal seeds, so only the one with the most runs is
        included. Ties go to the one with the most examples seen, then to the first.
        """
        equal: dict[Hashable, list[int]] = defaultdict(list)
        for original in self._runs:
            if self._front(original):
                key = self._keys[original]
                equal[key].append(original)
        chosen = [max(originals, key=self._progress) for originals in equal.values()]
        return {original: self._front(original) for original in chosen}

    def _progress(self, original: int) -> tuple[int, int]:
        """Return a configuration's number of runs and the examples seen by its original."""
        runs = self._runs[original]
        return len(runs), max(runs[original].points)

    def _front(self, original: int) -> Front:
        if original not in self._fronts:
            fronts = self.mean_fronts(original)
            self._fronts[original] = fronts[max(fronts)] if fronts else ()
        return self._fronts[original]

    def _deviation_of_a_run(self) -> Float64Array:
        """Return the standard deviations (2,) of P and S across runs, pooled over all points with several runs."""
        spreads = []
        for original, runs in self._runs.items():
            if len(runs) == 1:
                continue
            means = self.means(original)
            for points in means.values():
                spreads += [scores.spread for scores in points.values() if scores.runs > 1]
        if not spreads:
            return np.zeros(2)
        variances = np.array(spreads) ** 2
        deviation: Float64Array = np.sqrt(variances.mean(axis=0))
        return deviation

    def means(self, original: int, ending: int | None = None) -> dict[int, dict[Any, MeanScores]]:
        """Return a configuration's mean scores, keyed by examples seen (ascending), then by point name.

        The run ``ending`` is included as if it had already ended.
        """
        pairs_by_budget: dict[int, dict[Any, list[Pair]]] = defaultdict(lambda: defaultdict(list))
        for run in self._counting_runs(original, ending):
            for examples_seen, points in run.points.items():
                pairs_by_name = pairs_by_budget[examples_seen]
                for name, pair in points.items():
                    pairs_by_name[name].append(pair)
        means = {}
        for examples_seen in sorted(pairs_by_budget):
            pairs_by_name = pairs_by_budget[examples_seen]
            means[examples_seen] = {
                name: MeanScores.of(pairs) for name, pairs in pairs_by_name.items()
            }
        return means

    def mean_fronts(self, original: int) -> dict[int, Front]:
        """Return the front of a configuration's mean scores so far, keyed by examples seen (ascending)."""
        front: Front = ()
        fronts = {}
        for examples_seen, points in self.means(original).items():
            means = [scores.mean for scores in points.values()]
            front = front_of([*front, *means])
            fronts[examples_seen] = front
        return fronts


def _feasible(fronts: dict[int, Front], area: Area) -> dict[int, Front]:
    """Return the fronts without infeasible points, or unchanged if no point is feasible."""
    feasible_fronts = {}
    for original, front in fronts.items():
        # the area of an infeasible point is negative
        feasible = tuple(pair for pair in front if area([pair]) >= 0)
        if feasible:
            feasible_fronts[original] = feasible
    return feasible_fronts or fronts


def _area_of(points: Float64Array, area: Area) -> float:
    front = points[non_dominated(points)].tolist()
    return area([(p, s) for p, s in front]) if front else 0.0
