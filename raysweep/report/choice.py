"""Selection of a run's points by their scores on dev: by conditions, as the best by a score, or as the knee."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from raysweep.errors import InputError
from raysweep.metrics.objective import Objective
from raysweep.metrics.pareto import knee, non_dominated
from raysweep.report.conditions import Condition, Fields, read_conditions, why_none
from raysweep.report.summary import Member, Summary
from raysweep.results.types import GuardScore, Point, ScoredSplit

BY = ("objective", "polarity", "similarity", "retention", "accuracy")


@dataclass(frozen=True)
class Candidate:
    """An operating point that can be chosen, with its scores on dev, and on test if it was scored there.

    ``marks`` are ``knee`` and ``best`` of the run's front. Only members of the front can be exported.
    """

    dev: Point
    test: Point | None
    config: Mapping[str, Any]
    objective: float
    is_feasible: bool
    is_member: bool
    marks: tuple[str, ...] = ()
    guards: Mapping[str, GuardScore] = field(default_factory=dict)  # by name, if measured

    def on(self, split: ScoredSplit) -> Point | None:
        return self.dev if split == "dev" else self.test

    @cached_property
    def fields(self) -> Fields:
        """The fields available to conditions, by name, with scores on dev. Other fields shadow guards of the same name."""
        guards = {name: measured.score for name, measured in self.guards.items()}
        return {**guards, **self.own_fields}

    @cached_property
    def own_fields(self) -> Fields:
        """The fields that every point has, and its configuration."""
        point = self.dev
        return {
            "polarity": point.polarity,
            "similarity": point.similarity,
            "retention": point.retention,
            "accuracy": point.accuracy,
            "objective": self.objective,
            "width": point.width,
            "trial": point.trial,
            "step": point.step,
            "kind": point.kind,
            "value": point.value,
            **self.config,
        }


@dataclass(frozen=True)
class Wanted:
    """A selection: the points that meet all ``conditions``, then the first ``top`` ``by`` a score, or their ``knee``.

    If both ``by`` and ``top`` are None, all of them are selected. With ``everything``, all operating points are
    considered instead of only the front's members.
    """

    conditions: Sequence[str] = ()
    by: str | None = None
    top: int | None = None
    knee: bool = False
    everything: bool = False


@dataclass(frozen=True)
class Chosen:
    """The chosen points, best first, or the front by decreasing similarity. ``why_none`` explains an empty choice."""

    candidates: tuple[Candidate, ...]
    why_none: str = ""


def choose(summary: Summary, wanted: Wanted) -> Chosen:
    """Return the points that match the selection.

    Raises:
        InputError: If the run has no points, if the selection is contradictory, or if no point has the score.
    """
    if wanted.knee and (wanted.by or wanted.top):
        raise InputError("--knee is one point; it goes without --best and --top")
    candidates = candidates_of(summary, everything=wanted.everything)
    conditions = _conditions(summary, wanted, candidates)
    meeting = [each for each in candidates if all(condition.is_met(each.fields) for condition in conditions)]
    if not meeting:
        return Chosen((), _why_none(summary, wanted, candidates))
    if wanted.knee:
        return Chosen((_knee(meeting),))
    if wanted.by is None and wanted.top is None:
        return Chosen(tuple(meeting))
    by = wanted.by or "objective"
    scored = [each for each in meeting if each.fields[by] is not None]
    ranked = sorted(scored, key=lambda each: _rank(each, by))
    if not ranked:
        raise InputError(f"--best {by}: no point has it")
    return Chosen(tuple(ranked[: wanted.top or 1]))


def _conditions(summary: Summary, wanted: Wanted, candidates: Sequence[Candidate]) -> list[Condition]:
    taken = {name for each in candidates for name in each.own_fields}
    measured = {score.guard for score in summary.results.guards}
    guards = (measured | set(summary.results.info.guards)) - taken
    parameters = dict.fromkeys(name for trial in summary.results.trials for name in trial.config)
    return read_conditions(wanted.conditions, [each.fields for each in candidates], guards, parameters)


def _rank(candidate: Candidate, by: str) -> tuple[bool, float, float]:
    """Return a sort key: points that meet the constraints first, then by decreasing score, then by objective."""
    return not candidate.is_feasible, -candidate.fields[by], -candidate.objective


def _knee(candidates: Sequence[Candidate]) -> Candidate:
    """Return the knee of the front of these points. Points that miss a constraint only count if all do."""
    eligible = [each for each in candidates if each.is_feasible] or candidates
    scores = [(each.dev.polarity, each.dev.similarity) for each in eligible]
    front = non_dominated(scores)
    return eligible[front[knee([scores[index] for index in front])]]


def _is_feasible(point: Point, objective: Objective | None) -> bool:
    """Return whether a point outside the front meets the constraints, as far as they are known; it has no guard scores."""
    return objective is None or not objective.violation((point.polarity, point.similarity))


def candidates_of(summary: Summary, *, everything: bool) -> list[Candidate]:
    """Return the front's members by decreasing similarity, or all operating points by decreasing objective.

    Raises:
        InputError: If no trial finished a rung.
    """
    results = summary.results
    members = {_encoder(member.dev): member for member in summary.members}
    if not members:
        raise InputError(f"{results.folder}: {_why_empty(summary)}, so there is nothing to choose from")
    configs = {trial.trial: trial.config for trial in results.trials}
    points = {name: member.dev for name, member in members.items()}
    if everything:
        points = _points_by_encoder(summary, "dev")
    on_test = _points_by_encoder(summary, "test")
    objective = summary.objectives_by_split.get("dev")
    found = []
    for name, point in points.items():
        member = members.get(name)
        candidate = Candidate(
            dev=point,
            test=on_test.get(name),
            config=configs[point.trial or 0],
            objective=results.info.objective(point),
            is_feasible=_is_feasible(point, objective) if member is None else member.is_feasible,
            is_member=member is not None,
            marks=() if member is None else tuple(_marks(member)),
            guards={} if member is None else member.guards,
        )
        found.append(candidate)
    return sorted(found, key=lambda each: _rank(each, "objective")) if everything else found


def _marks(member: Member) -> Iterator[str]:
    if member.is_knee:
        yield "knee"
    if member.is_best:
        yield "best"


def _points_by_encoder(summary: Summary, split: ScoredSplit) -> dict[tuple[Any, ...], Point]:
    """Return the trials' points on a split. If a resume repeated a rung, its last scores count."""
    points = [point for point in summary.results.points if point.split == split and point.trial is not None]
    return {_encoder(point): point for point in points}


def _encoder(point: Point) -> tuple[Any, ...]:
    return point.trial, point.step, *point.key


def _why_empty(summary: Summary) -> str:
    trials = summary.results.trials
    if not trials:
        return "no trial has begun"
    num_failed = sum(trial.status == "failed" for trial in trials)
    failed = f" ({num_failed} of {len(trials)} failed)" if num_failed else ""
    return f"no trial finished a rung{failed}"


def _why_none(summary: Summary, wanted: Wanted, candidates: Sequence[Candidate]) -> str:
    """Return how many points meet each condition, and whether points outside the front meet them all."""
    fields = [each.fields for each in candidates]
    conditions = _conditions(summary, wanted, candidates)
    which = "of all operating points" if wanted.everything else "of the front"
    reason = f"no point {which} meets what was asked: {why_none(conditions, fields)}"
    if wanted.everything:
        return reason
    others = [each.fields for each in candidates_of(summary, everything=True)]
    num_others = sum(all(condition.is_met(each) for condition in conditions) for each in others)
    return f"{reason}; --all finds {num_others} that are not on the front" if num_others else reason
