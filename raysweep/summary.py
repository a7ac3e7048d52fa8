"""What a run's stored results say: the front, its knee and best point, how large it is, and what is missing."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from raysweep.pareto import hypervolume, knee
from raysweep.results import Point, Results, Rung, RunInfo, Split, Trial, front_members

SPLITS: tuple[Split, ...] = ("dev", "test")


@dataclass(frozen=True)
class Member:
    """One point of the front, which is chosen on dev, and its scores on test where they were read."""

    dev: Point
    test: Point | None
    is_knee: bool
    is_best: bool  # of the objective

    def on(self, split: Split) -> Point | None:
        return self.dev if split == "dev" else self.test


@dataclass(frozen=True)
class Area:
    """Hypervolumes on one split above ``reference`` (P, S), scores in [0, 1]; ``oracle`` is None where not stored."""

    reference: tuple[float, float]
    front: float
    oracle: float | None

    @property
    def share(self) -> float | None:
        """The front's part of the oracle's hypervolume, or None where that is not known or nothing."""
        return self.front / self.oracle if self.oracle else None


@dataclass(frozen=True)
class TrialSummary:
    """A trial with its rungs by rising step, and its best dev point under the objective (None without a rung)."""

    trial: Trial
    rungs: tuple[Rung, ...]
    objectives: tuple[float, ...]  # by rung: of its best point
    best: Point | None


@dataclass(frozen=True)
class Summary:
    """Everything that the tables, figures and pages of a report show."""

    results: Results
    members: tuple[Member, ...]  # by falling similarity on dev
    trials: tuple[TrialSummary, ...]
    references: Mapping[Split, Point]
    oracles: Mapping[Split, tuple[Point, ...]]  # by rising bonus
    areas: Mapping[Split, Area]
    notes: tuple[str, ...]  # what a reader must know, and what is absent

    @property
    def has_test(self) -> bool:
        return any(member.test for member in self.members)


def objective_formula(info: RunInfo) -> str:
    """The objective as a reader would write it, such as ``0.5 P + 0.5 S``."""
    other = "retention" if info.similarity == "retention" else "S"
    return f"{info.polarity_weight:g} P + {1 - info.polarity_weight:g} {other}"


def half_width(std: float, num_queries: int) -> float:
    """Half the normal 95% confidence interval of a mean over ``num_queries`` queries, whose deviation is ``std``."""
    return 1.959964 * std / math.sqrt(num_queries)


def summarise(results: Results) -> Summary:
    """Derive what a report shows. Selection is on dev alone; test scores are only looked up for what was selected."""
    references = {point.split: point for point in results.points if point.kind == "reference"}
    oracles = {split: _oracle(results.points, split) for split in SPLITS}
    members = _members(results)
    areas = {
        split: _area(references[split], [point for m in members if (point := m.on(split))], oracles[split])
        for split in SPLITS
        if split in references and any(m.on(split) for m in members)
    }
    trials = _trials(results)
    notes = tuple(_notes(results, members, references, oracles))
    return Summary(results, members, trials, references, oracles, areas, notes)


def _oracle(points: Iterable[Point], split: Split) -> tuple[Point, ...]:
    found = (point for point in points if point.kind == "oracle" and point.split == split)
    return tuple(sorted(found, key=lambda point: point.value or 0.0))


def _members(results: Results) -> tuple[Member, ...]:
    front = front_members(results.points)
    if not front:
        return ()
    tested: dict[tuple[object, ...], Point] = {
        (p.trial, p.step, p.kind, p.value): p for p in results.points if p.split == "test" and p.trial is not None
    }
    balanced = knee([(point.polarity, point.similarity) for point in front])
    # Neither weight is negative and retention is S over a constant: the best of all points has an equal on the front.
    best = max(range(len(front)), key=lambda i: results.info.objective(front[i]))
    return tuple(
        Member(point, tested.get((point.trial, point.step, point.kind, point.value)), i == balanced, i == best)
        for i, point in enumerate(front)
    )


def _area(reference: Point, front: list[Point], oracle: tuple[Point, ...]) -> Area:
    corner = (reference.polarity, reference.similarity / 2)
    above = [hypervolume([(p.polarity, p.similarity) for p in points], corner) for points in (front, oracle)]
    return Area(corner, above[0], above[1] if oracle else None)


def _trials(results: Results) -> tuple[TrialSummary, ...]:
    rungs: dict[int, dict[int, Rung]] = {}
    for rung in results.rungs:
        rungs.setdefault(rung.trial, {})[rung.step] = rung
    best: dict[tuple[int, int], Point] = {}
    for point in results.points:
        if point.split == "dev" and point.trial is not None and point.step is not None:
            rival = best.setdefault((point.trial, point.step), point)
            if results.info.objective(point) > results.info.objective(rival):
                best[point.trial, point.step] = point
    summaries = []
    for trial in sorted(results.trials, key=lambda trial: trial.trial):
        own = [rung for _, rung in sorted(rungs.get(trial.trial, {}).items()) if (trial.trial, rung.step) in best]
        points = [best[trial.trial, rung.step] for rung in own]
        objectives = [results.info.objective(point) for point in points]
        top = points[objectives.index(max(objectives))] if points else None
        summaries.append(TrialSummary(trial, tuple(own), tuple(objectives), top))
    return tuple(summaries)


def _notes(
    results: Results,
    members: tuple[Member, ...],
    references: Mapping[Split, Point],
    oracles: Mapping[Split, tuple[Point, ...]],
) -> Iterable[str]:
    if results.status == "running":
        yield "The sweep is still running, or it was killed: this is what it has stored so far."
    elif results.status != "completed":
        ended = {"interrupted": "was interrupted", "budget": "ended at its budget"}.get(results.status, results.status)
        reason = f": {results.reason.rstrip('.')}" if results.reason else ""
        yield f"The sweep {ended}{reason}."
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
