"""Select operating points of a run by their dev scores."""

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from raysweep.errors import InputError, did_you_mean
from raysweep.metrics.pareto import knee, non_dominated
from raysweep.metrics.scores import SCORES, STANDARD
from raysweep.report.axes import is_number
from raysweep.report.front import Member
from raysweep.report.notes import why_no_intervals
from raysweep.report.summary import Summary
from raysweep.report.tables import short
from raysweep.results.commands import format_command
from raysweep.results.query_scores import PointName, name_of_point
from raysweep.results.types import GuardScore, Point, Results, ScoredSplit, key_name
from raysweep.uncertainty.interval import LEVEL

Fields = Mapping[str, Any]  # a point's scores, identity and configuration, keyed by name

_CONDITION = re.compile(r"\s*(\w[\w.-]*)\s*(>=|<=|!=|==|=|>|<)\s*([^\s<>=!].*?)\s*")

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")

_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}

_ABSENT = ("none", "null")

_SYMBOLS = {spec.symbol: name for name, spec in SCORES.items() if spec.symbol}  # P and S

_MAX_WORDS = 20  # maximum number of strings listed in a message


def ranking_scores() -> tuple[str, ...]:
    """Return the scores that points can be ranked by."""
    return ("objective", *(name for name, spec in SCORES.items() if spec.is_maximized))


def score_named(name: str) -> str:
    """Return the name of the score with a symbol such as P; return other names unchanged."""
    return _SYMBOLS.get(name, name)


@dataclass(frozen=True)
class Condition:
    """A comparison of a point's field ``name`` with the value ``text``.

    A missing field equals ``none`` and ``null``. It never satisfies ``<``, ``<=``, ``>`` or ``>=``.
    """

    name: str
    sign: str
    text: str

    def __str__(self) -> str:
        return f"{self.name} {self.sign} {self.text}"

    @property
    def is_order(self) -> bool:
        """Whether ``sign`` is ``<``, ``<=``, ``>`` or ``>=``."""
        return self.sign in _ORDERS

    def is_met(self, fields: Fields) -> bool:
        value = fields.get(self.name)
        if self.is_order:
            return is_number(value) and _ORDERS[self.sign](value, float(self.text))
        return self._equals(value) != (self.sign == "!=")

    def _equals(self, value: Any) -> bool:
        lower_text = self.text.lower()
        if value is None:
            return lower_text in _ABSENT
        if isinstance(value, bool):
            return lower_text == str(value).lower()
        if not is_number(value):
            return bool(self.text == value)
        if _NUMBER.fullmatch(self.text) is None:
            return False
        number = float(self.text)
        rounded_value = float(short(value))  # rounded as in tables
        return number == rounded_value or math.isclose(number, value)


def read_conditions(
    texts: Iterable[str],
    points: Collection[Fields],
    guards: Collection[str] = (),
    parameters: Iterable[str] = (),
) -> list[Condition]:
    """Parse conditions on the fields of ``points``.

    Guards and parameters are valid fields even if no point has them.

    Raises:
        InputError: If a condition is invalid; the message names the allowed values.
    """
    of_points = [name for fields in points for name in fields if name not in guards]
    names = [*dict.fromkeys([*of_points, *parameters]), *sorted(guards)]
    scores = {*ranking_scores(), *guards}
    return [_read_condition(text, points, names, scores) for text in texts]


def _read_condition(
    text: str, points: Collection[Fields], names: Sequence[str], scores: Collection[str]
) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None or (_NUMBER.fullmatch(match[1]) and match[1] not in names):
        raise InputError(
            f"--where is {text!r}; allowed: NAME, one of >= > <= < = !=, and a value, such as 'polarity >= 0.85'"
        )
    name, sign, value = match.groups()
    if sign == "==":
        sign = "="
    if name not in names:
        name = score_named(name)
    if name not in names:
        hint = did_you_mean(name, names)
        raise InputError(f"--where {text!r}: {name} is unknown{hint}; allowed: {', '.join(names)}")
    values = [fields.get(name) for fields in points]
    is_score = name in scores
    if is_score and _NUMBER.fullmatch(value) is not None:
        number = float(value)
        if 1 < number <= 100:  # x100, as in tables
            value = str(number / 100)
    condition = Condition(name, sign, value)
    is_absence = value.lower() in _ABSENT
    if condition.is_order or (is_score and not is_absence):
        _check_number(condition, values, is_score=is_score)
    return condition


def _check_number(condition: Condition, values: Iterable[Any], *, is_score: bool) -> None:
    """Raise ``InputError`` unless the field is numeric and the condition's value is a valid number."""
    place = f"--where '{condition}'"
    name, text = condition.name, condition.text
    words = _words(values)
    if words:
        raise InputError(
            f"{place}: {name} is text, so only = and != apply; allowed: {', '.join(words)}"
        )
    if _NUMBER.fullmatch(text) is None:
        hint = "; use a separate --where for each condition" if " " in text else ""
        raise InputError(f"{place}: the value is {text!r}; allowed: a number{hint}")
    number = float(text)
    minimum = SCORES[name].minimum if name in SCORES else -1.0
    if is_score and not minimum <= number <= 1:
        raise InputError(f"{place}: {name} is {text}; allowed: [{minimum:g}, 1], or x100 up to 100")


def _words(values: Iterable[Any]) -> list[str]:
    words = {value for value in values if isinstance(value, str)}
    return sorted(words)[:_MAX_WORDS]


def why_none(conditions: Iterable[Condition], points: Collection[Fields]) -> str:
    """Explain why no point meets all conditions."""
    reasons = []
    for condition in conditions:
        name = condition.name
        num_meeting = sum(condition.is_met(fields) for fields in points)
        values = [fields.get(name) for fields in points]
        numbers = [value for value in values if is_number(value)]
        content = "is missing"
        if numbers:
            content = f"ranges from {min(numbers):.4g} to {max(numbers):.4g}"
        elif words := _words(values):
            content = f"is {' or '.join(words)}"
        reasons.append(
            f"{condition} is met by {num_meeting} of {len(points)} points ({name} {content})"
        )
    return "; ".join(reasons)


@dataclass(frozen=True)
class Candidate:
    """An operating point that :func:`choose` can select.

    ``member`` is None if the point is not on the front. Only front members can be exported.
    """

    dev: Point
    test: Point | None
    config: Mapping[str, Any]
    objective: float
    is_feasible: bool
    member: Member | None

    @property
    def is_knee(self) -> bool:
        return self.member is not None and self.member.is_knee

    @property
    def is_best(self) -> bool:
        return self.member is not None and self.member.is_best

    @property
    def guards(self) -> Mapping[str, GuardScore]:
        """The scores by guard; empty if the point is not on the front."""
        return {} if self.member is None else self.member.guards

    def on(self, split: ScoredSplit) -> Point | None:
        return self.dev if split == "dev" else self.test

    def meets(self, conditions: Iterable[Condition]) -> bool:
        return all(condition.is_met(self.fields) for condition in conditions)

    @cached_property
    def fields(self) -> Fields:
        """The fields that conditions can use. A guard never shadows another field."""
        guards = {name: measured.score for name, measured in self.guards.items()}
        return {**guards, **self.own_fields}

    @cached_property
    def own_fields(self) -> Fields:
        """The point's dev scores, identity and configuration."""
        point = self.dev
        return {
            **_scores(point),
            "objective": self.objective,
            "width": point.width,
            "encoders": point.num_encoders,
            "trial": point.trial,
            "step": point.step,
            "kind": point.kind,
            "value": point.value,
            **self.config,
        }


@dataclass(frozen=True)
class Selection:
    """The criteria for :func:`choose`.

    Among the points that meet all ``conditions``, select the ``top`` points by the score ``by``
    (a name or symbol), or the ``knee``. If none of these is set, select all of the points.
    ``everything`` includes points that are not on the front.
    """

    conditions: Sequence[str] = ()
    by: str | None = None
    top: int | None = None
    knee: bool = False
    everything: bool = False


@dataclass(frozen=True)
class Chosen:
    """The chosen points, or the reason ``why_none`` if there are none."""

    candidates: tuple[Candidate, ...]
    why_none: str = ""


def choose(
    summary: Summary, selection: Selection, is_eligible: Callable[[Point], bool] = lambda _: True
) -> Chosen:
    """Return the eligible points that match the selection; those selected by a score are best first.

    Raises:
        InputError: If the run has no points, the selection is invalid, or no point has the score.
    """
    if selection.by is not None and score_named(selection.by) not in ranking_scores():
        raise InputError(f"--best is {selection.by!r}; allowed: {', '.join(ranking_scores())}")
    if selection.top is not None and selection.top < 1:
        raise InputError(f"--top is {selection.top}; allowed: a whole number above 0")
    if selection.knee and (selection.by or selection.top):
        raise InputError("--knee selects one point; it cannot be combined with --best or --top")
    all_candidates = candidates_of(summary, everything=selection.everything)
    candidates = [candidate for candidate in all_candidates if is_eligible(candidate.dev)]
    conditions = _conditions_on(candidates, selection.conditions, summary.results)
    meeting = [candidate for candidate in candidates if candidate.meets(conditions)]
    if not meeting:
        return Chosen((), _why_none(summary, selection, conditions, candidates))
    if selection.knee:
        eligible = [candidate for candidate in meeting if candidate.is_feasible] or meeting
        scores = [candidate.dev.pair(summary.goals) for candidate in eligible]
        front = non_dominated(scores)
        index = knee([scores[number] for number in front])
        return Chosen((eligible[front[index]],))
    if selection.by is None and selection.top is None:
        return Chosen(tuple(meeting))
    by = score_named(selection.by or "objective")
    scored = [candidate for candidate in meeting if candidate.fields[by] is not None]
    ranked = sorted(scored, key=lambda candidate: _rank(candidate, by))
    if not ranked:
        raise InputError(
            f"--best is {by}, which no point has; allowed: {', '.join(ranking_scores())}"
        )
    return Chosen(tuple(ranked[: selection.top or 1]))


def _conditions_on(
    candidates: Sequence[Candidate], texts: Iterable[str], results: Results
) -> list[Condition]:
    own_names = {name for candidate in candidates for name in candidate.own_fields}
    guards = {score.guard for score in results.guards} | set(results.info.guards)
    parameters = dict.fromkeys(name for trial in results.trials for name in trial.config)
    all_fields = [candidate.fields for candidate in candidates]
    return read_conditions(texts, all_fields, guards - own_names, parameters)


def _rank(candidate: Candidate, by: str) -> tuple[bool, float, float]:
    """Return a sort key: feasible points first, then higher scores, then higher objectives."""
    return not candidate.is_feasible, -candidate.fields[by], -candidate.objective


def candidates_of(summary: Summary, *, everything: bool) -> list[Candidate]:
    """Return the front's members, sorted by decreasing S.

    If ``everything`` is true, return all operating points instead, sorted by decreasing objective,
    with feasible points first.

    Raises:
        InputError: If no trial finished a rung.
    """
    results = summary.results
    members = {name_of_point(member.dev): member for member in summary.members}
    if not members:
        num_trials = len(results.trials)
        num_failed = sum(trial.status == "failed" for trial in results.trials)
        failed = f" ({num_failed} of {num_trials} failed)" if num_failed else ""
        raise InputError(
            f"{results.folder}: has no points to choose from, because no trial finished a rung{failed}"
        )
    configs = {trial.trial: trial.config for trial in results.trials}
    points = {name: member.dev for name, member in members.items()}
    if everything:
        points = _points_by_name(summary, "dev")
    on_test = _points_by_name(summary, "test")
    objective = summary.objectives_by_split.get("dev")
    candidates = []
    for name, point in points.items():
        member = members.get(name)
        if member is not None:
            is_feasible = member.is_feasible
        else:  # only front members are evaluated on guards
            is_feasible = objective is None or not objective.violation(point.pair(objective.goals))
        candidate = Candidate(
            dev=point,
            test=on_test.get(name),
            config=configs[point.trial or 0],
            objective=results.info.objective(point),
            is_feasible=is_feasible,
            member=member,
        )
        candidates.append(candidate)
    if everything:
        candidates.sort(key=lambda candidate: _rank(candidate, "objective"))
    return candidates


def _points_by_name(summary: Summary, split: ScoredSplit) -> dict[PointName, Point]:
    """Return the trials' points on a split, with the latest scores of rungs that a resume repeated."""
    points = [
        point
        for point in summary.results.points
        if point.split == split and point.trial is not None
    ]
    return {name_of_point(point): point for point in points}


def _why_none(
    summary: Summary,
    selection: Selection,
    conditions: Sequence[Condition],
    candidates: Sequence[Candidate],
) -> str:
    all_fields = [candidate.fields for candidate in candidates]
    group = "operating point" if selection.everything else "point on the front"
    reason = f"no {group} meets all conditions: {why_none(conditions, all_fields)}"
    if selection.everything:
        return reason
    others = candidates_of(summary, everything=True)
    num_others = sum(candidate.meets(conditions) for candidate in others)
    if not num_others:
        return reason
    return f"{reason}; with --all, {num_others} of {len(others)} points meet all conditions"


def candidates_as_json(
    summary: Summary, chosen: Sequence[Candidate], splits: Sequence[ScoredSplit]
) -> list[dict[str, Any]]:
    """Return a JSON object per point, with scores in [0, 1].

    If ``export`` is None, the point cannot be exported. If ``intervals`` is None,
    ``why_no_intervals`` is the reason.
    """
    objects = []
    for candidate in chosen:
        point = candidate.dev
        marks = {"knee": candidate.is_knee, "best": candidate.is_best}
        scores: dict[str, Any] = {
            split: _scores_as_json(summary, candidate.on(split)) for split in splits
        }
        values = {
            "point": point.name,
            "trial": point.trial,
            "step": point.step,
            "kind": point.kind,
            "value": point.value,
            "width": point.width,
            "encoders": point.num_encoders,
            "objective": candidate.objective,
            "is_feasible": candidate.is_feasible,
            "marks": [mark for mark, applies in marks.items() if applies],
            **scores,
            "guards": {name: measured.score for name, measured in candidate.guards.items()},
            "config": dict(candidate.config),
            "export": export_command(summary, point.name) if candidate.member else None,
        }
        objects.append(values)
    return objects


def front_as_json(summary: Summary) -> list[dict[str, Any]]:
    """Return the front's members as JSON objects; see :func:`candidates_as_json`."""
    members = candidates_of(summary, everything=False) if summary.members else ()
    return candidates_as_json(summary, members, summary.splits)


def _scores(point: Point) -> dict[str, float | None]:
    """Return a point's scores; unknown standard scores are None."""
    return {name: point.get(name) for name in dict.fromkeys([*STANDARD, *point.scores])}


def _scores_as_json(summary: Summary, point: Point | None) -> dict[str, Any] | None:
    if point is None:
        return None
    scores = _scores(point)
    bounds = finite_bounds(summary, point)
    if bounds is None:
        why = why_no_intervals_of(summary, point)
        return {**scores, "intervals": None, "why_no_intervals": why}
    return {**scores, "intervals": {"level": LEVEL, **bounds}}


def finite_bounds(summary: Summary, point: Point) -> dict[str, list[float] | None] | None:
    """Return [low, high] for each score, or None if its interval is missing or infinite.

    Return None instead of a mapping if the point has no intervals.
    """
    intervals = summary.intervals_of(point)
    if intervals is None:
        return None
    bounds: dict[str, list[float] | None] = {}
    for name in summary.goals.written_scores:
        interval = intervals.get(name)
        bounds[name] = None
        if interval is not None and interval.is_finite:
            bounds[name] = [interval.low, interval.high]
    return bounds


def why_no_intervals_of(summary: Summary, point: Point) -> str:
    if why := why_no_intervals(summary, point.split):
        return why
    return "per-query scores are stored only for points within three standard errors of the front"


def export_command(summary: Summary, name: str) -> str:
    """Return the command that exports a point on the front."""
    folder = re.sub("[:/=]", "-", f"{summary.results.info.name}-{name}")
    data_set = ["--data-set", summary.results.info.tasks[0]] if summary.results.info.tasks else []
    return format_command("export", summary.results.folder, folder, "--point", name, *data_set)


def probe_command(summary: Summary) -> str | None:
    """Return the command that exports the best probe by the objective, or None if it cannot be exported."""
    results = summary.results
    probes = [point for point in results.points if point.kind == "probe" and point.split == "dev"]
    if not probes or results.info.tasks:
        return None
    best = max(probes, key=results.info.objective)
    return format_command(
        "export", results.folder, f"{results.info.name}-probe", "--point", key_name(best.key)
    )
