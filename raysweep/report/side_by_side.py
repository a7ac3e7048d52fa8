"""Compare several runs by hypervolume, dominated points and settings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from raysweep.errors import InputError
from raysweep.metrics.pareto import hypervolume
from raysweep.metrics.scores import Goals, Pair
from raysweep.report.area_difference import MAX_DIFFERENCE, AreaDifference, CountedFront, difference
from raysweep.report.baselines import is_dominated
from raysweep.report.front import Front
from raysweep.report.notes import running_or_killed
from raysweep.report.summary import SPLITS, Summary, summary_of
from raysweep.report.tables import show_pair
from raysweep.results.settings_file import read_settings
from raysweep.results.types import Point, ScoredSplit
from raysweep.storage.folder import Folder
from raysweep.uncertainty.interval import LEVEL


@dataclass(frozen=True)
class Side:
    """One of the compared runs; ``settings`` are those in its ``config.yaml``, with dotted keys."""

    label: str
    summary: Summary
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def front(self) -> Front:
        return self.summary.front

    @property
    def best(self) -> Point | None:
        """The front's best point by the run's own objective."""
        best = self.front.best
        return None if best is None else best.dev

    @property
    def best_config(self) -> Mapping[str, Any]:
        """The configuration of :attr:`best`; empty if there is no front."""
        best = self.best
        configs = {trial.trial: trial.config for trial in self.summary.results.trials}
        return {} if best is None or best.trial is None else configs[best.trial]


@dataclass(frozen=True)
class Domination:
    """The points on the front of run ``other`` that the front of run ``label`` dominates, out of ``num_points``."""

    split: ScoredSplit
    label: str
    other: str
    names: tuple[str, ...]
    num_points: int


@dataclass(frozen=True)
class SettingDifference:
    """A setting or a parameter of the best points that differs between runs, with one value per run."""

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class SideBySide:
    """The result of :func:`compare_runs`; hypervolumes are for scores in [0, 1]."""

    sides: tuple[Side, ...]
    splits: tuple[ScoredSplit, ...]
    reference_points: Mapping[ScoredSplit, Pair]
    areas: Mapping[ScoredSplit, tuple[float, ...]]  # one per run
    # between each run and the first; all intervals hold jointly at ``LEVEL``
    differences: tuple[AreaDifference, ...]
    dominations: tuple[Domination, ...]
    settings: tuple[SettingDifference, ...]
    best_configs: tuple[SettingDifference, ...]
    notes: tuple[str, ...]

    @property
    def goals(self) -> Goals:
        """The scores used as P and S in all runs."""
        return self.sides[0].summary.goals


def labels(locations: Sequence[str]) -> list[str]:
    """Return the shortest trailing parts of the locations that distinguish all runs.

    Raises:
        InputError: If two locations are equal.
    """
    paths = [location.rstrip("/") for location in locations]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise InputError(f"{locations[number]}: is given twice; required: different runs")
    length = 1
    names = _last_parts(paths, length)
    while len(set(names)) < len(paths):
        length += 1
        names = _last_parts(paths, length)
    return names


def read_sides(runs: Sequence[Folder]) -> list[Side]:
    """Read the runs to compare, and their settings except names and storage.

    Raises:
        InputError: If a folder is given twice, is damaged or does not contain a run.
    """
    sides = []
    for run, label in zip(runs, labels([run.location for run in runs]), strict=True):
        summary = summary_of(run)
        settings = {}
        for name, value in _flatten(read_settings(run, summary.results)):
            if name != "name" and not name.startswith("storage."):
                settings[name] = value
        sides.append(Side(label, summary, settings))
    return sides


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value) pairs from nested mappings."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _last_parts(paths: Sequence[str], length: int) -> list[str]:
    return ["/".join(path.split("/")[-length:]) for path in paths]


def compare_runs(sides: Sequence[Side]) -> SideBySide:
    """Compare each run with the first one, and each front with every other front.

    Raises:
        InputError: If there are fewer than two runs, no run has a front, or the runs are not comparable.
    """
    num_runs = len(sides)
    if num_runs < 2:
        raise InputError(f"compare: the number of runs is {num_runs}; allowed: at least 2")
    _check_same_task(sides)
    has_front = any(side.front.members for side in sides)
    if not has_front:
        folders = ", ".join(side.summary.results.folder for side in sides)
        raise InputError(
            f"{folders}: there are no fronts to compare, because no trial finished a rung"
        )
    splits, notes_on_splits = _comparable_splits(sides)
    reference_points = _reference_points(sides, splits)
    has_same_constraints = _have_same_constraints(sides)
    fronts = {}
    areas = {}
    for split, start in reference_points.items():
        fronts_on_split = [
            _counted_front(side, split, start, feasible_only=has_same_constraints) for side in sides
        ]
        fronts[split] = fronts_on_split
        areas[split] = tuple(front.area for front in fronts_on_split)
    best_names = tuple(side.best.name if side.best else None for side in sides)
    best_points = SettingDifference("best point", best_names)
    settings = [side.settings for side in sides]
    versions = [{"version": side.summary.results.info.version} for side in sides]
    best_configs = [side.best_config for side in sides]
    differing_configs = _differing(best_configs)
    differing_settings = [*_differing(settings), *_differing(versions)]
    differences = _differences(fronts.values())
    dominations = tuple(_dominations(sides, splits))
    notes = [*_notes(sides, splits), *notes_on_splits]
    return SideBySide(
        sides=tuple(sides),
        splits=splits,
        reference_points=reference_points,
        areas=areas,
        differences=differences,
        dominations=dominations,
        settings=tuple(differing_settings),
        best_configs=(best_points, *differing_configs),
        notes=tuple(notes),
    )


# Comparability of runs


def _check_same_task(sides: Sequence[Side]) -> None:
    """Raise ``InputError`` unless all runs have the same goals, dataset, reference encoder, k and rank weights."""
    first = sides[0]
    expected = first.summary.results.info
    names = {
        "dataset": "dataset",
        "reference": "reference encoder",
        "k": "k",
        "rank_weights": "rank weights",
    }
    goals = " and ".join(expected.goals)
    for side in sides[1:]:
        info = side.summary.results.info
        if info.goals != expected.goals:
            raise InputError(
                f"{side.label}: the goals are {' and '.join(info.goals)}; allowed: {goals}, as in {first.label}"
            )
        for field_name, name in names.items():
            value = getattr(info, field_name)
            allowed = getattr(expected, field_name)
            if value != allowed:
                raise InputError(
                    f"{side.label}: {name} is {value}; allowed: {allowed}, as in {first.label}, because scores are "
                    "comparable only with the same dataset, reference encoder, k and rank weights"
                )


def _comparable_splits(sides: Sequence[Side]) -> tuple[tuple[ScoredSplit, ...], list[str]]:
    """Return the splits on which all fronts are comparable, and notes on the other splits."""
    reasons = {split: _why_incomparable(sides, split) for split in SPLITS}
    comparable = tuple(split for split in SPLITS if not reasons[split])
    if not comparable:
        raise InputError(f"the runs cannot be compared: {reasons['dev']}")
    notes = [f"Not compared on {split}: {reason}." for split, reason in reasons.items() if reason]
    return comparable, notes


def _why_incomparable(sides: Sequence[Side], split: ScoredSplit) -> str:
    """Return why the runs cannot be compared on a split, or an empty string if they can."""
    with_front = [side for side in sides if side.front.members]
    for side in with_front:
        if why := side.front.why_partial(split):
            return f"{why} in {side.label}"
        if not side.front.on(split):
            return f"the front of {side.label} is not scored on {split}"
    first, *others = with_front
    for side in others:
        if why := _why_other_data(side, first, split):
            return why
    return ""


def _why_other_data(side: Side, first: Side, split: ScoredSplit) -> str:
    """Return why two runs must have been scored on different data, or an empty string."""
    info, first_info = side.summary.results.info, first.summary.results.info
    units = {"num_queries": "queries", "num_pool": "sentences in the retrieval pool"}
    for field_name, unit in units.items():
        number = getattr(info, field_name).get(split)
        first_number = getattr(first_info, field_name).get(split)
        if number != first_number:
            return f"on {split}, {side.label} has {number} {unit}, and {first.label} has {first_number}"
    point = side.summary.references.get(split)
    first_point = first.summary.references.get(split)
    if point is None or first_point is None:
        return ""
    goals = side.summary.goals
    pairs = zip(point.pair(goals), first_point.pair(goals), strict=True)
    distances = [abs(score - first_score) for score, first_score in pairs]
    if max(distances) <= MAX_DIFFERENCE:
        return ""
    seeds = (
        ""
        if info.seed == first_info.seed
        else " (their seeds differ; without data.dev, the splits depend on the seed)"
    )
    return (
        f"on {split}, the reference encoder scores {show_pair(point, goals, 2)} in {side.label} and "
        f"{show_pair(first_point, goals, 2)} in {first.label}, so the queries or the pool differ{seeds}"
    )


# Hypervolumes


def _have_same_constraints(sides: Sequence[Side]) -> bool:
    """Return whether all runs have the same constraints and the same limits on measured guards."""
    constraints = []
    for side in sides:
        results = side.summary.results
        limits = {
            (score.guard, score.at_least) for score in results.guards if score.at_least is not None
        }
        constraints.append((dict(results.info.constraints), limits))
    return all(by_run == constraints[0] for by_run in constraints)


def _reference_points(
    sides: Sequence[Side], splits: Sequence[ScoredSplit]
) -> dict[ScoredSplit, Pair]:
    """Return the reference point on each split, from the first run that stores the reference encoder's scores."""
    goals = sides[0].summary.goals
    points = {}
    for split in splits:
        references = [
            side.summary.references[split] for side in sides if split in side.summary.references
        ]
        if references:
            first_pair = references[0].pair(goals)
            points[split] = goals.reference_point(first_pair)
    return points


def _counted_front(
    side: Side, split: ScoredSplit, start: Pair, *, feasible_only: bool
) -> CountedFront:
    """Return the points on a run's front and their hypervolume above ``start``."""
    points = side.front.feasible_on(split) if feasible_only else side.front.on(split)
    scores = [point.pair(side.summary.goals) for point in points]
    area = hypervolume(scores, start)
    return CountedFront(side.label, side.summary, split, points, area)


def _differences(fronts: Iterable[Sequence[CountedFront]]) -> tuple[AreaDifference, ...]:
    """Return the differences between each run and the first, with intervals that hold jointly at ``LEVEL``.

    ``fronts`` contains a sequence for each split, with one front per run.
    """
    pairs = []
    for first, *others in fronts:
        for front in others:
            if front.summary.members and first.summary.members:
                pairs.append((front, first))
    if not pairs:
        return ()
    level = 1 - (1 - LEVEL) / len(pairs)  # Bonferroni correction
    return tuple(difference(front, first, level) for front, first in pairs)


# Points and settings


def _dominations(sides: Sequence[Side], splits: Sequence[ScoredSplit]) -> Iterator[Domination]:
    for split in splits:
        for side, other in permutations(sides, 2):
            front = side.front.on(split)
            other_front = other.front.on(split)
            if front and other_front:
                names = tuple(
                    point.name
                    for point in other_front
                    if is_dominated(point, front, side.summary.goals)
                )
                yield Domination(split, side.label, other.label, names, len(other_front))


def _differing(mappings: Sequence[Mapping[str, Any]]) -> Iterator[SettingDifference]:
    """Yield the keys whose values differ between ``mappings``, which has one mapping per run."""
    names = dict.fromkeys(name for mapping in mappings for name in mapping)
    for name in names:
        values = tuple(mapping.get(name) for mapping in mappings)
        if any(value != values[0] for value in values):
            yield SettingDifference(name, values)


def _notes(sides: Sequence[Side], splits: Sequence[ScoredSplit]) -> Iterator[str]:
    for side in sides:
        results = side.summary.results
        if not side.front.members:
            yield f"{side.label} has no front, because no trial finished a rung."
        elif results.status == "running":
            yield f"{side.label} {running_or_killed(results)}."
    if not _have_same_constraints(sides):
        yield "The runs have different constraints or guards, so hypervolumes include points that do not meet them."
    if splits == ("dev",):
        yield "The fronts were chosen on dev, so their scores on dev are optimistic."
    if not any(split in side.summary.references for side in sides for split in splits):
        yield "Hypervolumes are missing, because the reference encoder's scores are not stored."
