"""What a run's stored results say: the front, its knee and best point, how large it is, and what is missing."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from raysweep.metrics.objective import Objective
from raysweep.metrics.pareto import hypervolume, knee
from raysweep.results.account import Account, account_of
from raysweep.results.types import Point, Results, Rung, RunInfo, ScoredSplit, Trial
from raysweep.results.views import front_members

SPLITS: tuple[ScoredSplit, ...] = ("dev", "test")


@dataclass(frozen=True)
class Member:
    """One point of the front, which is chosen on dev, and its scores on test where they were read."""

    dev: Point
    test: Point | None
    is_knee: bool
    is_best: bool  # of the objective
    is_feasible: bool  # meets the constraints, on dev

    def on(self, split: ScoredSplit) -> Point | None:
        return self.dev if split == "dev" else self.test


@dataclass(frozen=True)
class Area:
    """Hypervolumes on one split above ``reference`` (P, S), scores in [0, 1]; ``oracle`` is None where not stored.

    As for the sweep itself, what misses a constraint counts for nothing.
    """

    reference: tuple[float, float]
    front: float
    oracle: float | None

    @property
    def share(self) -> float | None:
        """The front's part of the oracle's hypervolume, or None where that is not known or nothing."""
        return self.front / self.oracle if self.oracle else None


@dataclass(frozen=True)
class TrialSummary:
    """A trial with its rungs by rising step, and its best dev point under the objective (None without a rung).

    A point that meets the constraints is better than any that does not.
    """

    trial: Trial
    rungs: tuple[Rung, ...]
    objectives: tuple[float, ...]  # by rung: of its best point
    best: Point | None
    objective: float = 0.0  # of the best point
    is_feasible: bool = False  # the best point


@dataclass(frozen=True)
class Summary:
    """Everything that the tables, figures and pages of a report show."""

    results: Results
    members: tuple[Member, ...]  # by falling similarity on dev
    trials: tuple[TrialSummary, ...]
    references: Mapping[ScoredSplit, Point]
    objectives_by_split: Mapping[ScoredSplit, Objective]  # where the reference's scores are stored
    oracles: Mapping[ScoredSplit, tuple[Point, ...]]  # by rising bonus
    areas: Mapping[ScoredSplit, Area]
    account: Account
    notes: tuple[str, ...]  # what a reader must know, and what is absent

    @property
    def has_test(self) -> bool:
        return any(member.test for member in self.members)


def objective_formula(info: RunInfo) -> str:
    """The objective as a reader would write it, such as ``0.5 P + 0.5 S``."""
    other = "retention" if info.similarity == "retention" else "S"
    return f"{info.polarity_weight:g} P + {1 - info.polarity_weight:g} {other}"


def constraints_text(info: RunInfo) -> str:
    """What a point has to reach, such as ``P ≥ 70.0, retention ≥ 90.0``; empty where there is nothing."""
    names = {"polarity": "P", "similarity": "S"}
    return ", ".join(f"{names.get(name, name)} ≥ {100 * least:.1f}" for name, least in info.constraints.items())


def goal_text(info: RunInfo) -> str:
    """What the sweep was after, in a sentence or two."""
    constraints = f" Constraints: {constraints_text(info)}." if info.constraints else ""
    return f"Objective: {objective_formula(info)}.{constraints}"


def half_width(std: float, num_queries: int) -> float:
    """Half the normal 95% confidence interval of a mean over ``num_queries`` queries, whose deviation is ``std``."""
    return 1.959964 * std / math.sqrt(num_queries)


def summarise(results: Results) -> Summary:
    """Derive what a report shows. Selection is on dev alone; test scores are only looked up for what was selected."""
    references = {point.split: point for point in results.points if point.kind == "reference"}
    info = results.info
    objectives_by_split = {
        split: Objective.of(info.polarity_weight, info.similarity, info.constraints, (point.polarity, point.similarity))
        for split, point in references.items()
    }
    oracles = {split: _oracle(results.points, split) for split in SPLITS}

    def worth(point: Point) -> Worth:
        return -_violation(point, info, objectives_by_split), info.objective(point)

    members = _members(results, worth)
    areas = {}
    for split, objective in objectives_by_split.items():
        if any(member.on(split) for member in members):
            front = [point for m in members if m.is_feasible and (point := m.on(split))]
            limit = [point for point in oracles[split] if not _violation(point, info, objectives_by_split)]
            areas[split] = Area(
                objective.reference_point, _area(front, objective), _area(limit, objective) if oracles[split] else None
            )
    trials = _trials(results, worth)
    notes = tuple(_notes(results, members, references, oracles))
    return Summary(
        results, members, trials, references, objectives_by_split, oracles, areas, account_of(results), notes
    )


Worth = tuple[float, float]  # minus what a point misses of the constraints, and its objective


def _violation(point: Point, info: RunInfo, objectives_by_split: Mapping[ScoredSplit, Objective]) -> float:
    if not info.constraints or point.split not in objectives_by_split:
        return 0.0
    return objectives_by_split[point.split].violation((point.polarity, point.similarity))


def _area(points: Iterable[Point], objective: Objective) -> float:
    return hypervolume([(point.polarity, point.similarity) for point in points], objective.reference_point)


def _oracle(points: Iterable[Point], split: ScoredSplit) -> tuple[Point, ...]:
    found = (point for point in points if point.kind == "oracle" and point.split == split)
    return tuple(sorted(found, key=lambda point: point.value or 0.0))


def _members(results: Results, worth: Callable[[Point], Worth]) -> tuple[Member, ...]:
    front = front_members(results.points)
    if not front:
        return ()
    tested: dict[tuple[object, ...], Point] = {
        (p.trial, p.step, p.kind, p.value): p for p in results.points if p.split == "test" and p.trial is not None
    }
    # Neither weight is negative and retention is S over a constant: the best of all points has an equal on the front. So
    # has one that meets the constraints, for what dominates it meets them too.
    best = max(front, key=worth)
    feasible = [point for point in front if worth(point)[0] == 0] or front
    balanced = feasible[knee([(point.polarity, point.similarity) for point in feasible])]
    return tuple(
        Member(
            dev=point,
            test=tested.get((point.trial, point.step, point.kind, point.value)),
            is_knee=point is balanced,
            is_best=point is best,
            is_feasible=worth(point)[0] == 0,
        )
        for point in front
    )


def _trials(results: Results, worth: Callable[[Point], Worth]) -> tuple[TrialSummary, ...]:
    rungs: dict[int, dict[int, Rung]] = {}
    for rung in results.rungs:
        rungs.setdefault(rung.trial, {})[rung.step] = rung
    best: dict[tuple[int, int], Point] = {}
    for point in results.points:
        if point.split == "dev" and point.trial is not None and point.step is not None:
            rival = best.setdefault((point.trial, point.step), point)
            if worth(point) > worth(rival):
                best[point.trial, point.step] = point
    summaries = []
    for trial in sorted(results.trials, key=lambda trial: trial.trial):
        own = [rung for _, rung in sorted(rungs.get(trial.trial, {}).items()) if (trial.trial, rung.step) in best]
        points = [best[trial.trial, rung.step] for rung in own]
        objectives = tuple(results.info.objective(point) for point in points)
        if points:
            top = max(points, key=worth)
            missed, objective = worth(top)
            summaries.append(TrialSummary(trial, tuple(own), objectives, top, objective, missed == 0))
        else:
            summaries.append(TrialSummary(trial, (), (), None))
    return tuple(summaries)


def _notes(
    results: Results,
    members: tuple[Member, ...],
    references: Mapping[ScoredSplit, Point],
    oracles: Mapping[ScoredSplit, tuple[Point, ...]],
) -> Iterable[str]:
    if results.status == "running":
        yield "The sweep is still running, or it was killed: this is what it has stored so far."
    elif results.status != "completed":
        endings = {"interrupted": "was interrupted", "budget": "ended at its budget", "plateau": "ended on a plateau"}
        ended = endings.get(results.status, results.status)
        reason = f": {results.reason.rstrip('.')}" if results.reason else ""
        yield f"The sweep {ended}{reason}."
    held = sum(trial.status == "held" for trial in results.trials)
    if held and results.status != "running":
        yield f"{held} of {len(results.trials)} trials are held: raysweep run --resume may go on with them."
    missing = sum(not member.is_feasible for member in members)
    if members and missing == len(members):
        yield f"No point meets the constraints ({constraints_text(results.info)}); the best is the one that misses by least."
    elif missing:
        yield (
            f"{missing} of the {len(members)} front members miss a constraint ({constraints_text(results.info)}): they are "
            "neither knee nor best, and count for no hypervolume."
        )
    if not members:
        yield "No rung finished, so there is no front."
    scored = sum(member.test is not None for member in members)
    if members and not scored:
        yield "The test split was not scored: every score here is on dev, on which the front was also chosen."
    elif scored < len(members):
        yield f"Only {scored} of the {len(members)} front members were scored on test."
    for split in SPLITS if scored else SPLITS[:1]:
        if split not in references:
            yield f"The reference encoder's scores on {split} are not stored, so there is no hypervolume on {split}."
        if not oracles[split]:
            yield f"The oracle front on {split} is not stored, so the front is not compared with its limit on {split}."
    failed = sum(trial.status == "failed" for trial in results.trials)
    if failed:
        yield f"{failed} of {len(results.trials)} trials failed; their reasons are in the table of trials."
