"""Several runs compared: hypervolumes above one reference point, dominated points, and differing settings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from raysweep.errors import InputError
from raysweep.metrics.objective import Pair
from raysweep.metrics.pareto import hypervolume
from raysweep.report.area_difference import MOST_DIFFERENCE, AreaDifference, Front, difference
from raysweep.report.baselines import dominates
from raysweep.report.notes import running_or_killed
from raysweep.report.summary import SPLITS, Summary
from raysweep.results.types import Point, RunInfo, ScoredSplit
from raysweep.uncertainty.interval import LEVEL


@dataclass(frozen=True)
class Side:
    """One of the compared runs; ``settings`` are those of its file, by dotted key."""

    label: str
    summary: Summary
    settings: Mapping[str, Any] = field(default_factory=dict)

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
class Domination:
    """The names of the points of ``other``'s front that the front of ``label`` dominates on a split, of ``num_points``."""

    split: ScoredSplit
    label: str
    other: str
    names: tuple[str, ...]
    num_points: int


@dataclass(frozen=True)
class SettingDifference:
    """A setting, or a parameter of the best configurations, that differs between runs: its ``values`` by run."""

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class SideBySide:
    """The result of :func:`compare_runs`; hypervolumes are of scores in [0, 1], above ``reference_points``."""

    sides: tuple[Side, ...]
    splits: tuple[ScoredSplit, ...]
    reference_points: Mapping[ScoredSplit, Pair]
    areas: Mapping[ScoredSplit, tuple[float, ...]]  # by run
    differences: tuple[AreaDifference, ...]  # between each run and the first
    level: float  # simultaneous, of all differences' intervals
    dominations: tuple[Domination, ...]
    settings: tuple[SettingDifference, ...]
    best_configs: tuple[SettingDifference, ...]
    notes: tuple[str, ...]


def labels(locations: Sequence[str]) -> list[str]:
    """Return names for runs: as many trailing parts of their locations as it takes to make them unique.

    Raises:
        InputError: If two locations are equal.
    """
    paths = [location.rstrip("/") for location in locations]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise InputError(f"{locations[number]} is named twice; compare needs different runs")
    length = 1
    while len(set(_last_parts(paths, length))) < len(paths):
        length += 1
    return _last_parts(paths, length)


def _last_parts(paths: Sequence[str], length: int) -> list[str]:
    """Return the last ``length`` parts of each path."""
    return ["/".join(path.split("/")[-length:]) for path in paths]


def compare_runs(sides: Sequence[Side]) -> SideBySide:
    """Compare each run with the first one, and its front with every other front.

    Raises:
        InputError: If there are fewer than two runs, if no run has a front, or if the runs are not comparable.
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
    fronts = {
        split: [_front(side, split, counting(side, split), begin) for side in sides]
        for split, begin in reference_points.items()
    }
    return SideBySide(
        sides=tuple(sides),
        splits=splits,
        reference_points=reference_points,
        areas={split: tuple(front.area for front in of_split) for split, of_split in fronts.items()},
        differences=tuple(_differences(fronts)),
        level=LEVEL,
        dominations=tuple(_dominations(sides, splits)),
        settings=tuple(_settings(sides)),
        best_configs=tuple(_best_configs(sides)),
        notes=(*_notes(sides, splits), *notes),
    )


# Comparability of runs


def _check_same_task(sides: Sequence[Side]) -> None:
    """Check that all runs have the same dataset, reference encoder, k and rank weights.

    Raises:
        InputError: If a run differs from the first one; the message names the first difference.
    """
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
    """Return the splits on which all fronts are scored with the same queries and pool, and the reasons for omitting others.

    Raises:
        InputError: If there is no such split.
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
            why = side.summary.why_partial(split)
            return f"{why} in {side.label}" if why else f"the front of {side.label} was not scored on {split}"
    first = with_front[0]
    for side in with_front[1:]:
        why = _why_other_data(side, first, split) or _why_other_reference(side, first, split)
        if why:
            return why
    return ""


def _why_other_data(side: Side, first: Side, split: ScoredSplit) -> str:
    """Return the reason if the numbers of queries or pool sentences show that two runs were scored on different data."""
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
    """Return the reason if the stored scores of the reference encoder show that two runs were scored on different data."""
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
"""The points of a run's front on a split that count toward its hypervolume."""


def _counting(sides: Sequence[Side]) -> _Counting:
    """Return the function that selects points: those that meet the constraints if all runs have the same, else all."""

    def feasible(side: Side, split: ScoredSplit) -> list[Point]:
        members = zip(side.summary.members, side.front_on(split), strict=True)
        return [point for member, point in members if member.is_feasible]

    return feasible if _have_same_constraints(sides) else Side.front_on


def _have_same_constraints(sides: Sequence[Side]) -> bool:
    """Return whether all runs have the same constraints and guard limits; guards may not have been measured in every run."""
    asked = []
    for side in sides:
        results = side.summary.results
        limits = {(each.guard, each.at_least) for each in results.guards if each.at_least is not None}
        asked.append((dict(results.info.constraints), limits))
    return all(each == asked[0] for each in asked)


def _reference_points(sides: Sequence[Side], splits: Sequence[ScoredSplit]) -> dict[ScoredSplit, Pair]:
    """Return P and half of S of the reference encoder by split, from the first run that stores them."""
    found = {}
    for split in splits:
        references = [side.summary.references[split] for side in sides if split in side.summary.references]
        if references:
            found[split] = (references[0].polarity, references[0].similarity / 2)
    return found


def _front(side: Side, split: ScoredSplit, points: Sequence[Point], begin: Pair) -> Front:
    """Return the counted points with their hypervolume above ``begin``."""
    area = hypervolume([(point.polarity, point.similarity) for point in points], begin)
    return Front(side.label, side.summary, split, points, area)


def _differences(fronts: Mapping[ScoredSplit, Sequence[Front]]) -> Iterator[AreaDifference]:
    """Yield the difference between each run's front and the first run's, with simultaneous intervals."""
    pairs = [(front, first) for first, *others in fronts.values() for front in others]
    with_members = [(front, first) for front, first in pairs if front.summary.members and first.summary.members]
    for front, first in with_members:
        yield difference(front, first, level=1 - (1 - LEVEL) / len(with_members))


# Points and settings


def _dominations(sides: Sequence[Side], splits: Sequence[ScoredSplit]) -> Iterator[Domination]:
    for split in splits:
        for side, other in permutations(sides, 2):
            front, theirs = side.front_on(split), other.front_on(split)
            if front and theirs:
                dominated = [point.name for point in theirs if any(dominates(mine, point) for mine in front)]
                yield Domination(split, side.label, other.label, tuple(dominated), len(theirs))


_INFO = ("model", "prompt", "polarity_weight", "similarity", "constraints", "num_trials", "seed", "version")


def _settings(sides: Sequence[Side]) -> Iterator[SettingDifference]:
    """Yield the differences between the runs' files if all have one, else between their ledgers."""
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
    configs = [side.best_config for side in sides]
    names = dict.fromkeys(name for config in configs for name in config)
    yield from _unlike({name: [config.get(name) for config in configs] for name in names})


def _differing(mappings: Sequence[Mapping[str, Any]]) -> Iterator[SettingDifference]:
    names = dict.fromkeys(name for each in mappings for name in each)
    yield from _unlike({name: [each.get(name) for each in mappings] for name in names})


def _unlike(values: Mapping[str, Sequence[Any]]) -> Iterator[SettingDifference]:
    for name, by_run in values.items():
        if any(value != by_run[0] for value in by_run):
            yield SettingDifference(name, tuple(by_run))


def _notes(sides: Sequence[Side], splits: Sequence[ScoredSplit]) -> Iterator[str]:
    """Yield notes that a reader needs before the numbers."""
    for side in sides:
        results = side.summary.results
        if not side.summary.members:
            yield f"{side.label}: no trial finished a rung, so there is no front."
        elif results.status == "running":
            yield f"{side.label} {running_or_killed(results)}."
    if not _have_same_constraints(sides):
        yield "The runs have other constraints or guards, so points count for hypervolumes whether they meet them or not."
    if splits == ("dev",):
        yield "On dev fronts were also chosen, which flatters them."
    if not any(split in side.summary.references for side in sides for split in splits):
        yield "The reference encoder's scores are not stored, so there are no hypervolumes."
