"""What per-query scores say of a front: intervals, what differs from the knee, why dev is better than test, means over runs.

A run of an older version has no per-query scores, and one that such a version began has them of some members only: there is
nothing to say of a split on which any member lacks them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import Objective
from raysweep.report.replicates import StoredRuns, stacked
from raysweep.results.query_scores import PointName, QueryScores
from raysweep.results.types import Results, ScoredSplit
from raysweep.uncertainty.areas import NO_CONSTRAINTS
from raysweep.uncertainty.configurations import SeedNoise, Trained, intervals
from raysweep.uncertainty.differences import Difference, paired
from raysweep.uncertainty.front import FrontScores, FrontUncertainty, assess
from raysweep.uncertainty.interval import Interval, ScoreIntervals
from raysweep.uncertainty.selection import Drop, between_splits, optimism, split_drop

REFERENCE: PointName = (None, None, "reference", None)

Means = dict[PointName, ScoreIntervals]  # of configurations, by the names of their originals' points


@dataclass(frozen=True)
class FromKnee:
    """By how much a member's P and S exceed the knee's, on the same queries; Holm's adjustment is over all members."""

    polarity: Difference
    similarity: Difference


@dataclass(frozen=True)
class Certainty:
    """Intervals by split, on dev less what selection adds; the rest where there is enough for it, else empty.

    ``from_knee`` is on ``compared_on``, for each other member. ``drops`` are of P and of S, means over the members.
    ``replicated`` are intervals of members' configurations that ran more than once, on dev.
    """

    fronts: Mapping[ScoredSplit, FrontUncertainty]
    compared_on: ScoredSplit | None
    from_knee: Mapping[PointName, FromKnee]
    drops: Mapping[str, Drop]
    replicated: Mapping[PointName, ScoreIntervals]


NOTHING = Certainty({}, None, {}, {}, {})


@dataclass(frozen=True)
class FrontNames:
    """The members by name: all that were scored on each split, those that meet the constraints, and the knee."""

    on: Mapping[ScoredSplit, Sequence[PointName]]
    feasible: frozenset[PointName]
    knee: PointName


def certainty_of(
    results: Results,
    front: FrontNames,
    objectives: Mapping[ScoredSplit, Objective],
    scores: Mapping[ScoredSplit, QueryScores],
) -> Certainty:
    """Everything that the stored scores say. Random draws follow from the sweep's seed."""
    known = {split: stored for split, stored in scores.items() if _has_all(stored, front.on.get(split, ()))}
    if not known:
        return NOTHING
    seed = results.info.seed
    added = _optimism(known, seed)
    trained: dict[ScoredSplit, Trained] = {}
    replicated: Means = {}
    if "dev" in known:
        runs = StoredRuns(results, known["dev"])
        noise = SeedNoise(runs.replicated())
        replicated = _replicated(runs, noise, front.on["dev"], known["dev"])
        trained = _trained(runs, noise, front, known, added)
    fronts = {
        split: _assess(stored, front, objectives.get(split), added, trained.get(split), seed)
        for split, stored in known.items()
    }
    compared_on: ScoredSplit = "test" if "test" in known else "dev"
    return Certainty(
        fronts=fronts,
        compared_on=compared_on,
        from_knee=_from_knee(known[compared_on], front.on[compared_on], front.knee),
        drops=_drops(known, front, added),
        replicated=replicated,
    )


def _trained(
    runs: StoredRuns,
    noise: SeedNoise,
    front: FrontNames,
    known: Mapping[ScoredSplit, QueryScores],
    added: Float64Array,
) -> dict[ScoredSplit, Trained]:
    """The configurations of the members that count, on each split; none where no configuration ran twice."""
    if not noise.is_known:
        return {}
    found = {}
    for split, stored in known.items():
        members = [name for name in front.on[split] if name in front.feasible]
        scored = runs.scored(members, stored)
        if split == "dev":
            scored = [replace(each, scores=each.scores - added[:, None]) for each in scored]
        found[split] = Trained(scored, noise)
    return found


def _has_all(stored: QueryScores, members: Sequence[PointName]) -> bool:
    return bool(members) and all(name in stored for name in members)


def _stacked(stored: QueryScores, rows: Iterable[int] | None = None) -> Float64Array:
    """P and S (points, 2, queries) of some of a split's points, or of all."""
    chosen = slice(None) if rows is None else list(rows)
    return np.stack([stored.polarity[chosen], stored.similarity[chosen]], axis=1)


def _trial_rows(stored: QueryScores) -> list[int]:
    return [row for row, name in enumerate(stored.names) if name[0] is not None]


def _optimism(known: Mapping[ScoredSplit, QueryScores], seed: int) -> Float64Array:
    """What selection adds to P and S (2,) of the front on dev; 0 where dev's scores are not stored."""
    if "dev" not in known:
        return np.zeros(2)
    dev = known["dev"]
    return optimism(_stacked(dev, _trial_rows(dev)), seed)


def _assess(
    stored: QueryScores,
    front: FrontNames,
    objective: Objective | None,
    added: Float64Array,
    trained: Trained | None,
    seed: int,
) -> FrontUncertainty:
    members = front.on[stored.split]
    rivals = _trial_rows(stored)
    scores = _stacked(stored)
    if stored.split == "dev":
        scores[rivals] -= added[:, None]
    least = NO_CONSTRAINTS if objective is None else (objective.min_polarity, objective.min_similarity)
    means = scores.mean(axis=-1)
    probes = [row for row in _rows_of(stored, "probe") if (means[row] >= least).all()]
    judged = FrontScores(
        names=stored.names,
        scores=scores,
        members=stored.rows(members).tolist(),
        counting=stored.rows(name for name in members if name in front.feasible).tolist(),
        rivals=rivals,
        reference=stored.index(REFERENCE) if REFERENCE in stored and objective is not None else None,
        oracle=_rows_of(stored, "oracle"),
        floor=probes,
        least=least,
        trained=trained,
    )
    return assess(judged, seed)


def _rows_of(stored: QueryScores, kind: str) -> list[int]:
    """Of points of a kind that no trial made, by rising value."""
    return [row for row, name in enumerate(stored.names) if name[0] is None and name[2] == kind]


def _from_knee(stored: QueryScores, members: Sequence[PointName], knee: PointName) -> dict[PointName, FromKnee]:
    if knee not in members:
        return {}
    others = [name for name in members if name != knee]
    at = stored.index(knee)
    rows = stored.rows(others)
    differences = [scores[row] - scores[at] for row in rows for scores in (stored.polarity, stored.similarity)]
    found = paired(differences)
    return {name: FromKnee(*found[2 * index : 2 * index + 2]) for index, name in enumerate(others)}


def _drops(known: Mapping[ScoredSplit, QueryScores], front: FrontNames, added: Float64Array) -> dict[str, Drop]:
    """Of the members that were scored on both splits."""
    if len(known) < 2:
        return {}
    dev, test = known["dev"], known["test"]
    both = [name for name in front.on["dev"] if name in front.on["test"]]
    on_dev = _stacked(dev, dev.rows(both)).mean(axis=0)
    on_test = _stacked(test, test.rows(both)).mean(axis=0)
    drops = {}
    for score, name in enumerate(("P", "S")):
        of_reference = _drop_of_reference(dev, test, score)
        drops[name] = split_drop(on_dev[score], on_test[score], float(added[score]), of_reference)
    return drops


def _drop_of_reference(dev: QueryScores, test: QueryScores, score: int) -> Interval | None:
    """By how much P (0) or S (1) of the reference encoder is less on test."""
    if REFERENCE not in dev or REFERENCE not in test:
        return None
    on_dev, on_test = (_stacked(stored, [stored.index(REFERENCE)])[0, score] for stored in (dev, test))
    return between_splits(on_dev, on_test)


def _replicated(runs: StoredRuns, noise: SeedNoise, members: Iterable[PointName], dev: QueryScores) -> Means:
    """By the original's name, for members' configurations of which the scores of two runs or more are stored."""
    repeated = runs.repeated(members)
    reference = stacked(dev, [REFERENCE])[0] if REFERENCE in dev else None
    found = intervals(list(repeated.values()), reference, noise)
    return {name: of_points[0] for name, of_points in zip(repeated, found, strict=True)}
