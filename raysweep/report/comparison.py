"""Sentences and terminal lines that compare the front with the baselines."""

from collections.abc import Iterator

from raysweep.metrics.scores import Goals
from raysweep.report.baselines import is_dominated
from raysweep.report.summary import SPLITS, Summary
from raysweep.report.tables import kind_name, show_area, show_pair
from raysweep.results.types import Point


def probe_sentences(summary: Summary) -> list[str]:
    """Compare the front with the probe on each split on which both are scored."""
    sentences = []
    goals = summary.goals
    for split, probes in summary.probes.items():
        best, member = probes.best, probes.dominating
        dominated = "no front member dominates it"
        if member is not None:
            name = f"{kind_name(member)} of trial {member.trial} at rung {member.step}"
            member_scores = show_pair(member, goals)
            dominated = f"{name} dominates it with {member_scores}"
        best_name = kind_name(best)
        best_scores = show_pair(best, goals)
        front_area = show_area(summary.areas[split].front)
        probe_area = show_area(probes.area)
        sentences.append(
            f"On {split}, the front dominates {probes.num_dominated} of {probes.num_points} probe points, and "
            f"its hypervolume is {front_area}, compared with {probe_area} for the probe. "
            f"The best probe by the objective on dev is {best_name} with {best_scores}; {dominated}."
        )
    return sentences


def baseline_lines(summary: Summary) -> Iterator[str]:
    """Yield terminal lines on the best probe, SetFit models and published scores."""
    goals = summary.goals
    for split in SPLITS:
        probes = summary.probes.get(split)
        if probes is not None:
            best = probes.best
            yield _line(kind_name(best), best, goals, dominated=probes.dominating is not None)
        front = summary.front.on(split)
        if not front:
            continue
        num_published = num_dominated = 0
        for baseline in summary.baselines:
            point = baseline.points.get(split)
            if point is None:
                continue
            if baseline.kind == "setfit":
                yield _line(
                    baseline.name, point, goals, dominated=is_dominated(point, front, goals)
                )
            elif baseline.kind == "published":
                num_published += 1
                num_dominated += is_dominated(point, front, goals)
        if num_published:
            yield f"published on {split}: {num_dominated} of {num_published} dominated by the front"


def _line(name: str, point: Point, goals: Goals, *, dominated: bool) -> str:
    verdict = "dominated" if dominated else "not dominated"
    return f"{name} on {point.split}: {show_pair(point, goals)}, {verdict} by the front"
