"""A summary of a run: its front, hypervolumes, trials, baselines and costs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from raysweep.metrics.hull import hull_area
from raysweep.metrics.objective import Objective
from raysweep.metrics.pareto import hypervolume
from raysweep.metrics.scores import STANDARD, Goals, Pair
from raysweep.report.baselines import Baseline, ProbeComparison, baselines_of, compare
from raysweep.report.certainty import NOTHING, Certainty, certainty_of
from raysweep.report.front import Criterion, Front, Member, front_of
from raysweep.results.account import Account, build_account
from raysweep.results.bill import Bill, build_bill
from raysweep.results.query_scores import QueryScores, load_readable_scores, name_of_point
from raysweep.results.reader import load_with_driver
from raysweep.results.types import Point, Results, Rung, ScoredSplit, Trial
from raysweep.storage.folder import Folder
from raysweep.uncertainty.front import FrontUncertainty
from raysweep.uncertainty.interval import Interval

SPLITS: tuple[ScoredSplit, ...] = ("dev", "test")


@dataclass(frozen=True)
class Area:
    """Hypervolumes on a split relative to ``reference_point``, for scores in [0, 1].

    ``oracle`` is the hypervolume of the oracle front's concave hull, or None if the oracle is not stored.
    Points that violate a constraint are ignored.
    """

    reference_point: Pair
    front: float
    oracle: float | None

    @property
    def share(self) -> float | None:
        """``front`` divided by ``oracle``, or None if ``oracle`` is unknown or 0."""
        return self.front / self.oracle if self.oracle else None


@dataclass(frozen=True)
class TrialSummary:
    """A trial with its rungs, sorted by step, and its best points on dev.

    Points are ranked by the objective; those that violate a constraint come last.
    """

    trial: Trial
    rungs: tuple[Rung, ...]
    best_points: tuple[Point, ...]  # best point of each rung
    objectives: tuple[float, ...]  # objectives of ``best_points``
    best: Point | None = None  # None before the first rung
    objective: float = 0.0  # objective of ``best``
    is_feasible: bool = False  # whether ``best`` meets the constraints


@dataclass(frozen=True)
class Summary:
    """The data for a report's tables, figures and pages."""

    results: Results
    front: Front
    trials: tuple[TrialSummary, ...]
    references: Mapping[ScoredSplit, Point]
    objectives_by_split: Mapping[ScoredSplit, Objective]  # splits with stored reference scores
    oracles: Mapping[ScoredSplit, tuple[Point, ...]]  # sorted by increasing bonus
    areas: Mapping[ScoredSplit, Area]
    baselines: tuple[Baseline, ...]
    probes: Mapping[ScoredSplit, ProbeComparison]  # splits on which both probe and front are scored
    account: Account
    bill: Bill
    labeled_front: Front  # front of the points that use the pool's labels
    labeled_areas: Mapping[ScoredSplit, Area]
    # per-query scores
    scores: Mapping[ScoredSplit, QueryScores] = field(
        default_factory=dict, repr=False, compare=False
    )
    # error messages, keyed by the missing result
    damage: Mapping[str, str] = field(default_factory=dict)

    @property
    def members(self) -> tuple[Member, ...]:
        """The members of the front, sorted by decreasing S on dev."""
        return self.front.members

    @property
    def labeled(self) -> tuple[Member, ...]:
        return self.labeled_front.members

    @property
    def guards(self) -> list[str]:
        """The names of the guards on which any member is scored."""
        return sorted({name for member in self.members for name in member.guards})

    @cached_property
    def certainty(self) -> Certainty:
        """Statistics computed from the per-query scores, which takes several seconds for a large run."""
        if not self.members or not self.scores:
            return NOTHING
        return certainty_of(self.results, self.front, self.objectives_by_split, self.scores)

    @property
    def uncertainty(self) -> Mapping[ScoredSplit, FrontUncertainty]:
        """The front's intervals on each split; empty if per-query scores are not stored."""
        return self.certainty.fronts

    def intervals_of(self, point: Point) -> Mapping[str, Interval] | None:
        """Return a point's intervals, keyed by score name, or None if its per-query scores are not stored."""
        front = self.uncertainty.get(point.split)
        intervals = None if front is None else front.of(name_of_point(point))
        return None if intervals is None else intervals.named(self.goals)

    @property
    def goals(self) -> Goals:
        """The scores used as P and S."""
        return self.results.info.goals

    @cached_property
    def score_names(self) -> tuple[str, ...]:
        """The scores shown in tables: the goals, the standard scores (labeled data only) and the members' other scores."""
        names = [*self.goals, *(() if self.results.info.is_related else STANDARD)]
        for member in self.members:
            names += member.dev.scores
        return tuple(dict.fromkeys(names))

    @property
    def splits(self) -> tuple[ScoredSplit, ...]:
        """The splits on which at least one member is scored."""
        return SPLITS if any(member.test for member in self.members) else ("dev",)

    @property
    def complete_splits(self) -> tuple[ScoredSplit, ...]:
        """The splits on which all members are scored."""
        return SPLITS if self.front.on("test") else ("dev",)


def missing_intervals(split: ScoredSplit) -> str:
    """Return the key in :attr:`Summary.damage` for damaged scores on a split."""
    return f"intervals on {split}"


def summary_of(run: Folder, results: Results | None = None) -> Summary:
    """Summarize a run, with intervals if per-query scores are stored.

    Damaged per-query scores are skipped and listed in ``damage``.

    Raises:
        InputError: If the ledger is damaged.
    """
    results = load_with_driver(run) if results is None else results
    scores, damage = load_readable_scores(run, results)
    missing = {missing_intervals(split): why for split, why in damage.items()}
    return replace(summarize(results), scores=scores, damage=missing)


def summarize(results: Results) -> Summary:
    """Summarize results without intervals.

    References, oracles and baselines that lack P or S are left out.
    """
    goals = results.info.goals
    scored = [point for point in results.points if point.has(goals)]
    references = {point.split: point for point in scored if point.kind == "reference"}
    oracles = {}
    for split in SPLITS:
        points = [point for point in scored if point.kind == "oracle" and point.split == split]
        oracles[split] = tuple(sorted(points, key=lambda point: point.value or 0.0))
    criterion = Criterion.of(results.info, references)
    front = front_of(results, results.points, criterion)
    labeled_front = front_of(results, results.labeled, criterion)
    baselines = baselines_of(scored)
    return Summary(
        results=results,
        front=front,
        trials=_trials(results, criterion),
        references=references,
        objectives_by_split=criterion.objectives_by_split,
        oracles=oracles,
        areas=_areas(front, oracles, criterion),
        baselines=baselines,
        probes=_probes(baselines, front, criterion),
        account=build_account(results),
        bill=build_bill(results),
        labeled_front=labeled_front,
        labeled_areas=_areas(labeled_front, oracles, criterion),
    )


def _areas(
    front: Front, oracles: Mapping[ScoredSplit, Sequence[Point]], criterion: Criterion
) -> dict[ScoredSplit, Area]:
    areas = {}
    for split, objective in criterion.objectives_by_split.items():
        if not front.on(split):
            continue
        limit = [point.pair(objective.goals) for point in oracles[split]]
        minima = objective.min_polarity, objective.min_similarity
        areas[split] = Area(
            reference_point=objective.reference_point,
            front=_hypervolume(front.feasible_on(split), objective),
            oracle=hull_area(limit, objective.reference_point, minima) if limit else None,
        )
    return areas


def _probes(
    baselines: Sequence[Baseline], front: Front, criterion: Criterion
) -> dict[ScoredSplit, ProbeComparison]:
    """Compare the front with the probe on each split. The probe's best point is selected on dev."""
    probes = [
        baseline.points
        for baseline in baselines
        if baseline.kind == "probe" and "dev" in baseline.points
    ]
    if not probes:
        return {}
    best = max(probes, key=lambda points: criterion.rank(points["dev"]))
    comparisons = {}
    for split, objective in criterion.objectives_by_split.items():
        front_points = front.on(split)
        if not front_points or split not in best:
            continue
        points = [probe[split] for probe in probes if split in probe]
        feasible = [point for point in points if criterion.is_feasible(point)]
        area = _hypervolume(feasible, objective)
        comparisons[split] = compare(points, best[split], front_points, criterion.info, area)
    return comparisons


def _hypervolume(points: Sequence[Point], objective: Objective) -> float:
    scores = [point.pair(objective.goals) for point in points]
    return hypervolume(scores, objective.reference_point)


def _trials(results: Results, criterion: Criterion) -> tuple[TrialSummary, ...]:
    points_by_rung = defaultdict(list)  # on dev, keyed by trial and step
    for point in results.points:
        if point.split == "dev" and point.trial is not None and point.step is not None:
            points_by_rung[point.trial, point.step].append(point)
    best_points = {}
    for name, points_of_rung in points_by_rung.items():
        best_points[name] = max(points_of_rung, key=criterion.rank)
    # keyed by trial and step; later records replace earlier ones
    rungs_by_trial: dict[int, dict[int, Rung]] = defaultdict(dict)
    for rung in results.rungs:
        if (rung.trial, rung.step) in best_points:
            rungs_by_trial[rung.trial][rung.step] = rung
    summaries = []
    for trial in sorted(results.trials, key=lambda trial: trial.trial):
        by_step = rungs_by_trial[trial.trial]
        rungs = [by_step[step] for step in sorted(by_step)]
        points = [best_points[trial.trial, rung.step] for rung in rungs]
        summaries.append(_trial_summary(trial, rungs, points, criterion))
    return tuple(summaries)


def _trial_summary(
    trial: Trial, rungs: Sequence[Rung], best_points: Sequence[Point], criterion: Criterion
) -> TrialSummary:
    objectives = [criterion.info.objective(point) for point in best_points]
    summary = TrialSummary(trial, tuple(rungs), tuple(best_points), tuple(objectives))
    if not best_points:
        return summary
    best = max(best_points, key=criterion.rank)
    return replace(
        summary,
        best=best,
        objective=criterion.info.objective(best),
        is_feasible=criterion.is_feasible(best),
    )
