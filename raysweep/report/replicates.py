"""Per-query scores of configurations that were trained more than once."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.results.query_scores import PointName, QueryScores
from raysweep.results.types import Results
from raysweep.results.views import counts
from raysweep.uncertainty.configurations import Replicated, Scored


class StoredRuns:
    """A sweep's training runs, grouped by configuration, with their per-query scores on dev.

    Points are named after the original trial of their configuration.
    """

    def __init__(self, results: Results, dev: QueryScores) -> None:
        self._dev = dev
        self._original: dict[int, int] = {}  # keyed by counted trial
        self._runs: dict[int, list[int]] = defaultdict(list)  # keyed by original trial
        for trial in results.trials:
            if not counts(trial):
                continue
            original = trial.trial if trial.replicate_of is None else trial.replicate_of
            self._original[trial.trial] = original
            self._runs[original].append(trial.trial)

    def replicated(self) -> list[Replicated]:
        """Return the stored points of configurations with at least two runs."""
        points = defaultdict(list)  # keyed by original trial
        for name in self._dev.names:
            trial = name[0]
            if trial not in self._runs:
                continue
            point, runs = self._place(name)
            if len(runs) > 1:
                points[trial].append(point)
        replicated = []
        for original, names in points.items():
            runs = self._runs[original]
            replicated.append(self._replicated(names, runs))
        return replicated

    def repeated(self, members: Iterable[PointName]) -> dict[PointName, Replicated]:
        """Return the members whose configurations have at least two runs, with their scores in all runs."""
        replicated = {}
        for member in members:
            name, runs = self._place(member)
            if len(runs) > 1:
                replicated[name] = self._replicated([name], runs)
        return replicated

    def scored(self, members: Iterable[PointName], stored: QueryScores) -> list[Scored]:
        """Return the members' configurations with their mean scores on a split.

        On dev, means are over all runs. On test, they are over the members' runs.
        """
        points_by_runs: dict[tuple[int, ...], dict[PointName, list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for member in members:
            name, runs = self._place(member)
            index = runs.index(_trial(member))
            points_by_runs[tuple(runs)][name].append(index)
        configurations = []
        for configuration_runs, points in points_by_runs.items():
            configuration = self._replicated(list(points), configuration_runs)
            if stored.split == "dev":
                configurations.append(Scored.by_all_runs(configuration))
                continue
            means = []
            for name, indices in points.items():
                names = [(configuration_runs[index], *name[1:]) for index in indices]
                scores = stacked(stored, names)
                means.append(scores.mean(axis=0))
            chosen_runs = tuple(tuple(indices) for indices in points.values())
            configurations.append(Scored(configuration, np.stack(means), chosen_runs))
        return configurations

    def _place(self, member: PointName) -> tuple[PointName, list[int]]:
        """Return a member's point, named after the original trial, and all runs of its configuration.

        If any run's scores are missing, return only the member's own run, because the mean of the
        stored runs would be biased upward.
        """
        trial = _trial(member)
        original = self._original.get(trial, trial)
        runs = self._runs.get(original, [])
        if trial in runs and all((run, *member[1:]) in self._dev for run in runs):
            return (original, *member[1:]), runs
        return member, [trial]

    def _replicated(self, points: Sequence[PointName], runs: Iterable[int]) -> Replicated:
        scores = []
        for run in runs:
            names = [(run, *name[1:]) for name in points]
            scores.append(stacked(self._dev, names))
        kinds = tuple(name[2:] for name in points)
        return Replicated(kinds, np.stack(scores))


def stacked(stored: QueryScores, names: Iterable[PointName]) -> Float64Array:
    """Return the named points' P and S (points, 2, queries) on a split."""
    scores: Float64Array = stored.scores[stored.rows(names)]
    return scores


def _trial(name: PointName) -> int:
    assert name[0] is not None
    return name[0]
