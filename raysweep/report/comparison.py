"""Sentences and lines that compare the front with the baselines."""

from collections.abc import Iterable, Iterator

from raysweep.report.baselines import Baseline, ProbeComparison, dominates
from raysweep.report.summary import SPLITS, Summary
from raysweep.report.tables import kind_name, show, show_area
from raysweep.results.types import Point, ScoredSplit


def probe_sentences(summary: Summary) -> list[str]:
    """Return a sentence per split on which front and probe are scored.

    It states how many of the probe's points the front dominates, and the best of them.
    """
    return [_probe_sentence(summary, split, probes) for split, probes in summary.probes.items()]


def _probe_sentence(summary: Summary, split: ScoredSplit, probes: ProbeComparison) -> str:
    area, best = summary.areas[split].front, probes.best
    return (
        f"On {split}, the front dominates {probes.num_dominated} of the {probes.num_points} points of the probe, and its "
        f"hypervolume is {show_area(area)}, compared with {show_area(probes.area)} for the probe. The probe's best point by "
        f"the objective on dev is {kind_name(best)} with {_scores(best)}; {_dominated(probes)}."
    )


def _dominated(probes: ProbeComparison) -> str:
    member = probes.dominating
    if member is None:
        return "no front member dominates it"
    return f"{kind_name(member)} of trial {member.trial} at step {member.step} dominates it with {_scores(member)}"


def _scores(point: Point) -> str:
    return f"P {show(point.polarity)}, S {show(point.similarity)}"


def baseline_lines(summary: Summary) -> Iterator[str]:
    """Yield short lines for a terminal on the probe's best point, SetFit models and dominated published scores."""
    for split in SPLITS:
        probes = summary.probes.get(split)
        if probes is not None:
            is_dominated = probes.dominating is not None
            yield _line(kind_name(probes.best), probes.best, is_dominated)
        front = summary.front.on(split)
        if front:
            yield from _setfit_lines(summary.baselines, split, front)
        yield from _published_line(summary.baselines, split, front)


def _line(name: str, point: Point, is_dominated: bool) -> str:
    verdict = "dominated" if is_dominated else "not dominated"
    return f"{name} on {point.split}: {_scores(point)}, {verdict} by the front"


def _setfit_lines(baselines: Iterable[Baseline], split: ScoredSplit, front: list[Point]) -> Iterator[str]:
    for baseline in baselines:
        if baseline.kind == "setfit" and split in baseline.points:
            point = baseline.points[split]
            is_dominated = any(dominates(member, point) for member in front)
            yield _line(baseline.name, point, is_dominated)


def _published_line(baselines: tuple[Baseline, ...], split: ScoredSplit, front: list[Point]) -> Iterator[str]:
    published = [one.points[split] for one in baselines if one.kind == "published" and split in one.points]
    dominated = [point for point in published if any(dominates(member, point) for member in front)]
    if published and front:
        yield f"published on {split}: {len(dominated)} of {len(published)} dominated by the front"
