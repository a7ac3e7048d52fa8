"""Several runs side by side: hypervolumes above one reference point, who dominates whom, what was configured otherwise."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import numpy as np

from raysweep.errors import InputError
from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import Pair
from raysweep.metrics.pareto import hypervolume
from raysweep.report.baselines import dominates
from raysweep.report.replicates import StoredRuns, stacked
from raysweep.report.summary import SPLITS, Member, Summary, missing_intervals
from raysweep.results.query_scores import name_of_point
from raysweep.results.types import Point, RunInfo, ScoredSplit
from raysweep.uncertainty.areas import FrontArea, Gain
from raysweep.uncertainty.configurations import Replicated, Scored, SeedNoise, Trained, noise_of, noise_text
from raysweep.uncertainty.interval import LEVEL, Interval
from raysweep.uncertainty.noise import Noise

MOST_DIFFERENCE = 1e-3  # between the scores of one encoder in two runs: processors round otherwise

REFERENCE = (None, None, "reference", None)

SEED = 0  # of the bootstrap: the same runs give the same interval


@dataclass(frozen=True)
class Side:
    """One of the runs. ``settings`` are those of its file, by dotted key."""

    label: str
    summary: Summary
    settings: Mapping[str, Any] = field(default_factory=dict)

    def members_on(self, split: ScoredSplit) -> list[Member]:
        """Those of the front that were scored there."""
        return [member for member in self.summary.members if member.on(split)]

    def front_on(self, split: ScoredSplit) -> list[Point]:
        return self.summary.front_on(split)

    @property
    def best(self) -> Point | None:
        """The front's best point under the run's own objective."""
        return next((member.dev for member in self.summary.members if member.is_best), None)

    @property
    def best_config(self) -> Mapping[str, Any]:
        """The configuration of :attr:`best`; empty without a front."""
        best = self.best
        configs = {trial.trial: trial.config for trial in self.summary.results.trials}
        return {} if best is None or best.trial is None else configs[best.trial]


@dataclass(frozen=True)
class AreaDifference:
    """By how much the hypervolume of ``label`` exceeds that of ``other`` on a split.

    Where there is no ``interval``, ``why_none`` says why. It is over queries, and with ``has_seeds`` over seeds too.
    """

    split: ScoredSplit
    label: str
    other: str
    estimate: float
    interval: Interval | None
    why_none: str = ""
    has_seeds: bool = False

    @property
    def noise(self) -> str:
        """What the interval is over."""
        return noise_text(has_seeds=self.has_seeds)


@dataclass(frozen=True)
class Domination:
    """Which points of the front of ``other``, by name, a point of ``label``'s dominates on a split, of ``num_points``."""

    split: ScoredSplit
    label: str
    other: str
    names: tuple[str, ...]
    num_points: int


@dataclass(frozen=True)
class SettingDifference:
    """A setting, or a parameter of the best configurations, that is not the same in all runs: its ``values`` by run."""

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class SideBySide:
    """What :func:`compare_runs` finds. Hypervolumes are of scores in [0, 1], above ``reference_points``."""

    sides: tuple[Side, ...]
    splits: tuple[ScoredSplit, ...]
    reference_points: Mapping[ScoredSplit, Pair]
    areas: Mapping[ScoredSplit, tuple[float, ...]]  # by run
    differences: tuple[AreaDifference, ...]  # of each run from the first
    level: float  # of the intervals of all differences together
    dominations: tuple[Domination, ...]
    settings: tuple[SettingDifference, ...]
    best_configs: tuple[SettingDifference, ...]
    notes: tuple[str, ...]


def labels(locations: Sequence[str]) -> list[str]:
    """Names for runs: the last parts of their locations, as many as tell them apart. InputError where two are the same."""
    paths = [location.rstrip("/") for location in locations]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise InputError(f"{locations[number]} is named twice; compare needs different runs")
    length = 1
    while len(set(_last_parts(paths, length))) < len(paths):
        length += 1
    return _last_parts(paths, length)


def _last_parts(paths: Sequence[str], length: int) -> list[str]:
    """So many of the parts of each path, from its end."""
    return ["/".join(path.split("/")[-length:]) for path in paths]


def compare_runs(sides: Sequence[Side]) -> SideBySide:
    """Put runs side by side, each beside the first and its front beside every other.

    InputError where there are fewer than two, where none has a front, or where they cannot be compared: then one line says
    what differs.
    """
    if len(sides) < 2:
        raise InputError("compare needs two runs or more")
    _check_same_task(sides)
    if not any(side.summary.members for side in sides):
        folders = ", ".join(side.summary.results.folder for side in sides)
        raise InputError(f"{folders}: in none of them a trial finished a rung, so there are no fronts to compare")
    splits, notes = _comparable_splits(sides)
    reference_points = _reference_points(sides, splits)
    counting = _counting(sides)
    areas: dict[ScoredSplit, tuple[float, ...]] = {}
    for split, begin in reference_points.items():
        areas[split] = tuple(_area(counting(side, split), begin) for side in sides)
    differences = _differences(sides, areas, counting)
    return SideBySide(
        sides=tuple(sides),
        splits=splits,
        reference_points=reference_points,
        areas=areas,
        differences=tuple(differences),
        level=LEVEL,
        dominations=tuple(_dominations(sides, splits)),
        settings=tuple(_settings(sides)),
        best_configs=tuple(_best_configs(sides)),
        notes=(*_notes(sides, splits), *notes),
    )


# Whether runs can be compared


def _check_same_task(sides: Sequence[Side]) -> None:
    """InputError names what differs of what has to be the same, in the first run that is not like the first of all."""
    first = sides[0]
    for side in sides[1:]:
        for name, wanted, found in _unlike_tasks(first.summary.results.info, side.summary.results.info):
            raise InputError(
                f"{side.label} cannot be compared with {first.label}: its {name} is {found}, not {wanted}; scores are "
                "comparable with the same dataset, reference encoder, k and rank weights alone"
            )


def _unlike_tasks(first: RunInfo, other: RunInfo) -> Iterator[tuple[str, object, object]]:
    names = {"dataset": "dataset", "reference": "reference encoder", "k": "k", "rank_weights": "rank weights"}
    for field_name, name in names.items():
        wanted, found = getattr(first, field_name), getattr(other, field_name)
        if wanted != found:
            yield name, wanted, found


def _comparable_splits(sides: Sequence[Side]) -> tuple[tuple[ScoredSplit, ...], list[str]]:
    """Those on which every front was scored, on the same queries and pool, and why others are not.

    InputError where there is none.
    """
    reasons = {split: _why_incomparable(sides, split) for split in SPLITS}
    comparable = tuple(split for split in SPLITS if not reasons[split])
    if not comparable:
        raise InputError(f"the runs cannot be compared: {reasons['dev']}")
    return comparable, [f"Not compared on {split}: {reason}." for split, reason in reasons.items() if reason]


def _why_incomparable(sides: Sequence[Side], split: ScoredSplit) -> str:
    with_front = [side for side in sides if side.summary.members]
    for side in with_front:
        if not side.front_on(split):
            return f"the front of {side.label} was not scored on {split}"
    first = with_front[0]
    for side in with_front[1:]:
        why = _why_other_data(side, first, split) or _why_other_reference(side, first, split)
        if why:
            return why
    return ""


def _why_other_data(side: Side, first: Side, split: ScoredSplit) -> str:
    """What tells that two runs were not scored on the same queries and pool, by their numbers."""
    found, wanted = side.summary.results.info, first.summary.results.info
    numbers = {
        "queries": (found.num_queries.get(split), wanted.num_queries.get(split)),
        "sentences in the retrieval pool": (found.num_pool.get(split), wanted.num_pool.get(split)),
    }
    for what, (one, other) in numbers.items():
        if one != other:
            return f"{side.label} has {one} {what} on {split}, and {first.label} {other}"
    return ""


def _why_other_reference(side: Side, first: Side, split: ScoredSplit) -> str:
    """The same by the scores of the reference encoder, where both have stored them."""
    one, other = side.summary.references.get(split), first.summary.references.get(split)
    if one is None or other is None or _farthest(one, other) <= MOST_DIFFERENCE:
        return ""
    return (
        f"the reference encoder scores {_scores(one)} on {split} in {side.label} and "
        f"{_scores(other)} in {first.label}, so that queries or pool are others"
    )


def _farthest(one: Point, other: Point) -> float:
    return max(abs(one.polarity - other.polarity), abs(one.similarity - other.similarity))


def _scores(point: Point) -> str:
    return f"P {100 * point.polarity:.2f}, S {100 * point.similarity:.2f}"


# Hypervolumes


_Counting = Callable[[Side, ScoredSplit], list[Point]]
"""The points of a run's front on a split that count for its hypervolume."""


def _counting(sides: Sequence[Side]) -> _Counting:
    """Those that meet the constraints, where all runs have the same; else all of them."""

    def feasible(side: Side, split: ScoredSplit) -> list[Point]:
        return [point for member in side.members_on(split) if member.is_feasible and (point := member.on(split))]

    return feasible if _have_same_constraints(sides) else Side.front_on


def _have_same_constraints(sides: Sequence[Side]) -> bool:
    """Whether points have to reach the same, in guards too, which other runs may not have measured."""
    asked = []
    for side in sides:
        results = side.summary.results
        limits = {(each.guard, each.at_least) for each in results.guards if each.at_least is not None}
        asked.append((dict(results.info.constraints), limits))
    return all(each == asked[0] for each in asked)


def _reference_points(sides: Sequence[Side], splits: Sequence[ScoredSplit]) -> dict[ScoredSplit, Pair]:
    """P of the reference encoder and half its S, of the first run that has stored them; none where none has."""
    found = {}
    for split in splits:
        references = [side.summary.references[split] for side in sides if split in side.summary.references]
        if references:
            found[split] = (references[0].polarity, references[0].similarity / 2)
    return found


def _area(points: Sequence[Point], begin: Pair) -> float:
    return hypervolume([(point.polarity, point.similarity) for point in points], begin)


def _differences(
    sides: Sequence[Side], areas: Mapping[ScoredSplit, Sequence[float]], counting: _Counting
) -> Iterator[AreaDifference]:
    """Of each run from the first, on each split, where both have a front. Their intervals hold together, by Bonferroni."""
    first, *others = sides
    num_differences = max(1, len(others) * len(areas))
    level = 1 - (1 - LEVEL) / num_differences
    for split, (area_of_first, *areas_of_others) in areas.items():
        for side, area in zip(others, areas_of_others, strict=True):
            if side.summary.members and first.summary.members:
                yield _difference(side, first, split, counting, (area, area_of_first), level)


def _difference(
    side: Side, first: Side, split: ScoredSplit, counting: _Counting, areas: Pair, level: float
) -> AreaDifference:
    """``areas`` are those of the side and of the first."""
    points = [(each, counting(each, split)) for each in (side, first)]
    estimate = areas[0] - areas[1]
    why_none = next((why for each, front in points if (why := _why_unknown(each, split, front))), "")
    if why_none:
        return AreaDifference(split, side.label, first.label, estimate, None, why_none)
    fronts = [_Front.of(each, split, front) for each, front in points]
    if not _are_same_queries(fronts[0].reference, fronts[1].reference):
        why_none = f"{side.label} and {first.label} were not scored on the same queries, or in another order"
        return AreaDifference(split, side.label, first.label, estimate, None, why_none)
    interval, has_seeds = _interval(fronts[0], fronts[1], level)
    return AreaDifference(split, side.label, first.label, estimate, interval, has_seeds=has_seeds)


def _why_unknown(side: Side, split: ScoredSplit, points: Sequence[Point]) -> str:
    """Why the scores of each query are not known of all points; empty where they are."""
    if missing_intervals(split) in side.summary.damage:
        return side.summary.damage[missing_intervals(split)]
    stored = side.summary.scores.get(split)
    if stored is None or REFERENCE not in stored:
        return f"{side.label} has not stored its scores on each query"
    num_missing = sum(name_of_point(point) not in stored for point in points)
    return f"{side.label} has not stored the scores of {num_missing} of its points on each query" if num_missing else ""


@dataclass(frozen=True)
class _Front:
    """What is stored of a front on one split: scores (points, 2, queries), and those (2, queries) of the reference.

    ``scored`` are the configurations of its points, and ``replicated`` those that the noise of seeds is known from; None
    where dev has no scores of the points, which tell.
    """

    scores: Float64Array
    reference: Float64Array
    scored: Sequence[Scored] | None
    replicated: Sequence[Replicated] = ()

    @classmethod
    def of(cls, side: Side, split: ScoredSplit, points: Sequence[Point]) -> "_Front":
        """Those of the points of a run, which are all stored."""
        stored = side.summary.scores[split]
        dev = side.summary.scores.get("dev")
        names = [name_of_point(point) for point in points]
        scores, reference = stacked(stored, names), stacked(stored, [REFERENCE])[0]
        if dev is None or not all(name in dev for name in names):
            return cls(scores, reference, None)
        runs = StoredRuns(side.summary.results, dev)
        return cls(scores, reference, runs.scored(names, stored), runs.replicated())


def _interval(front: _Front, other: _Front, level: float) -> tuple[Interval, bool]:
    """Of the difference between two hypervolumes, by a paired bootstrap over queries; and whether seeds are in it."""
    noise_of_seeds = SeedNoise([*front.replicated, *other.replicated])
    reference = front.reference[None]
    has_seeds = noise_of_seeds.is_known and front.scored is not None and other.scored is not None
    scored = [*(front.scored or ()), *(other.scored or ())]
    if has_seeds and scored:
        noise = noise_of(Trained(scored, noise_of_seeds), reference, SEED)
        at = sum(len(each.scores) for each in front.scored or ())
    else:
        noise = Noise.of_queries(np.concatenate([front.scores, other.scores, reference]), SEED)
        at = len(front.scores)
    end = len(noise.means) - 1
    gain = Gain(FrontArea(range(at), reference=end), FrontArea(range(at, end), reference=end))
    return noise.interval(gain, level), has_seeds


def _are_same_queries(one: Float64Array, other: Float64Array) -> bool:
    """Whether the reference encoder's S of (2, queries) is the same query by query, but for a few that rounding moved."""
    return one.shape == other.shape and bool(np.median(np.abs(one[1] - other[1])) <= MOST_DIFFERENCE)


# Points and settings


def _dominations(sides: Sequence[Side], splits: Sequence[ScoredSplit]) -> Iterator[Domination]:
    for split in splits:
        for side, other in permutations(sides, 2):
            front, theirs = side.front_on(split), other.members_on(split)
            if front and theirs:
                dominated = [member.dev.name for member in theirs if _is_dominated(member.on(split), front)]
                yield Domination(split, side.label, other.label, tuple(dominated), len(theirs))


def _is_dominated(point: Point | None, front: Iterable[Point]) -> bool:
    return point is not None and any(dominates(mine, point) for mine in front)


_INFO = ("model", "polarity_weight", "similarity", "constraints", "num_trials", "seed", "version")


def _settings(sides: Sequence[Side]) -> Iterator[SettingDifference]:
    """Of the runs' files where all have one, of what their ledgers say where not."""
    if all(side.settings for side in sides):
        versions = {"version": [side.summary.results.info.version for side in sides]}
        yield from _differing([side.settings for side in sides])
        yield from _unlike(versions)
    else:
        infos = [side.summary.results.info for side in sides]
        yield from _unlike({name: [getattr(info, name) for info in infos] for name in _INFO})


def _best_configs(sides: Sequence[Side]) -> Iterator[SettingDifference]:
    bests = [side.best for side in sides]
    yield SettingDifference("best point", tuple(None if best is None else best.name for best in bests))
    yield from _differing([side.best_config for side in sides])


def _differing(mappings: Sequence[Mapping[str, Any]]) -> Iterator[SettingDifference]:
    names = dict.fromkeys(name for each in mappings for name in each)
    yield from _unlike({name: [each.get(name) for each in mappings] for name in names})


def _unlike(values: Mapping[str, Sequence[Any]]) -> Iterator[SettingDifference]:
    for name, by_run in values.items():
        if any(value != by_run[0] for value in by_run):
            yield SettingDifference(name, tuple(by_run))


def _notes(sides: Sequence[Side], splits: Sequence[ScoredSplit]) -> Iterator[str]:
    """What a reader has to know before the numbers."""
    for side in sides:
        results = side.summary.results
        if not side.summary.members:
            yield f"{side.label}: no trial finished a rung, so there is no front."
        elif results.status == "running":
            yield f"{side.label} is still running, or it was killed: this is what it has stored so far."
    if not _have_same_constraints(sides):
        yield "The runs have other constraints or guards, so points count for hypervolumes whether they meet them or not."
    if splits == ("dev",):
        yield "On dev fronts were also chosen, which flatters them."
    if not any(split in side.summary.references for side in sides for split in splits):
        yield "The reference encoder's scores are not stored, so there are no hypervolumes."
