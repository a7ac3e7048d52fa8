"""Simulated sweeps with replicates as a report reads them: results and per-query scores, for :mod:`.calibration`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.simulated_scores import Setting
from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import Objective
from raysweep.metrics.pareto import non_dominated
from raysweep.metrics.scores import GOALS
from raysweep.report.certainty import REFERENCE, Certainty, certainty_of
from raysweep.report.front import Front, Member
from raysweep.results.query_scores import PointName, QueryScores
from raysweep.results.scores import Score
from raysweep.results.types import Point, Results, RunInfo, ScoredSplit, Trial, TrialStatus


@dataclass(frozen=True)
class SimulatedRun:
    """A sweep whose trials have one run each, and those on the front of single runs as many as there are.

    ``scores`` of each split are (runs, trials, points, 2, queries); ``limits`` (points, 2, queries) are those of R, then
    the oracle.
    """

    setting: Setting
    scores: Mapping[ScoredSplit, Float64Array]
    limits: Mapping[ScoredSplit, Float64Array]

    @property
    def results(self) -> Results:
        """Return the results. Each original has its trial's number; the replicates' numbers follow all originals."""
        runs, trials = self.scores["dev"].shape[:2]
        every = [
            Trial(
                run * trials + trial, {}, TrialStatus.COMPLETED, replicate_of=trial if run else None
            )
            for run in range(runs)
            for trial in (self.repeated if run else range(trials))
        ]
        info = invented_info(self.setting, trials)
        return Results(
            "",
            info,
            trials=tuple(every),
            rungs=(),
            points=(),
            status="completed",
            reason="",
            seconds=0.0,
        )

    @property
    def repeated(self) -> list[int]:
        """Return the trials with a point on the front of all first runs."""
        _, trials, points = self.scores["dev"].shape[:3]
        first = self.scores["dev"][0].mean(axis=-1).reshape(trials * points, 2)
        return sorted({row // points for row in non_dominated(first)})

    def stored(self) -> dict[ScoredSplit, QueryScores]:
        """Return the stored scores: on dev of all points, on test of the front's."""
        results = self.results
        on_dev = [
            (trial.trial, 1, "concat", float(point))
            for trial in results.trials
            for point in self._points
        ]
        dev = self._query_scores("dev", on_dev)
        rows = non_dominated(self._means(dev, on_dev))
        return {"dev": dev, "test": self._query_scores("test", [on_dev[row] for row in rows])}

    @property
    def _points(self) -> range:
        return range(self.scores["dev"].shape[2])

    def _means(self, stored: QueryScores, names: Sequence[PointName]) -> Float64Array:
        rows = stored.rows(names)
        means: Float64Array = stored.scores[rows].mean(axis=-1)
        return means

    def _query_scores(self, split: ScoredSplit, names: Sequence[PointName]) -> QueryScores:
        trials = self.scores[split].shape[1]
        of_trials = []
        for trial, _, _, value in names:
            assert trial is not None and value is not None
            of_trials.append(self.scores[split][trial // trials, trial % trials, int(value)])
        limits = self.limits[split]
        oracle: list[PointName] = [
            (None, None, "oracle", float(row)) for row in range(len(limits) - 1)
        ]
        scores = np.concatenate([limits, np.stack(of_trials)])
        return QueryScores(split, (REFERENCE, *oracle, *names), scores, GOALS)


def certainty(
    run: SimulatedRun, *, with_replicates: bool = True
) -> tuple[Certainty, list[PointName]]:
    """Return a report's intervals of a simulated run, and the members of its front."""
    stored = run.stored()
    members = [name for name in stored["test"].names if name[0] is not None]
    front = Front(tuple(_member(name, is_knee=name == members[0]) for name in members))
    results = run.results
    if not with_replicates:
        alone = [replace(trial, replicate_of=None) for trial in results.trials]
        results = replace(results, trials=tuple(alone))
    objectives = {}
    for split, limits in run.limits.items():
        polarity, similarity = limits[0].mean(axis=-1).tolist()
        objectives[split] = Objective.of(0.5, "similarity", {}, (polarity, similarity))
    return certainty_of(results, front, objectives, stored), members


def _member(name: PointName, *, is_knee: bool) -> Member:
    """A member of the front, of which only the name counts."""
    trial, step, kind, value = name
    dev = Point(
        trial, step, kind, value, "dev", None, {"polarity": Score(0.0), "similarity": Score(0.0)}
    )
    test = replace(dev, split="test")
    return Member(dev, test, is_knee=is_knee, is_best=is_knee, is_feasible=True)


def invented_info(setting: Setting, trials: int) -> RunInfo:
    """Return the first event of a ledger."""
    return RunInfo(
        name="simulated",
        version="0",
        dataset="invented",
        model="invented",
        reference="invented",
        k=setting.k,
        rank_weights="uniform",
        polarity_weight=0.5,
        similarity="similarity",
        num_trials=trials,
        num_queries={"dev": setting.num_queries, "test": setting.num_queries},
        num_pool={},
        label_names=("0", "1"),
        seed=0,
    )
