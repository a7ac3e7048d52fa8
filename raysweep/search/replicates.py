"""Noise: configurations near the front are run again with other seeds, and count by the means over their runs.

A configuration goes by the number of its original, the trial of the search that had it; its replicates have numbers of
their own. A point is averaged by its name and the examples seen, over the runs that reached it and did not fail.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import Pair, front_of
from raysweep.metrics.pareto import non_dominated

Front = tuple[Pair, ...]  # non-dominated points
Area = Callable[[Sequence[Pair]], float]  # what a front is worth


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


@dataclass(frozen=True)
class _MeanPoints:
    """The points of the fronts of means, of all configurations that compete."""

    points: Float64Array  # (points, 2)
    owners: NDArray[np.int64]  # (points,), the original of each
    num_runs: NDArray[np.int64]  # (points, 1), how many runs of its configuration count

    def shifted(self, deviation: Float64Array) -> Float64Array:
        """The points (points, 2), each better by its standard error, where one run deviates by ``deviation`` (2,)."""
        return self.points + deviation / np.sqrt(self.num_runs)

    def gain(self, original: int, shifted: Float64Array, area: Area) -> float:
        """What the joint front is worth more with a configuration's shifted points than without the configuration."""
        others = self.points[self.owners != original]
        with_own = np.concatenate([others, shifted[self.owners == original]])
        return _area_of(with_own, area) - _area_of(others, area)


class Replicates:
    """At most ``trials`` replicates are begun; ``runs`` is the most that one configuration gets, its original included."""

    def __init__(self, trials: int = 0, runs: int = 2) -> None:
        self.trials, self.runs = trials, runs
        self.num_begun = 0
        self._runs: dict[int, dict[int, _Run]] = {}  # by original, then by trial
        self._keys: dict[int, Hashable] = {}  # of originals
        self._original: dict[int, int] = {}  # of each trial
        self._fronts: dict[int, Front] = {}  # of means, by original, until something changes them

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
        """A run is over; one that failed counts no more, whatever it has scored."""
        self._run(number).counts = not failed

    def _run(self, number: int) -> _Run:
        original = self._original[number]
        self._fronts.pop(original, None)
        return self._runs[original][number]

    def has_any(self, original: int) -> bool:
        """Whether a replicate of this configuration counts."""
        return len(self._counting_runs(original)) > 1

    def _counting_runs(self, original: int, ending: int | None = None) -> list[_Run]:
        runs = self._runs[original]
        return [run for number, run in runs.items() if run.counts or number == ending]

    def next(self, rests: Callable[[int], bool], area: Area) -> int | None:
        """The original that is to be run once more, or None.

        A configuration is worth it that lies on the front of means; when all of those have had their runs, one that would
        lie there were its means better by their standard error. The fewest runs come first, then what adds most area.
        ``rests`` says whether a trial is at rest, ``area`` what a front is worth.
        """
        if self.num_begun >= self.trials:
            return None
        fronts = _feasible(self._distinct_fronts(), area)
        if not fronts:
            return None
        means = self._mean_points(fronts)
        for deviation in (np.zeros(2), self._deviation_of_a_run()):
            shifted = means.shifted(deviation)
            on_front = means.owners[_undominated(shifted, means.points)]
            gains = {
                original: means.gain(original, shifted, area)
                for original in self._least_run(set(on_front.tolist()), rests)
            }
            if gains:
                return max(gains, key=lambda original: (gains[original], -original))
        return None

    def _least_run(self, originals: set[int], rests: Callable[[int], bool]) -> list[int]:
        """Of those at rest that lack runs, the ones with the fewest, by number."""
        num_runs = {original: len(self._runs[original]) for original in sorted(originals) if rests(original)}
        lacking = {original: count for original, count in num_runs.items() if count < self.runs}
        fewest = min(lacking.values(), default=0)
        return [original for original, count in lacking.items() if count == fewest]

    def _mean_points(self, fronts: Mapping[int, Front]) -> _MeanPoints:
        lengths = [len(front) for front in fronts.values()]
        num_runs = [[len(self._counting_runs(original))] for original in fronts]
        return _MeanPoints(
            points=np.array([pair for front in fronts.values() for pair in front]),
            owners=np.repeat(list(fronts), lengths),
            num_runs=np.repeat(num_runs, lengths, axis=0),
        )

    def _distinct_fronts(self) -> dict[int, Front]:
        """The fronts of means by original. Equal configurations have equal seeds, so one of them stands for all.

        It is the one with the most runs, then the one that got furthest, then the first.
        """
        equal: dict[Hashable, list[int]] = {}
        for original in self._runs:
            if self._front(original):
                key = self._keys[original]
                equal.setdefault(key, []).append(original)
        chosen = [max(originals, key=self._progress) for originals in equal.values()]
        return {original: self._front(original) for original in chosen}

    def _progress(self, original: int) -> tuple[int, int]:
        """How many runs a configuration has, and the most examples that its original has seen."""
        runs = self._runs[original]
        return len(runs), max(runs[original].points)

    def _front(self, original: int) -> Front:
        if original not in self._fronts:
            fronts = self.mean_fronts(original)
            self._fronts[original] = fronts[max(fronts)] if fronts else ()
        return self._fronts[original]

    def _deviation_of_a_run(self) -> Float64Array:
        """The standard deviations (2,) of one run's P and S, pooled over all points that several runs have reached."""
        spreads = [scores.spread for scores in self._replicated_scores() if scores.runs > 1]
        if not spreads:
            return np.zeros(2)
        variances = np.array(spreads) ** 2
        deviation: Float64Array = np.sqrt(variances.mean(axis=0))
        return deviation

    def _replicated_scores(self) -> list[MeanScores]:
        replicated = [original for original, runs in self._runs.items() if len(runs) > 1]
        by_budget = [points for original in replicated for points in self.means(original).values()]
        return [scores for points in by_budget for scores in points.values()]

    def means(self, original: int, ending: int | None = None) -> dict[int, dict[Any, MeanScores]]:
        """A configuration's points by examples seen, rising, and by name; run ``ending`` counts as if it had ended."""
        pairs: dict[int, dict[Any, list[Pair]]] = {}
        for run in self._counting_runs(original, ending):
            for examples_seen, points in run.points.items():
                by_name = pairs.setdefault(examples_seen, {})
                for name, pair in points.items():
                    by_name.setdefault(name, []).append(pair)
        return {examples_seen: _means_by_name(pairs[examples_seen]) for examples_seen in sorted(pairs)}

    def mean_fronts(self, original: int) -> dict[int, Front]:
        """By examples seen, rising: the front of all of a configuration's means up to there."""
        front: Front = ()
        fronts = {}
        for examples_seen, points in self.means(original).items():
            means = [scores.mean for scores in points.values()]
            front = front_of([*front, *means])
            fronts[examples_seen] = front
        return fronts


def _means_by_name(pairs: Mapping[Any, list[Pair]]) -> dict[Any, MeanScores]:
    return {name: _mean_scores(found) for name, found in pairs.items()}


def _mean_scores(pairs: list[Pair]) -> MeanScores:
    array = np.array(pairs)
    mean = array.mean(axis=0)
    spread = array.std(axis=0, ddof=1) if len(pairs) > 1 else np.zeros(2)
    return MeanScores(len(pairs), (float(mean[0]), float(mean[1])), (float(spread[0]), float(spread[1])))


def _feasible(fronts: dict[int, Front], area: Area) -> dict[int, Front]:
    """The feasible points of those fronts that have some; where none has, all fronts as they are."""
    feasible = {
        original: tuple(pair for pair in front if area([pair]) >= 0)  # an infeasible point is worth a negative area
        for original, front in fronts.items()
    }
    return {original: front for original, front in feasible.items() if front} or fronts


def _area_of(points: Float64Array, area: Area) -> float:
    front = points[non_dominated(points)].tolist()
    return area([(p, s) for p, s in front]) if front else 0.0


def _undominated(points: Float64Array, others: Float64Array) -> NDArray[np.bool_]:
    """Which of the points (n, 2) none of the others (m, 2) dominates."""
    front = others[non_dominated(others)]
    as_good: NDArray[np.bool_] = np.all(front >= points[:, None], axis=2)
    better: NDArray[np.bool_] = np.any(front > points[:, None], axis=2)
    dominated: NDArray[np.bool_] = np.any(as_good & better, axis=1)
    return ~dominated
