"""The summary of a run's stored results: the front, its knee, best point and size, and the outcome of each trial."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from raysweep.metrics.hull import hull_area
from raysweep.metrics.objective import Objective, Pair
from raysweep.metrics.pareto import hypervolume, knee
from raysweep.report.baselines import Baseline, ProbeComparison, baselines_of, compare
from raysweep.report.certainty import NOTHING, Certainty, FrontNames, certainty_of
from raysweep.results.account import Account, account_of
from raysweep.results.bill import Bill, bill_of
from raysweep.results.query_scores import QueryScores, load_readable_scores, name_of_point
from raysweep.results.reader import load_with_driver
from raysweep.results.types import GuardScore, Point, Results, Rung, RunInfo, ScoredSplit, Trial
from raysweep.results.views import front_members
from raysweep.storage.folder import Folder
from raysweep.uncertainty.front import FrontUncertainty
from raysweep.uncertainty.interval import ScoreIntervals

SPLITS: tuple[ScoredSplit, ...] = ("dev", "test")


@dataclass(frozen=True)
class Member:
    """One point of the front, which is chosen on dev, and its scores on test if they were read."""

    dev: Point
    test: Point | None
    is_knee: bool
    is_best: bool  # under the objective
    is_feasible: bool  # meets the constraints on dev and the measured guards
    guards: Mapping[str, GuardScore] = field(default_factory=dict)  # by name

    def on(self, split: ScoredSplit) -> Point | None:
        return self.dev if split == "dev" else self.test


@dataclass(frozen=True)
class Area:
    """Hypervolumes on one split above ``reference_point``, for scores in [0, 1]; ``oracle`` is None if it is not stored.

    The oracle's hypervolume is that of its concave hull, which includes the chords between its points. Points that miss
    a constraint do not count, as in the sweep itself.
    """

    reference_point: Pair
    front: float
    oracle: float | None

    @property
    def share(self) -> float | None:
        """The front's share of the oracle's hypervolume, or None if that is unknown or 0."""
        return self.front / self.oracle if self.oracle else None


@dataclass(frozen=True)
class TrialSummary:
    """A trial with its rungs by increasing step, and its best dev point under the objective (None without a rung).

    A point that meets the constraints ranks above any that does not.
    """

    trial: Trial
    rungs: tuple[Rung, ...]
    objectives: tuple[float, ...]  # of each rung's best point
    best: Point | None
    best_points: tuple[Point, ...] = ()  # of each rung
    objective: float = 0.0  # of ``best``
    is_feasible: bool = False  # of ``best``


@dataclass(frozen=True)
class Summary:
    """The data behind a report's tables, figures and pages."""

    results: Results
    members: tuple[Member, ...]  # by decreasing similarity on dev
    trials: tuple[TrialSummary, ...]
    references: Mapping[ScoredSplit, Point]
    objectives_by_split: Mapping[ScoredSplit, Objective]  # if the reference's scores are stored
    oracles: Mapping[ScoredSplit, tuple[Point, ...]]  # by increasing bonus
    areas: Mapping[ScoredSplit, Area]
    baselines: tuple[Baseline, ...]
    probes: Mapping[ScoredSplit, ProbeComparison]  # splits on which probe and front are scored
    account: Account
    bill: Bill
    labeled: tuple[Member, ...] = ()  # a separate front of points that use the pool's labels
    labeled_areas: Mapping[ScoredSplit, Area] = field(default_factory=dict)
    scores: Mapping[ScoredSplit, QueryScores] = field(default_factory=dict, repr=False, compare=False)  # per query
    damage: Mapping[str, str] = field(default_factory=dict)  # by missing result: the file and its damage

    @cached_property
    def certainty(self) -> Certainty:
        """The statistics from per-query scores, if there are any. This takes seconds for a large run."""
        if not self.members or not self.scores:
            return NOTHING
        front = FrontNames(
            on={split: [name_of_point(point) for point in self.front_on(split)] for split in SPLITS},
            feasible=frozenset(name_of_point(member.dev) for member in self.members if member.is_feasible),
            knee=next(name_of_point(member.dev) for member in self.members if member.is_knee),
        )
        return certainty_of(self.results, front, self.objectives_by_split, self.scores)

    @property
    def uncertainty(self) -> Mapping[ScoredSplit, FrontUncertainty]:
        """Intervals of the front on each split; empty if per-query scores are not stored."""
        return self.certainty.fronts

    def intervals_of(self, point: Point) -> ScoreIntervals | None:
        """Return the intervals of a point's scores on its split, or None if per-query scores are not stored."""
        front = self.uncertainty.get(point.split)
        return None if front is None else front.of(name_of_point(point))

    def front_on(self, split: ScoredSplit) -> list[Point]:
        """Return the members' points on a split, see :func:`front_on`."""
        return front_on(self.members, split)

    def why_partial(self, split: ScoredSplit) -> str:
        """Return how many members are scored on a split if some are missing; empty if all or none are scored."""
        return why_partial(self.members, split)

    @property
    def splits(self) -> tuple[ScoredSplit, ...]:
        """The splits on which at least one member is scored."""
        return SPLITS if any(member.test for member in self.members) else ("dev",)

    @property
    def complete_splits(self) -> tuple[ScoredSplit, ...]:
        """The splits on which all members are scored."""
        return SPLITS if self.front_on("test") else ("dev",)


def front_on(members: Sequence[Member], split: ScoredSplit) -> list[Point]:
    """Return the points of a front on a split; empty unless all its members are scored there.

    The hypervolume, intervals and dominations of a partial front would be misleading.
    """
    points = [point for member in members if (point := member.on(split))]
    return points if len(points) == len(members) else []


def why_partial(members: Sequence[Member], split: ScoredSplit) -> str:
    """Return how many members of a front are scored on a split if some are missing; empty if all or none are scored."""
    num_scored = sum(member.on(split) is not None for member in members)
    if num_scored in (0, len(members)):
        return ""
    return f"only {num_scored} of {len(members)} front members {'is' if num_scored == 1 else 'are'} scored on {split}"


def missing_intervals(split: ScoredSplit) -> str:
    """Return the key of :attr:`Summary.damage` for damaged scores on a split."""
    return f"intervals on {split}"


def summary_of(run: Folder, results: Results | None = None) -> Summary:
    """Summarize the run in a folder, with intervals if per-query scores are stored; ``results`` are the run's, if given.

    Damaged per-query scores are left out and listed in ``damage``.

    Raises:
        InputError: If the ledger is damaged.
    """
    results = load_with_driver(run) if results is None else results
    scores, damage = load_readable_scores(run, results)
    missing = {missing_intervals(split): why for split, why in damage.items()}
    return replace(summarize(results), scores=scores, damage=missing)


def summarize(results: Results) -> Summary:
    """Summarize results without intervals. The front is selected on dev; test only measures it."""
    references = {point.split: point for point in results.points if point.kind == "reference"}
    oracles = {split: _oracle(results.points, split) for split in SPLITS}
    criterion = _Criterion.of(results.info, references)
    members = _members(results, results.points, criterion)
    labeled = _members(results, results.labeled, criterion)
    baselines = baselines_of(results.points)
    return Summary(
        results=results,
        members=members,
        trials=_trials(results, criterion),
        references=references,
        objectives_by_split=criterion.objectives_by_split,
        oracles=oracles,
        areas=_areas(members, oracles, criterion),
        baselines=baselines,
        probes=_probes(baselines, members, criterion),
        account=account_of(results),
        bill=bill_of(results),
        labeled=labeled,
        labeled_areas=_areas(labeled, oracles, criterion),
    )


@dataclass(frozen=True)
class _Criterion:
    """The sweep's order of points: by how much they miss the constraints, then by the objective."""

    info: RunInfo
    objectives_by_split: Mapping[ScoredSplit, Objective]

    @classmethod
    def of(cls, info: RunInfo, references: Mapping[ScoredSplit, Point]) -> "_Criterion":
        def objective(reference: Point) -> Objective:
            return Objective.of(info.polarity_weight, info.similarity, info.constraints, _pair(reference))

        return cls(info, {split: objective(reference) for split, reference in references.items()})

    def violation(self, point: Point) -> float:
        """Return by how much a point misses the constraints; 0 if that is unknown because the reference has no scores."""
        if not self.info.constraints or point.split not in self.objectives_by_split:
            return 0.0
        return self.objectives_by_split[point.split].violation(_pair(point))

    def is_feasible(self, point: Point) -> bool:
        return self.violation(point) == 0

    def rank(self, point: Point) -> tuple[float, float]:
        """Return a sort key; better points have greater keys."""
        return -self.violation(point), self.info.objective(point)


def _pair(point: Point) -> Pair:
    return point.polarity, point.similarity


def _oracle(points: Iterable[Point], split: ScoredSplit) -> tuple[Point, ...]:
    found = [point for point in points if point.kind == "oracle" and point.split == split]
    return tuple(sorted(found, key=lambda point: point.value or 0.0))


def _members(results: Results, points: Sequence[Point], criterion: _Criterion) -> tuple[Member, ...]:
    """Return the front of these points of the run."""
    front = front_members(points)
    if not front:
        return ()
    guards = _guards_by_encoder(results.guards)

    def is_guarded(point: Point) -> bool:
        return all(score.is_met for score in guards[_encoder(point)].values())

    def is_feasible(point: Point) -> bool:
        return is_guarded(point) and criterion.is_feasible(point)

    # Weights are not negative and retention is S over a constant, so one of the best points is on the front. The same
    # holds among points that meet the constraints: a point that dominates one does too. Guards are only measured there.
    best = max(front, key=lambda point: (is_guarded(point), criterion.rank(point)))
    eligible = [point for point in front if is_feasible(point)] or front
    balanced = eligible[knee([_pair(point) for point in eligible])]
    on_test = _on_test(points)
    members = []
    for point in front:
        encoder = _encoder(point)
        member = Member(
            dev=point,
            test=on_test.get(encoder),
            is_knee=point is balanced,
            is_best=point is best,
            is_feasible=is_feasible(point),
            guards=guards[encoder],
        )
        members.append(member)
    return tuple(members)


def _on_test(points: Iterable[Point]) -> dict[tuple[object, ...], Point]:
    """Return the trials' points on test by encoder."""
    of_trials = [point for point in points if point.trial is not None]
    return {_encoder(point): point for point in of_trials if point.split == "test"}


def _guards_by_encoder(scores: Iterable[GuardScore]) -> Mapping[tuple[object, ...], dict[str, GuardScore]]:
    """Return the guard scores by encoder and name; an encoder that was not measured has none."""
    guards: dict[tuple[object, ...], dict[str, GuardScore]] = defaultdict(dict)
    for score in scores:
        encoder = (score.trial, score.step, score.kind, score.value)
        guards[encoder][score.guard] = score
    return guards


def _encoder(point: Point) -> tuple[object, ...]:
    """Return the identity of the point's encoder, which the points on dev and test share."""
    return point.trial, point.step, point.kind, point.value


def _areas(
    members: Sequence[Member], oracles: Mapping[ScoredSplit, Sequence[Point]], criterion: _Criterion
) -> dict[ScoredSplit, Area]:
    areas = {}
    for split, objective in criterion.objectives_by_split.items():
        points = front_on(members, split)
        if not points:
            continue
        front = [point for member, point in zip(members, points, strict=True) if member.is_feasible]
        oracle = oracles[split]
        areas[split] = Area(
            reference_point=objective.reference_point,
            front=_hypervolume(front, objective),
            oracle=_limit(oracle, objective) if oracle else None,
        )
    return areas


def _limit(oracle: Iterable[Point], objective: Objective) -> float:
    """Return the hypervolume of the part of the oracle's concave hull that meets the constraints."""
    least = objective.min_polarity, objective.min_similarity
    return hull_area([_pair(point) for point in oracle], objective.reference_point, least)


def _probes(
    baselines: Sequence[Baseline], members: Sequence[Member], criterion: _Criterion
) -> dict[ScoredSplit, ProbeComparison]:
    """Compare the front with the probe on each split. The probe's best point is chosen on dev, like the front."""
    probes = [each.points for each in baselines if each.kind == "probe" and "dev" in each.points]
    if not probes:
        return {}
    best = max(probes, key=lambda points: criterion.rank(points["dev"]))
    comparisons = {}
    for split, objective in criterion.objectives_by_split.items():
        front = front_on(members, split)
        if not front or split not in best:
            continue
        points = [probe[split] for probe in probes if split in probe]
        feasible = filter(criterion.is_feasible, points)
        area = _hypervolume(feasible, objective)
        comparisons[split] = compare(points, best[split], front, criterion.info.objective, area)
    return comparisons


def _hypervolume(points: Iterable[Point], objective: Objective) -> float:
    return hypervolume([_pair(point) for point in points], objective.reference_point)


def _trials(results: Results, criterion: _Criterion) -> tuple[TrialSummary, ...]:
    best_points = _best_point_by_rung(results.points, criterion)
    rungs_by_trial: dict[int, dict[int, Rung]] = defaultdict(dict)  # and by step; a rung's last record counts
    for rung in results.rungs:
        if (rung.trial, rung.step) in best_points:
            rungs_by_trial[rung.trial][rung.step] = rung
    summaries = []
    for trial in sorted(results.trials, key=lambda trial: trial.trial):
        by_step = rungs_by_trial[trial.trial]
        steps = sorted(by_step)
        rungs = tuple(by_step[step] for step in steps)
        points = [best_points[trial.trial, step] for step in steps]
        summary = _trial_summary(trial, rungs, points, criterion)
        summaries.append(summary)
    return tuple(summaries)


def _best_point_by_rung(points: Iterable[Point], criterion: _Criterion) -> dict[tuple[int, int], Point]:
    """Return the best dev point of each (trial, step)."""
    points_by_rung: dict[tuple[int, int], list[Point]] = defaultdict(list)
    for point in points:
        if point.split == "dev" and point.trial is not None and point.step is not None:
            points_by_rung[point.trial, point.step].append(point)
    return {rung: max(candidates, key=criterion.rank) for rung, candidates in points_by_rung.items()}


def _trial_summary(
    trial: Trial, rungs: tuple[Rung, ...], points: Sequence[Point], criterion: _Criterion
) -> TrialSummary:
    """Summarize a trial, given the best point of each rung."""
    if not points:
        return TrialSummary(trial, rungs=(), objectives=(), best=None)
    best = max(points, key=criterion.rank)
    return TrialSummary(
        trial=trial,
        rungs=rungs,
        objectives=tuple(criterion.info.objective(point) for point in points),
        best=best,
        best_points=tuple(points),
        objective=criterion.info.objective(best),
        is_feasible=criterion.is_feasible(best),
    )
