"""Compute intervals and other statistics from per-query scores.

A split is skipped if it lacks the per-query scores of any member.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import Objective
from raysweep.report.front import Front
from raysweep.report.replicates import StoredRuns, stacked
from raysweep.results.query_scores import PointName, QueryScores, name_of_point
from raysweep.results.types import Results, ScoredSplit
from raysweep.uncertainty.areas import NO_CONSTRAINTS
from raysweep.uncertainty.configurations import SeedNoise, Trained, intervals
from raysweep.uncertainty.differences import Difference, paired
from raysweep.uncertainty.front import FrontQueryScores, FrontUncertainty, assess
from raysweep.uncertainty.interval import ScoreIntervals
from raysweep.uncertainty.selection import Drop, between_splits, optimism, split_drop

REFERENCE: PointName = (None, None, "reference", None)

# intervals of configurations' mean scores, keyed by the point name of the original trial
Means = dict[PointName, ScoreIntervals]


@dataclass(frozen=True)
class FromKnee:
    """Paired differences in P and S between a member and the knee, Holm-adjusted over all members."""

    polarity: Difference
    similarity: Difference


@dataclass(frozen=True)
class Certainty:
    """Intervals and other statistics. A field is empty if the required scores are missing.

    Intervals on dev are corrected for the bias from selecting the front on dev. ``from_knee``
    compares every other member with the knee on the ``compared_on`` split. ``drops`` contains the
    drops from dev to test in the members' mean P and S. ``replicated`` contains dev intervals for
    members whose configurations ran more than once.
    """

    fronts: Mapping[ScoredSplit, FrontUncertainty]
    compared_on: ScoredSplit | None
    from_knee: Mapping[PointName, FromKnee]
    drops: Mapping[str, Drop]
    replicated: Mapping[PointName, ScoreIntervals]


NOTHING = Certainty({}, None, {}, {}, {})


def certainty_of(
    results: Results,
    front: Front,
    objectives: Mapping[ScoredSplit, Objective],
    scores: Mapping[ScoredSplit, QueryScores],
) -> Certainty:
    """Compute the statistics for which scores are stored."""
    known = {}
    for split, stored in scores.items():
        names = front.names_on(split)
        is_complete = all(name in stored for name in names)
        if names and is_complete:
            known[split] = stored
    if not known:
        return NOTHING
    seed = results.info.seed
    added = np.zeros(2)  # selection bias in the front's P and S on dev
    trained: dict[ScoredSplit, Trained] = {}
    replicated: Means = {}
    if "dev" in known:
        dev = known["dev"]
        scores_of_trials = stacked(dev, dev.names)[_trial_rows(dev)]
        added = optimism(scores_of_trials, seed)
        runs = StoredRuns(results, dev)
        noise = SeedNoise(runs.replicated())
        repeated = runs.repeated(front.names_on("dev"))
        reference = _scores_of_reference(dev)
        by_configuration = intervals(list(repeated.values()), reference, noise, dev.goals)
        for name, points in zip(repeated, by_configuration, strict=True):
            replicated[name] = points[0]
        trained = _trained(runs, noise, front, known, added)
    fronts = {}
    for split, stored in known.items():
        objective = objectives.get(split)
        fronts[split] = _assess(stored, front, objective, added, trained.get(split), seed)
    compared_on: ScoredSplit = "test" if "test" in known else "dev"
    return Certainty(
        fronts=fronts,
        compared_on=compared_on,
        from_knee=_from_knee(known[compared_on], front),
        drops=_drops(known, front, added),
        replicated=replicated,
    )


def _trained(
    runs: StoredRuns,
    noise: SeedNoise,
    front: Front,
    known: Mapping[ScoredSplit, QueryScores],
    added: Float64Array,
) -> dict[ScoredSplit, Trained]:
    """Return feasible members' configurations, keyed by split; empty if no configuration ran twice."""
    if not noise.is_known:
        return {}
    trained = {}
    for split, stored in known.items():
        points = front.feasible_on(split)
        members = [name_of_point(point) for point in points]
        scored = runs.scored(members, stored)
        if split == "dev":
            bias = added[:, None]
            scored = [
                replace(configuration, scores=configuration.scores - bias)
                for configuration in scored
            ]
        trained[split] = Trained(scored, noise)
    return trained


def _trial_rows(stored: QueryScores) -> list[int]:
    return [row for row, name in enumerate(stored.names) if name[0] is not None]


def _assess(
    stored: QueryScores,
    front: Front,
    objective: Objective | None,
    added: Float64Array,
    trained: Trained | None,
    seed: int,
) -> FrontUncertainty:
    members = front.names_on(stored.split)
    rivals = _trial_rows(stored)
    scores = stacked(stored, stored.names)
    if stored.split == "dev":
        scores[rivals] -= added[:, None]
    minima, reference = NO_CONSTRAINTS, None
    if objective is not None:
        minima = (objective.min_polarity, objective.min_similarity)
        reference = stored.index(REFERENCE) if REFERENCE in stored else None
    means = scores.mean(axis=-1)
    probes = [row for row in _rows_of(stored, "probe") if (means[row] >= minima).all()]
    feasible = [name_of_point(point) for point in front.feasible_on(stored.split)]
    judged = FrontQueryScores(
        names=stored.names,
        scores=scores,
        members=stored.rows(members).tolist(),
        feasible=stored.rows(feasible).tolist(),
        rivals=rivals,
        reference=reference,
        oracle=_rows_of(stored, "oracle"),
        floor=probes,
        least=minima,
        trained=trained,
        goals=stored.goals,
    )
    return assess(judged, seed)


def _rows_of(stored: QueryScores, kind: str) -> list[int]:
    """Return the rows of this kind's points, except those from trials."""
    return [row for row, name in enumerate(stored.names) if name[0] is None and name[2] == kind]


def _from_knee(stored: QueryScores, front: Front) -> dict[PointName, FromKnee]:
    if front.knee is None:
        return {}
    knee = name_of_point(front.knee.dev)
    others = [name for name in front.names_on(stored.split) if name != knee]
    rows = stored.rows(others)
    knee_row = stored.index(knee)
    from_knee_scores = stored.scores[rows] - stored.scores[knee_row]
    differences = paired([*from_knee_scores[:, 0], *from_knee_scores[:, 1]])
    num_others = len(others)
    from_knee = {}
    for number, name in enumerate(others):
        from_knee[name] = FromKnee(differences[number], differences[num_others + number])
    return from_knee


def _drops(
    known: Mapping[ScoredSplit, QueryScores], front: Front, added: Float64Array
) -> dict[str, Drop]:
    """Return the drops in the members' mean P and S from dev to test."""
    if len(known) < 2:
        return {}
    dev, test = known["dev"], known["test"]
    names = front.names_on("dev")
    dev_means: Float64Array = stacked(dev, names).mean(axis=0)
    test_means: Float64Array = stacked(test, names).mean(axis=0)
    dev_reference = _scores_of_reference(dev)
    test_reference = _scores_of_reference(test)
    drops = {}
    for score, name in enumerate(dev.goals.headings):
        selection_bias = float(added[score])
        reference_drop = None
        if dev_reference is not None and test_reference is not None:
            reference_drop = between_splits(dev_reference[score], test_reference[score])
        drops[name] = split_drop(
            dev_means[score], test_means[score], selection_bias, reference_drop
        )
    return drops


def _scores_of_reference(stored: QueryScores) -> Float64Array | None:
    """Return the reference encoder's P and S (2, queries), or None if they are not stored."""
    if REFERENCE not in stored:
        return None
    scores: Float64Array = stacked(stored, [REFERENCE])[0]
    return scores
